// Blocks come and go until the grid is done.

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
