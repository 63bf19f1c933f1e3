// Threads wait for each other and wake; what can go wrong with that.

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
