// What every access is checked for.

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
  uint32_t theirs = mark >> kCodeBits, code = mark & kCode;
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
  uint32_t code = read & kCode, rest = mine & ~kCode;
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
