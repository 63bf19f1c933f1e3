// What the mutator's arguments rest on, noted while unaltered or altered kernels run in the emulator: whether two
// expressions ever differ, what threads store and read, and which accesses no synchronisation orders.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

static void st_on_access(const void* base, int64_t offset, int bytes, int how, int line);
static void st_on_sync(int scope, int line);
static void st_on_launch();
#define ST_ON_LAUNCH() st_on_launch()
#define ST_ON_ACCESS(base, offset, bytes, how, line) st_on_access(base, offset, bytes, how, line)
#define ST_ON_SYNC(scope, line) st_on_sync(scope, line)

// --- expressions

static long long st_evaluated, st_differed;
template <class A, class B> static A st_same(A a, B b) {
  ++st_evaluated;
  st_differed += a != (A)b;
  return a;
}
extern "C" long long st_probe(int which) { return which ? st_differed : st_evaluated; }

// --- accesses

struct StWho {
  int block, thread;
  bool operator<(const StWho& o) const { return std::tie(block, thread) < std::tie(o.block, o.thread); }
};

// How many synchronisations of each scope a thread has behind it; a wider one counts as a narrower one too.
struct StEpochs {
  int launch = 0, grid = 0, block = 0, warp = 0;
};

struct StTouch {
  StWho who;
  StEpochs at;
  bool write;
};

static int st_launches, st_altered_line, st_altered_scope;
static std::map<StWho, StEpochs> st_epochs;
static std::map<StWho, uint64_t> st_stored;                           // a hash of what each thread has stored, in order
static std::vector<const void*> st_buffers;                           // in order of their first access
static std::set<std::tuple<int, int, int64_t, int>> st_read;          // block (-1: device memory), buffer, offset, bytes
static std::set<std::tuple<int, int64_t, std::string>> st_written;    // buffer, offset, what was put there
static std::map<std::pair<int, const char*>, std::vector<StTouch>> st_bytes;  // block (-1: device memory) and address

extern "C" void st_watch(int line, int scope) {
  st_altered_line = line, st_altered_scope = scope;
  st_evaluated = st_differed = st_launches = 0;
  st_buffers.clear(), st_epochs.clear(), st_stored.clear(), st_read.clear(), st_written.clear(), st_bytes.clear();
}
