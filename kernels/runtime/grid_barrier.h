// A barrier of all blocks of a cooperative launch, in terms of the functions of device.h or of the emulator.
//
// Every block adds to one word: block 0 adds 2^31 less the others, each other block 1, so that the top bit flips when all
// have arrived, and the word is ready for the next barrier as it stands: nobody resets it (the scheme of cooperative
// groups' grid.sync). The block barriers before and behind make one thread's acquire and release hold for its block.
ST_DEVICE void st_sync_grid(unsigned* word) {
  st_sync_block();
  if (st_thread() == 0) {
    const unsigned step = st_block() == 0 ? 0x80000000u - (unsigned)(st_grid() - 1) : 1u;
    const unsigned before = st_atomic_add_acq_rel(word, step);
    while (((st_load_acquire(word) ^ before) & 0x80000000u) == 0) st_pause();
  }
  st_sync_block();
}
