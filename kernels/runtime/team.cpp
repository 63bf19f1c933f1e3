// The thread team of one process: fork and join around kernels, barriers inside them.
//
// A spinning thread reacts in about 0.1 us, a sleeping one in 5 to 120 us; but a thread that spins for ever takes its
// processor from others. So every wait goes through three stages: spin; then look and yield in turns, which costs
// nobody else anything; then sleep.
#include "team.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using Word = std::atomic<uint32_t>;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

void sleep_while(Word &word, uint32_t value) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_all(Word &word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// How long to wait without yielding, in nanoseconds.
constexpr int64_t kSpin = 20000;

// A word that threads wait on. The seq_cst order of `word` and `sleepers` makes a lost wake-up impossible: either the
// sleeper sees the new value, or the writer sees the sleeper.
struct alignas(64) Gate {
    Word word{0};
    Word sleepers{0};

    void open(uint32_t value) {
        word.store(value);
        if (sleepers.load() != 0) wake_all(word);
    }

    // Returns when the word is no longer `value`. Sleeps after `busy_ns` while `active` is set, `idle_ns` after it
    // was not.
    void wait(uint32_t value, const std::atomic<int32_t> &active, int64_t busy_ns, int64_t idle_ns) {
        int64_t begin = 0, idle = 0;
        for (;;) {
            for (int i = 0; i < 32; i++) {
                if (word.load(std::memory_order_acquire) != value) return;
                relax();
            }
            int64_t now = now_ns();
            if (begin == 0) begin = now;
            if (active.load(std::memory_order_relaxed) != 0) {
                idle = 0;
            } else if (idle == 0) {
                idle = now;
            }
            if (idle == 0 ? now - begin >= busy_ns : now - idle >= idle_ns) break;
            if (now - begin >= kSpin) sched_yield();
        }
        sleepers.fetch_add(1);
        while (word.load() == value) sleep_while(word, value);
        sleepers.fetch_sub(1);
    }
};

// Memory of one thread that kernels use as their block buffers; it only grows. Contents do not survive a launch.
struct Block {
    char *data = nullptr;
    int64_t bytes = 0;

    bool reserve(int64_t wanted) {
        if (wanted <= bytes) return true;
        int64_t rounded = (wanted + 4095) / 4096 * 4096;
        void *fresh = nullptr;
        if (posix_memalign(&fresh, 64, size_t(rounded)) != 0) return false;
        free(data);
        data = static_cast<char *>(fresh);
        bytes = rounded;
        return true;
    }
    ~Block() { free(data); }
};

// Thread 0 is whoever calls, so its block belongs to that thread and serial kernels need no lock.
thread_local Block own_block;

std::atomic<uint32_t> forks{0};
pthread_once_t fork_once = PTHREAD_ONCE_INIT;

struct Team;
struct Worker {
    Team *team;
    int32_t thread;
    pthread_t handle;
    Block block;
};

struct Team : st_team {
    int32_t threads;
    int64_t busy_ns;
    int64_t idle_ns;
    Worker *workers = nullptr;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool started = false;
    bool ending = false;
    uint32_t epoch = 0;
    const st_record *record = nullptr;
    std::atomic<int32_t> active{0};  // a run is under way
    int64_t barriers = 0;  // of the running launch, by thread 0
    Gate start;    // generation of the launch
    Gate done;     // generation of the last launch that every worker has finished
    Gate release;  // generation of the barrier
    alignas(64) std::atomic<int32_t> running{0};
    alignas(64) std::atomic<int32_t> arrived{0};
};

void barrier(st_team *base, int32_t thread) {
    Team *team = static_cast<Team *>(base);
    if (thread == 0) team->barriers++;
    if (team->threads == 1) return;
    uint32_t generation = team->release.word.load(std::memory_order_acquire);
    if (team->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == team->threads) {
        team->arrived.store(0, std::memory_order_relaxed);
        team->release.open(generation + 1);
    } else {
        team->release.wait(generation, team->active, team->busy_ns, team->idle_ns);
    }
}

// What a kernel that runs on the calling thread alone gets as its team: nobody to wait for, but its barriers count.
struct Alone : st_team {
    int64_t barriers = 0;
};

void count_barrier(st_team *base, int32_t) { static_cast<Alone *>(base)->barriers++; }

void *work(void *argument) {
    Worker *self = static_cast<Worker *>(argument);
    Team *team = self->team;
    for (uint32_t generation = 0;; generation++) {
        team->start.wait(generation, team->active, team->busy_ns, team->idle_ns);
        if (team->ending) return nullptr;
        const st_record *record = team->record;
        record->kernel(record->buffers, record->args, self->block.data, self->thread, team->threads, team);
        if (team->running.fetch_sub(1, std::memory_order_acq_rel) == 1) team->done.open(generation + 1);
    }
}

void join_workers(Team *team, int32_t count) {
    team->ending = true;
    team->start.open(team->start.word.load() + 1);
    for (int32_t i = 0; i < count; i++) pthread_join(team->workers[i].handle, nullptr);
    team->ending = false;
}

void reset(Team *team) {
    Gate *gates[] = {&team->start, &team->done, &team->release};
    for (Gate *gate : gates) {
        gate->word.store(0);
        gate->sleepers.store(0);
    }
    team->running.store(0);
    team->arrived.store(0);
    team->active.store(0);
    team->started = false;
}

// Starts the workers with all signals blocked: they belong to the threads of the user.
int32_t start_workers(Team *team) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int32_t error = 0;
    int32_t count = 0;
    for (; count < team->threads - 1; count++) {
        Worker &worker = team->workers[count];
        error = pthread_create(&worker.handle, nullptr, work, &worker);
        if (error != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) {
        join_workers(team, count);
        reset(team);
        return error;
    }
    team->started = true;
    return 0;
}

// In the child of a fork only the forking thread lives on: forget the workers and whoever held the lock.
void recover(Team *team) {
    uint32_t current = forks.load(std::memory_order_acquire);
    if (team->epoch == current) return;
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    team->lock = fresh;
    reset(team);
    team->epoch = current;
}

int32_t run_wide(Team *team, const st_record *record) {
    if (!team->started && team->threads > 1) {
        int32_t error = start_workers(team);
        if (error != 0) return error;
    }
    for (int32_t i = 0; i < team->threads - 1; i++) {
        if (!team->workers[i].block.reserve(record->block_bytes)) return ENOMEM;
    }
    uint32_t generation = team->start.word.load(std::memory_order_relaxed);
    team->record = record;
    team->running.store(team->threads - 1, std::memory_order_relaxed);
    if (team->threads > 1) team->start.open(generation + 1);
    record->kernel(record->buffers, record->args, own_block.data, 0, team->threads, team);
    if (team->threads > 1) team->done.wait(generation, team->active, team->busy_ns, team->idle_ns);
    return 0;
}

bool any_wide(const st_record *records, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (records[i].wide != 0) return true;
    }
    return false;
}

// The caller holds the lock when any record is wide.
int32_t run(Team *team, const st_record *records, int64_t count, int64_t *counts) {
    for (int64_t i = 0; i < count; i++) {
        const st_record *record = records + i;
        if (!own_block.reserve(record->block_bytes)) return ENOMEM;
        int64_t barriers;
        if (record->wide != 0) {
            team->barriers = 0;
            int32_t error = run_wide(team, record);
            if (error != 0) return error;
            barriers = team->barriers;
        } else {
            Alone alone;
            alone.barrier = count_barrier;
            record->kernel(record->buffers, record->args, own_block.data, 0, 1, &alone);
            barriers = alone.barriers;
        }
        if (record->counted != 0) {
            counts[0]++;
            counts[1] += barriers;
        }
    }
    return 0;
}

void touch(void *const *buffers, const int64_t *args, char *, int32_t thread, int32_t threads, st_team *) {
    char *data = static_cast<char *>(buffers[0]);
    int64_t lines = args[0] / 64;
    for (int64_t i = lines * thread / threads; i < lines * (thread + 1) / threads; i++) data[i * 64] ^= 1;
}

}  // namespace

extern "C" {

st_team *st_create(int32_t threads, int64_t busy_ns, int64_t idle_ns) {
    pthread_once(&fork_once, [] { pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); }); });
    Team *team = new (std::nothrow) Team;
    Worker *workers = new (std::nothrow) Worker[threads];
    if (team == nullptr || workers == nullptr) {
        delete team;
        delete[] workers;
        return nullptr;
    }
    team->barrier = barrier;
    team->threads = threads;
    team->busy_ns = busy_ns;
    team->idle_ns = idle_ns;
    team->epoch = forks.load();
    team->workers = workers;
    for (int32_t i = 0; i < threads - 1; i++) {
        workers[i].team = team;
        workers[i].thread = i + 1;
    }
    return team;
}

void st_destroy(st_team *base) {
    Team *team = static_cast<Team *>(base);
    recover(team);
    if (team->started) join_workers(team, team->threads - 1);
    delete[] team->workers;
    delete team;
}

int32_t st_run(st_team *base, const st_record *records, int64_t count, int64_t *counts) {
    Team *team = static_cast<Team *>(base);
    if (!any_wide(records, count)) return run(team, records, count, counts);
    recover(team);
    pthread_mutex_lock(&team->lock);
    team->active.store(1, std::memory_order_relaxed);
    int32_t error = run(team, records, count, counts);
    team->active.store(0, std::memory_order_relaxed);
    pthread_mutex_unlock(&team->lock);
    return error;
}

int64_t st_time(st_team *base, const st_record *records, int64_t count, int64_t repeats, int64_t batch, char *evict,
                int64_t evict_bytes, int64_t limit_ns, int64_t *ns) {
    Team *team = static_cast<Team *>(base);
    recover(team);
    pthread_mutex_lock(&team->lock);
    team->active.store(1, std::memory_order_relaxed);
    void *buffers[] = {evict};
    st_record eviction = {touch, buffers, &evict_bytes, 0, 1, 0};
    int64_t taken = 0, total = 0, counts[2] = {0, 0};
    int32_t error = 0;
    while (error == 0 && taken < repeats && total <= limit_ns) {
        if (evict != nullptr) error = run(team, &eviction, 1, counts);
        int64_t begin = now_ns();
        for (int64_t i = 0; error == 0 && i < batch; i++) error = run(team, records, count, counts);
        ns[taken] = now_ns() - begin;
        total += ns[taken++];
    }
    team->active.store(0, std::memory_order_relaxed);
    pthread_mutex_unlock(&team->lock);
    return error != 0 ? -error : taken;
}
}
