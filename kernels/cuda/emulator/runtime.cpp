// What Python calls.

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
