// What the emulated text and the emulator's runtime know of each other.

#include <cstdint>

// The running thread, as the runtime sets it.
struct StThread {
  int thread, block, grid;
  unsigned char* shared;
};

// What the runtime does for the text. `how` is a sum of the bits below.
struct StRuntime {
  StThread* now;
  void* (*access)(const void* base, int64_t offset, int bytes, int how, int line);  // null: skip it
  uint64_t (*shuffle)(uint64_t value, int mask, int line);
  void (*sync_warp)(int line);
  void (*sync_block)(int line);
  void (*enter_grid)(int line);
  void (*leave_grid)(int line);
  unsigned (*add)(unsigned* word, unsigned value, int line);
  unsigned (*acquire)(const unsigned* word, int line);
  void (*pause)(int line);
  void (*array_bounds)(int64_t index, int line);
};
enum { ST_WRITE = 1, ST_SHARED_MEMORY = 2, ST_CACHE_GLOBAL = 4 };
