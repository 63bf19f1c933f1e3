// What Python gives and gets: one launch, its buffers, what was found.

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <new>
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

struct StCounts {
  int32_t phase, position;  // position -1: shared memory
  int64_t read_sectors, written_sectors, block_read_sectors, block_written_sectors;
  int64_t read_requests, written_requests, useful_read_bytes, useful_written_bytes;
  int64_t request_sectors_read, request_sectors_written, conflicts;
};
