// The second half of watching.h, behind the emulator's header.

static uint64_t st_mixed(uint64_t h, uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 29;
}

static StWho st_who() { return {st_block(), st_thread()}; }

static int st_number(const void* base) {
  auto found = std::find(st_buffers.begin(), st_buffers.end(), base);
  if (found == st_buffers.end()) found = st_buffers.insert(found, base);
  return (int)(found - st_buffers.begin());
}

static void st_on_launch() {
  ++st_launches;
  st_epochs.clear();
}

// Inside the grid barrier (lines from 1000000 on) the block barriers are its own.
static void st_on_sync(int scope, int line) {
  if (line >= 1000000) return;
  if (line == st_altered_line) scope = st_altered_scope;
  StEpochs& e = st_epochs[st_who()];
  e.grid += scope >= 3, e.block += scope >= 2, e.warp += scope >= 1;
}

static void st_on_access(const void* base, int64_t offset, int bytes, int how, int line) {
  const char* at = (const char*)base + offset;
  bool write = how & ST_WRITE, shared = how & ST_SHARED_MEMORY;
  StWho who = st_who();
  if (write) {
    uint64_t& h = st_stored[who];
    h = st_mixed(h, (uint64_t)line << 40 ^ (uint64_t)offset);
    for (int b = 0; b < bytes; ++b) h = st_mixed(h, (unsigned char)at[b]);
  }
  if (shared && !write) st_read.insert({who.block, 0, at - (const char*)st_runtime->now->shared, bytes});
  if (!shared && !write) st_read.insert({-1, st_number(base), offset, bytes});
  if (!shared && write) st_written.insert({st_number(base), offset, std::string(at, bytes)});
  if (st_altered_line) {
    StEpochs e = st_epochs[who];
    e.launch = st_launches;
    for (int b = 0; b < bytes; ++b) {
      auto& touches = st_bytes[{shared ? who.block : -1, at + b}];
      touches.push_back({who, e, write});
    }
  }
}

// What every thread has stored, where and in which order, as one number.
extern "C" unsigned long long st_stores() {
  uint64_t all = 0;
  for (auto& [who, h] : st_stored) all += h * (2 * ((uint64_t)who.block * 1024 + who.thread) + 1);
  return all;
}

// All places that are read, as one number.
extern "C" unsigned long long st_reads() {
  uint64_t h = 1;
  for (auto& [block, buffer, offset, bytes] : st_read)
    h = st_mixed(st_mixed(st_mixed(h, (uint64_t)block << 32 | (uint32_t)buffer), offset), bytes);
  return h;
}

// What each place of device memory that is written gets, as one number; 0 when one gets different things.
extern "C" unsigned long long st_results() {
  uint64_t h = 1;
  std::pair<int, int64_t> last(-1, 0);
  for (auto& [buffer, offset, bits] : st_written) {
    if (last == std::make_pair(buffer, offset)) return 0;
    last = {buffer, offset};
    h = st_mixed(st_mixed(h, buffer), offset);
    for (char c : bits) h = st_mixed(h, (unsigned char)c);
  }
  return h;
}

// Pairs of accesses of two threads to one byte, one of them a write, that nothing orders.
extern "C" long long st_conflicts() {
  long long found = 0;
  for (auto& [place, all] : st_bytes) {
    if (std::none_of(all.begin(), all.end(), [](const StTouch& t) { return t.write; })) continue;
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const StTouch &a = all[i], &b = all[j];
        if (!(a.write || b.write) || a.at.launch != b.at.launch || a.at.grid != b.at.grid) continue;
        bool one_block = a.who.block == b.who.block, one_warp = a.who.thread / 32 == b.who.thread / 32;
        if (one_block && (a.at.block != b.at.block || a.who.thread == b.who.thread)) continue;
        if (one_block && one_warp && a.at.warp != b.at.warp) continue;
        ++found;
      }
  }
  return found;
}
