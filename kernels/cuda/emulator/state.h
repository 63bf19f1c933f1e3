// The emulator: runs a grid of threads as fibers of one host thread and looks at every access.

enum State : uint8_t { kNew, kReady, kAtWarp, kAtShuffle, kAtBlock, kPolling, kDone };

struct Thread {
  Context context;
  char* stack;
  const unsigned* word;  // what it polls, and the value it saw
  uint64_t value;        // what it gives to a shuffle, then gets
  unsigned seen;
  int mask, line, grid_line;
  uint32_t grids, enter_epoch;  // grid barriers left so far; the block's epoch when it entered one
  uint16_t number;
  State state;
  bool in_grid;
};

struct Warp {
  uint32_t segment;  // 0: none yet since the last synchronisation
  uint8_t arrived, exited, at_block;  // lanes
};

struct Block {
  int64_t number;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<uint16_t> ready;
  size_t next_ready = 0;
  std::vector<uint16_t> polling;
  std::vector<Log> logs;  // of each thread
  std::vector<unsigned char> memory;
  Region shared{};
  uint32_t epoch, grid_epoch, poll_epoch;
  int arrived, exited;
};

class Emulator;
static Emulator* running;
static Stacks stacks;

class Emulator {
 public:
  std::vector<Region> regions;
  std::vector<StFinding> findings;
  Counts counts;
  Segment* segments = (Segment*)map_zeros(sizeof(Segment) * kMostSegments);
  uint32_t next_segment = 1;

  ~Emulator() {
    munmap(segments, sizeof(Segment) * kMostSegments);
    for (Region& r : regions) r.unmap();
    stacks.trim();
  }

  void run(const StLaunch& asked);

  // --- what the text asks for

  void* access(const void* base, int64_t offset, int bytes, int how, int line);
  uint64_t shuffle(uint64_t value, int mask, int line);
  void sync_warp(int line);
  void sync_block(int line);
  void enter_grid(int line);
  void leave_grid(int line);
  unsigned add(unsigned* word, unsigned value, int line);
  unsigned acquire(const unsigned* word, int line);
  void pause(int line);
  void step() {
    if (++steps > launch->steps) stop(kLimit, 0, "more steps than the limit allows");
  }

  void array_bounds(int64_t index, int line) {
    char text[100];
    snprintf(text, sizeof text, "index %lld of an array in registers", (long long)index);
    stop(kOutOfBounds, line, text);
  }

  StThread now{};

 private:
  const StLaunch* launch = nullptr;
  Block* block = nullptr;
  Thread* thread = nullptr;
  Context scheduler{};
  uint64_t steps = 0, random = 1;
  uint32_t first_segment = 1;
  bool stopped = false;
  std::vector<std::unique_ptr<Block>> spare;
  std::vector<int64_t> grid_arrivals;  // threads that have entered each grid barrier
  struct Known {
    const void* base;
    Region* region;
  } known[64] = {};

  uint64_t draw() {  // xorshift64
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return random;
  }

  Region* find(const void* base);
  Warp& warp_of(const Thread& t) { return block->warps[t.number / 32]; }
  void check(Region& region, uint64_t offset, int bytes, int how, int line);
  void check_cell(Region& region, Cell& cell, Mark mark, int how, int line);
  bool ordered(Mark mark, uint32_t mine) const;
  Mark merge(Mark read, Mark mine) const;

  void report(Kind kind, int line, const char* text, bool terminal = false);
  void stop(Kind kind, int line, const char* text);
  void wait(State state, int line);
  void wake(Thread& t);
  void arrive_warp(State state, int line);
  std::unique_ptr<Block> start_block(int64_t number);
  void run_block(Block& b);
  void resume(Thread& t);
  void finish(Thread& t);
  bool poll(Block& b);
  void merge_logs(const Thread& t) {
    if (launch->count) counts.merge(&block->logs[t.number & ~31]);
  }
  void explain(const std::vector<std::unique_ptr<Block>>& active);
  static void trampoline();
};
