// The team: worker threads that run kernels, and the launch records that describe one call of a kernel.
// Everything here has C linkage and is called from Python through ctypes, with the GIL released.
#pragma once
#include <cstdint>

extern "C" {

// What a kernel sees of its team. `thread` is the caller's own number, 0 <= thread < threads.
struct st_team {
    void (*barrier)(st_team *, int32_t thread);
};

typedef void (*st_kernel)(void *const *buffers, const int64_t *args, char *block, int32_t thread, int32_t threads,
                          st_team *team);

// One prepared call of a kernel. `wide`: 1 runs it on every thread of the team, 0 on the calling thread alone.
// `counted`: 1 when it is a kernel of a plan, 0 for library ops and copies.
struct st_record {
    st_kernel kernel;
    void *const *buffers;
    const int64_t *args;
    int64_t block_bytes;
    int32_t wide;
    int32_t counted;
};

// A team of `threads` (the caller of a run is thread 0, workers start at the first wide launch). A thread that waits
// for others sleeps after `busy_ns` within a run and `idle_ns` after one. Null when out of memory.
st_team *st_create(int32_t threads, int64_t busy_ns, int64_t idle_ns);

// Ends the workers and frees the team. Nobody may be running on it.
void st_destroy(st_team *team);

// Runs the records one after the other; each starts when the one before is done on every thread. Adds the launches
// and barriers of counted records to counts[0] and counts[1]. Returns 0, or an errno (ENOMEM, EAGAIN: no block
// memory, no threads) with some of the records not run. Callers take turns.
int32_t st_run(st_team *team, const st_record *records, int64_t count, int64_t *counts);

// Times the records: `repeats` samples of `batch` runs each, nanoseconds per sample into `ns`. When `evict` is not
// null, its `evict_bytes` are written by all threads before each sample, outside the timed part. Stops early once the
// samples add up to more than `limit_ns`. Returns the number of samples taken, or a negative errno.
int64_t st_time(st_team *team, const st_record *records, int64_t count, int64_t repeats, int64_t batch, char *evict,
                int64_t evict_bytes, int64_t limit_ns, int64_t *ns);
}
