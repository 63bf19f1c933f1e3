// Shadow memory: for each granule of a buffer, who wrote it last and who has read it since, as far as needed to find
// every pair of accesses that no synchronisation orders (after FastTrack, Flanagan and Freund 2009).
//
// A segment is what one warp does between two synchronisations of its threads. A mark names a segment and in it either
// one lane, or more: several lanes of the warp, several warps of its block, several blocks. The segment's block epoch
// (block barriers so far) and grid epoch (grid barriers so far) tell what a synchronisation since then has ordered.

using Mark = uint32_t;  // segment << 6 | lane or one of:
enum : uint32_t { kLanes = 32, kWarps = 33, kBlocks = 34, kCodeBits = 6, kCode = 63 };

struct Segment {
  uint32_t block, block_epoch;
  uint16_t warp, grid_epoch;
};

struct Cell {
  Mark write, read;
};

constexpr uint32_t kMostSegments = 1u << (32 - kCodeBits);

static void* map_zeros(size_t bytes) {
  void* memory = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

// A piece of memory that programs may touch: a buffer, or the shared memory of a resident block.
struct Region {
  uintptr_t base;
  uint64_t bytes;
  int position;      // of a buffer; -1: shared memory
  bool initialised;  // before the first launch
  bool writable;     // by the running kernel
  int granule;       // log2 of the bytes that share a cell
  Cell* cells;
  Sector* sectors;

  size_t count() const { return (bytes >> granule) + 1; }

  size_t sector_count() const { return bytes / kSectorBytes + 1; }

  void map_cells() { cells = (Cell*)map_zeros(count() * sizeof(Cell)); }

  // An access smaller than a granule: cells become as fine, each with what the coarse one knew.
  void refine(int finer) {
    Cell* old = cells;
    size_t n = count();
    int shift = granule - finer;
    granule = finer;
    map_cells();
    for (size_t i = 0; i < n; ++i)
      if (old[i].write | old[i].read)
        for (size_t k = 0; k < (size_t)1 << shift && (i << shift) + k < count(); ++k) cells[(i << shift) + k] = old[i];
    munmap(old, n * sizeof(Cell));
  }

  void unmap() {
    munmap(cells, count() * sizeof(Cell));
    if (sectors) munmap(sectors, sector_count() * sizeof(Sector));
  }
};
