// What Python gives and gets: one launch, its buffers, what was found.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

enum Kind { kRace, kOutOfBounds, kMisaligned, kUninitialised, kConst, kStale, kDeadlock, kDivergence, kExited, kLimit };

struct StBuffer {
  void* base;
  uint64_t bytes;
  int32_t element, initialised;
};

struct StLaunch {
  void (*kernel)(void** at);
  void (*bind)(const StRuntime* runtime);
  void** at;  // one pointer to each parameter
  int64_t blocks;
  int32_t threads, shared_bytes, resident, check, count, most_findings;
  uint64_t seed, steps;
  const int32_t* writable;  // for each buffer
};

struct StFinding {
  int32_t kind, line, block, thread, phase, terminal;
  char text[240];
};

// Reads or writes of one buffer in one phase. Sectors are of 32 bytes.
struct StTraffic {
  int64_t sectors, bytes;  // distinct in the phase
  int64_t block_sectors;   // distinct in a block, summed
  int64_t requests, request_sectors, request_bytes;  // of warps; distinct in a request, summed
};

struct StCounts {
  int32_t phase, position;  // position -1: shared memory
  StTraffic traffic[2];     // reads, writes
  int64_t conflicts;        // wavefronts beyond the ideal
};
