// The emulator's runtime: runs a grid of threads as fibers of one host thread and looks at every access.

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

static const char* where_waits(State s) {
  switch (s) {
    case kAtWarp: return "a warp synchronisation";
    case kAtShuffle: return "a shuffle";
    case kAtBlock: return "a block barrier";
    case kPolling: return "a grid barrier";
    default: return "nothing";
  }
}

// --- findings

void Emulator::report(Kind kind, int line, const char* text, bool terminal) {
  for (const StFinding& f : findings)
    if (f.kind == kind && f.line == line && !terminal) return;  // one of a kind and place is enough
  StFinding f{kind, line, block ? (int32_t)block->number : -1, thread ? thread->number : -1,
              block ? (int32_t)block->grid_epoch : 0, terminal, {}};
  snprintf(f.text, sizeof f.text, "%s", text);
  findings.push_back(f);
  if (!terminal && (int)findings.size() >= launch->most_findings) stop(kLimit, line, "too many findings");
}

// Ends the launch. Called by a thread, it does not come back.
void Emulator::stop(Kind kind, int line, const char* text) {
  if (!stopped) {
    stopped = true;
    report(kind, line, text, true);
  }
  if (thread) {
    Context nowhere;
    switch_context(&nowhere, &scheduler);
  }
}

// --- threads wait and wake

void Emulator::wait(State state, int line) {
  thread->state = state;
  thread->line = line;
  switch_context(&thread->context, &scheduler);
}

void Emulator::wake(Thread& t) {
  t.state = kReady;
  block->ready.push_back(t.number);
}

void Emulator::resume(Thread& t) {
  thread = &t;
  now.thread = t.number;
  if (t.state == kNew) {
    t.stack = stacks.take();
    make_context(&t.context, t.stack, Stacks::kBytes, trampoline);
  }
  t.state = kReady;
  switch_context(&scheduler, &t.context);
  thread = nullptr;
  if (t.state == kDone) {
    stacks.give(t.stack);
    t.stack = nullptr;
  }
}

void Emulator::trampoline() {
  Emulator& e = *running;
  e.launch->kernel(e.launch->at);
  e.finish(*e.thread);
}

void Emulator::finish(Thread& t) {
  t.state = kDone;
  ++block->exited;
  if (++warp_of(t).exited + warp_of(t).at_block == 32) merge_logs(t);
  if (warp_of(t).arrived) stop(kExited, 0, "a thread exits while others of its warp wait for it");
  if (block->arrived) stop(kExited, 0, "a thread exits while others of its block wait for it at a barrier");
  Context nowhere;
  switch_context(&nowhere, &scheduler);
}

// --- synchronisation

void Emulator::arrive_warp(State state, int line) {
  step();
  Warp& w = warp_of(*thread);
  int first = thread->number & ~31;
  if (w.exited) stop(kExited, line, "a lane of the warp has exited");
  if (w.arrived) {
    const Thread& other = *std::find_if(&block->threads[first], &block->threads[first] + 32, [](const Thread& t) {
      return t.state == kAtWarp || t.state == kAtShuffle;
    });
    if (other.state != state || other.line != line || (state == kAtShuffle && other.mask != thread->mask)) {
      char text[200];
      snprintf(text, sizeof text, "at %s, while thread %d of its warp waits at %s in line %d%s", where_waits(state),
               other.number, where_waits(other.state), other.line, other.line == line ? " with another mask" : "");
      stop(kDivergence, line, text);
    }
  }
  if (++w.arrived < 32) return wait(state, line);
  w.arrived = 0;
  thread->state = state;
  merge_logs(*thread);
  Thread* lanes = &block->threads[first];
  if (state == kAtShuffle) {
    uint64_t given[32];
    for (int l = 0; l < 32; ++l) given[l] = lanes[l].value;
    for (int l = 0; l < 32; ++l) lanes[l].value = given[(l ^ thread->mask) & 31];
  } else {
    w.segment = 0;
  }
  for (int l = 0; l < 32; ++l)
    if (&lanes[l] != thread) wake(lanes[l]);
  wake(*thread);
  wait(kReady, line);
}

void Emulator::sync_warp(int line) { arrive_warp(kAtWarp, line); }

uint64_t Emulator::shuffle(uint64_t value, int mask, int line) {
  if (mask <= 0 || mask > 31) stop(kDivergence, line, "a shuffle's mask must be 1 to 31");
  thread->value = value;
  thread->mask = mask;
  arrive_warp(kAtShuffle, line);
  return thread->value;
}

void Emulator::sync_block(int line) {
  step();
  if (block->exited) stop(kExited, line, "at a block barrier, while threads of the block have exited");
  if (block->arrived) {
    const Thread& other =
        *std::find_if(block->threads.begin(), block->threads.end(), [](const Thread& t) { return t.state == kAtBlock; });
    if (other.line != line || other.grid_line != thread->grid_line) {
      char text[200];
      snprintf(text, sizeof text, "at a block barrier, while thread %d of its block waits at that in line %d",
               other.number, other.grid_line ? other.grid_line : other.line);
      stop(kDivergence, thread->grid_line ? thread->grid_line : line, text);
    }
  }
  if (++warp_of(*thread).at_block == 32) merge_logs(*thread);
  if (++block->arrived < launch->threads) return wait(kAtBlock, line);
  block->arrived = 0;
  ++block->epoch;
  for (Warp& w : block->warps) w.segment = w.at_block = 0;
  for (Thread& t : block->threads) wake(t);
  wait(kReady, line);
}

void Emulator::enter_grid(int line) {
  if (grid_arrivals.size() <= thread->grids) grid_arrivals.resize(thread->grids + 1);
  ++grid_arrivals[thread->grids];
  thread->grid_line = line;
  thread->in_grid = true;
  thread->enter_epoch = block->epoch;
}

// The barrier's own text decided to let the thread go; whether it was right is known here. The first thread of a block
// to leave moves the block into its next phase.
void Emulator::leave_grid(int line) {
  if (block->poll_epoch >= block->epoch)
    report(kRace, line, "a thread leaves the grid barrier before its block knows that all have arrived");
  if (grid_arrivals[thread->grids] != launch->blocks * launch->threads)
    report(kRace, line, "a thread leaves the grid barrier before all threads of the grid have arrived");
  thread->in_grid = false;
  thread->grid_line = 0;
  if (thread->grids++ != block->grid_epoch) return;
  ++block->grid_epoch;
  if (launch->count) counts.visit((int)block->grid_epoch);
  for (Warp& w : block->warps) w.segment = 0;
}

unsigned Emulator::add(unsigned* word, unsigned value, int line) {
  step();
  if (thread->in_grid && block->epoch <= thread->enter_epoch)
    report(kRace, line, "a block arrives at the grid barrier before all its threads do");
  unsigned old = *word;
  *word = old + value;
  return old;
}

unsigned Emulator::acquire(const unsigned* word, int) {
  step();
  thread->word = word;
  thread->seen = *word;
  block->poll_epoch = block->epoch;
  return *word;
}

void Emulator::pause(int line) {
  step();
  if (*thread->word != thread->seen) return;
  block->polling.push_back(thread->number);
  wait(kPolling, line);
}

// --- accesses

Region* Emulator::find(const void* base) {
  Known& k = known[((uintptr_t)base >> 4) % 64];
  if (k.base == base) return k.region;
  for (Region& r : regions)
    if ((uintptr_t)base >= r.base && (uintptr_t)base - r.base < r.bytes + !r.bytes) {
      k = {base, &r};
      return &r;
    }
  return nullptr;
}

void* Emulator::access(const void* base, int64_t offset, int bytes, int how, int line) {
  if (++steps > launch->steps) step();
  Region* region = how & ST_SHARED_MEMORY ? &block->shared : find(base);
  if (!region) {
    report(kOutOfBounds, line, "the pointer belongs to no buffer");
    return nullptr;
  }
  uint64_t at = (uintptr_t)base + (uint64_t)offset - region->base;
  if (at > region->bytes || (uint64_t)bytes > region->bytes - at) {
    char text[200];
    snprintf(text, sizeof text, "%s %d bytes at byte %lld of %llu of %s %d", how & ST_WRITE ? "writes" : "reads", bytes,
             (long long)at, (unsigned long long)region->bytes, region->position < 0 ? "shared memory" : "buffer",
             region->position);
    report(kOutOfBounds, line, text);
    return nullptr;
  }
  if ((region->base + at) & (uint64_t)(bytes - 1)) report(kMisaligned, line, "the address is not a multiple of the access");
  if (launch->check) check(*region, at, bytes, how, line);
  if (launch->count) {
    int write = how & ST_WRITE;
    if (region->sectors) counts.touch(region->sectors, region->position, at, bytes, write);
    counts.add(block->logs[thread->number],
               {at, (uint32_t)line, (int16_t)region->position, (uint8_t)bytes, (uint8_t)write});
  }
  return (void*)(region->base + at);
}

void Emulator::check(Region& region, uint64_t at, int bytes, int how, int line) {
  if (how & ST_WRITE && !region.writable) report(kConst, line, "writes a buffer that the kernel takes as const");
  while ((int)(1u << region.granule) > bytes) region.refine(region.granule - 1);
  Warp& w = warp_of(*thread);
  if (!w.segment) {
    if (next_segment == kMostSegments) stop(kLimit, line, "more synchronisations than the shadow memory can tell apart");
    w.segment = next_segment++;
    segments[w.segment] = {(uint32_t)block->number, block->epoch, (uint16_t)(thread->number / 32),
                           (uint16_t)block->grid_epoch};
  }
  Mark mark = w.segment << kCodeBits | (thread->number & 31);
  uint64_t last = (at + bytes - 1) >> region.granule;
  for (uint64_t g = at >> region.granule; g <= last; ++g) {
    Cell& cell = region.cells[g];
    if (how & ST_WRITE ? cell.write == mark && !cell.read : cell.write == mark && cell.read == mark) continue;
    check_cell(region, cell, mark, how, line);
  }
}

// Whether all that `mark` names happened before what the running thread does now, in segment `mine`.
bool Emulator::ordered(Mark mark, uint32_t mine) const {
  uint32_t theirs = mark >> kCodeBits, code = mark & (kBlocks | 31);
  if (theirs < first_segment) return true;  // an earlier launch
  const Segment &a = segments[theirs], &b = segments[mine];
  if (a.grid_epoch != b.grid_epoch) return true;
  if (code == kBlocks || a.block != b.block) return false;
  if (a.block_epoch != b.block_epoch) return true;
  if (code == kWarps || a.warp != b.warp) return false;
  return theirs != mine || code == (uint32_t)(thread->number & 31);
}

// Readers so far, none ordered before this one, and this one, as a mark.
Mark Emulator::merge(Mark read, Mark mine) const {
  const Segment &a = segments[read >> kCodeBits], &b = segments[mine >> kCodeBits];
  uint32_t code = read & 63, rest = mine & ~63u;
  if (code == kBlocks || a.block != b.block) return rest | kBlocks;
  if (code == kWarps || a.warp != b.warp) return rest | kWarps;
  return rest | kLanes;
}

void Emulator::check_cell(Region& region, Cell& cell, Mark mark, int how, int line) {
  uint32_t mine = mark >> kCodeBits;
  bool shared = region.position < 0, write = how & ST_WRITE;
  Mark by = cell.write;
  if (shared && by && ((by >> kCodeBits) < first_segment || segments[by >> kCodeBits].block != block->number)) {
    cell = {0, 0};  // what an earlier block left behind
    by = 0;
  }
  if (shared && cell.read && ((cell.read >> kCodeBits) < first_segment ||
                              segments[cell.read >> kCodeBits].block != block->number))
    cell.read = 0;
  const char* name = shared ? "shared memory" : "a buffer";
  char text[200];
  if (by && !ordered(by, mine)) {
    const Segment& s = segments[by >> kCodeBits];
    snprintf(text, sizeof text, "%s %s that thread %d of block %u writes, with no synchronisation between",
             write ? "writes" : "reads", name, s.warp * 32 + (int)(by & 31), s.block);
    report(kRace, line, text);
  } else if (!write && !by && !region.initialised) {
    snprintf(text, sizeof text, "reads %s where nothing was written", name);
    report(kUninitialised, line, text);
  } else if (!write && !shared && !(how & ST_CACHE_GLOBAL) && by && (by >> kCodeBits) >= first_segment &&
             segments[by >> kCodeBits].block != block->number) {
    report(kStale, line, "reads by the first-level cache what another block has written in this launch");
  }
  if (write) {
    if (cell.read && !ordered(cell.read, mine)) {
      const Segment& s = segments[cell.read >> kCodeBits];
      snprintf(text, sizeof text, "writes %s that others (block %u, warp %d) read, with no synchronisation between", name,
               s.block, s.warp);
      report(kRace, line, text);
    }
    cell = {mark, 0};
  } else {
    cell.read = cell.read && !ordered(cell.read, mine) ? merge(cell.read, mark) : mark;
  }
}

// --- blocks

std::unique_ptr<Block> Emulator::start_block(int64_t number) {
  std::unique_ptr<Block> b;
  if (spare.empty()) {
    b = std::make_unique<Block>();
    b->threads.resize(launch->threads);
    b->warps.resize(launch->threads / 32);
    b->memory.resize(launch->shared_bytes + 16);
    b->shared.bytes = launch->shared_bytes;
    b->shared.base = ((uintptr_t)b->memory.data() + 15) & ~(uintptr_t)15;
    b->shared.position = -1;
    b->shared.writable = true;
    b->shared.granule = 2;
    b->shared.map_cells();
  } else {
    b = std::move(spare.back());
    spare.pop_back();
  }
  b->number = number;
  b->epoch = b->grid_epoch = b->poll_epoch = 0;
  b->arrived = b->exited = 0;
  b->ready.clear();
  b->polling.clear();
  b->next_ready = 0;
  memset(b->memory.data(), 0xff, b->memory.size());
  if (launch->count) {
    b->logs.resize(launch->threads);
    counts.visit(0);
  }
  for (Warp& w : b->warps) w = {};
  for (int t = 0; t < launch->threads; ++t) {
    b->threads[t] = Thread{};
    b->threads[t].number = (uint16_t)t;
    b->ready.push_back((uint16_t)t);
  }
  return b;
}

// Runs a block until all its threads wait or are done.
void Emulator::run_block(Block& b) {
  block = &b;
  now.block = (int)b.number;
  now.shared = (unsigned char*)b.shared.base;
  while (b.next_ready < b.ready.size() && !stopped) {
    if (launch->seed) std::swap(b.ready[b.next_ready], b.ready[b.next_ready + draw() % (b.ready.size() - b.next_ready)]);
    resume(b.threads[b.ready[b.next_ready++]]);
    if (b.next_ready == b.ready.size()) {
      b.ready.clear();
      b.next_ready = 0;
    }
  }
  block = nullptr;
}

// Wakes the threads whose polled word has changed.
bool Emulator::poll(Block& b) {
  std::vector<uint16_t> waiting;
  waiting.swap(b.polling);
  block = &b;
  for (uint16_t t : waiting) {
    Thread& it = b.threads[t];
    if (*it.word != it.seen) wake(it);
    else b.polling.push_back(t);
  }
  block = nullptr;
  return b.next_ready < b.ready.size();
}

void Emulator::run(const StLaunch& asked) {
  static const StRuntime runtime = {
      &running->now,
      [](const void* b, int64_t o, int n, int h, int l) { return running->access(b, o, n, h, l); },
      [](uint64_t v, int m, int l) { return running->shuffle(v, m, l); },
      [](int l) { running->sync_warp(l); },
      [](int l) { running->sync_block(l); },
      [](int l) { running->enter_grid(l); },
      [](int l) { running->leave_grid(l); },
      [](unsigned* w, unsigned v, int l) { return running->add(w, v, l); },
      [](const unsigned* w, int l) { return running->acquire(w, l); },
      [](int l) { running->pause(l); },
      [](int64_t i, int l) { running->array_bounds(i, l); },
  };
  StRuntime own = runtime;
  own.now = &now;
  launch = &asked;
  asked.bind(&own);
  stopped = false;
  steps = 0;
  random = asked.seed * 0x9e3779b97f4a7c15ull + 1;
  first_segment = next_segment;
  grid_arrivals.clear();
  spare.clear();
  now.grid = (int)asked.blocks;
  for (size_t i = 0; i < regions.size(); ++i) regions[i].writable = asked.writable[i];
  counts.start((int)regions.size());
  if (asked.count)
    for (Region& r : regions) {
      if (r.sectors) munmap(r.sectors, r.sector_count() * sizeof(Sector));
      r.sectors = (Sector*)map_zeros(r.sector_count() * sizeof(Sector));
    }

  std::vector<std::unique_ptr<Block>> active;
  int64_t next = 0, done = 0;
  while (done < asked.blocks && !stopped) {
    bool moved = false;
    for (size_t i = 0; i < active.size() && !stopped; ++i)
      if (poll(*active[i])) {
        moved = true;
        run_block(*active[i]);
      }
    if (next < asked.blocks && (int)active.size() < asked.resident && !stopped) {
      moved = true;
      active.push_back(start_block(next++));
      run_block(*active.back());
    }
    for (size_t i = 0; i < active.size();)
      if (active[i]->exited == asked.threads) {
        ++done;
        spare.push_back(std::move(active[i]));
        active.erase(active.begin() + (long)i);
      } else {
        ++i;
      }
    if (!moved && !stopped) explain(active);
  }
  for (auto& b : active) {
    for (Thread& t : b->threads)
      if (t.stack) stacks.give(t.stack);
    spare.push_back(std::move(b));
  }
  for (auto& b : spare) b->shared.unmap();
  spare.clear();
  launch = nullptr;
}

// No thread can go on: says who waits where.
void Emulator::explain(const std::vector<std::unique_ptr<Block>>& active) {
  char text[240];
  int used = 0;
  Kind kind = kDeadlock;
  int line = 0;
  for (const auto& b : active) {
    std::map<std::pair<int, int>, std::pair<int, int>> places;  // (state, line) -> threads, the first of them
    for (const Thread& t : b->threads)
      if (t.state != kDone) {
        int at = t.grid_line ? t.grid_line : t.line;
        auto& place = places.emplace(std::make_pair((int)t.state, at), std::make_pair(0, (int)t.number)).first->second;
        ++place.first;
        if (!line) line = at, block = b.get(), thread = nullptr;
      }
    if (places.size() > 1 && !std::any_of(places.begin(), places.end(), [](auto& p) { return p.first.first == kPolling; }))
      kind = kDivergence;
    for (const auto& [place, threads] : places)
      if (used < (int)sizeof text - 100)
        used += snprintf(text + used, sizeof text - used, "%sblock %lld: %d threads from %d on wait at %s in line %d",
                         used ? "; " : "", (long long)b->number, threads.first, threads.second,
                         where_waits((State)place.first), place.second);
  }
  stop(kind, line, text);
  block = nullptr;
}

// --- what Python calls

extern "C" {

// Null when there is not enough memory.
void* st_open(const StBuffer* buffers, int count) try {
  auto e = std::make_unique<Emulator>();
  for (int i = 0; i < count; ++i) {
    Region r{};
    r.base = (uintptr_t)buffers[i].base;
    r.bytes = buffers[i].bytes;
    r.position = i;
    r.initialised = buffers[i].initialised;
    while (1 << (r.granule + 1) <= buffers[i].element) ++r.granule;
    r.map_cells();
    e->regions.push_back(r);
  }
  return e.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

// The number of findings so far, or -1 when there is not enough memory.
int st_launch(void* emulator, const StLaunch* launch) {
  running = (Emulator*)emulator;
  int found = -1;
  try {
    running->run(*launch);
    found = (int)running->findings.size();
  } catch (const std::bad_alloc&) {
  }
  running = nullptr;
  return found;
}

void st_findings(void* emulator, StFinding* into) {
  auto& all = ((Emulator*)emulator)->findings;
  std::copy(all.begin(), all.end(), into);
}

// Counters of the last launch; `into` null: how many there are.
int st_counts(void* emulator, StCounts* into) {
  auto& all = ((Emulator*)emulator)->counts.all;
  if (into) std::copy(all.begin(), all.end(), into);
  return (int)all.size();
}

void st_close(void* emulator) { delete (Emulator*)emulator; }
}
