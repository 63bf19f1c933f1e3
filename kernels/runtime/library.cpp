// Calls ONNX Runtime through its C interface, a table of functions whose order never changes (entries are only
// added).
#include "library.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <vector>

namespace {

struct Base {
    void *const *(*api)(uint32_t version);
    const char *(*version)();
};

// Positions in OrtApi, named as there.
enum Entry {
    GetErrorMessage = 2,
    CreateEnv = 3,
    CreateSessionFromArray = 8,
    Run = 9,
    CreateSessionOptions = 10,
    DisableMemPattern = 17,
    SetSessionGraphOptimizationLevel = 23,
    SetIntraOpNumThreads = 24,
    CreateTensorWithDataAsOrtValue = 49,
    CreateCpuMemoryInfo = 69,
    ReleaseStatus = 93,
    ReleaseSession = 95,
    ReleaseValue = 96,
    ReleaseSessionOptions = 100,
    AddSessionConfigEntry = 130,
    CreateAndRegisterAllocator = 144,
    CreateArenaCfg = 156,
    AddExternalInitializers = 210,
};

constexpr uint32_t kVersion = 20;

void *const *api = nullptr;
void *environment = nullptr;
void *memory = nullptr;
char open_error[256];
bool ready = false;

using Status = void *;

// A session and what it was made from: the handles of its constants must live as long, and the child of a fork
// makes a session with threads of its own again.
struct Session {
    void *handle = nullptr;
    std::vector<void *> constants;
    std::vector<const char *> names;
    std::vector<char> model;
    int threads = 1;
    int level = 0;
    uint32_t epoch = 0;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};

std::atomic<uint32_t> child_forks{0};

template <typename... Args>
Status call(Entry entry, Args... args) {
    return reinterpret_cast<Status (*)(Args...)>(api[entry])(args...);
}

void release(Entry entry, void *object) {
    if (object != nullptr) reinterpret_cast<void (*)(void *)>(api[entry])(object);
}

// Frees the status; true when it was a failure, whose message is then in `error`.
bool failed(Status status, char *error, size_t bytes) {
    if (status == nullptr) return false;
    auto message = reinterpret_cast<const char *(*)(Status)>(api[GetErrorMessage])(status);
    snprintf(error, bytes, "%s", message);
    release(ReleaseStatus, status);
    return true;
}

// Makes the session's handle from its other members.
Status create(Session *session) {
    void *options = nullptr;
    Status status = call(CreateSessionOptions, &options);
    if (status == nullptr) status = call(SetIntraOpNumThreads, options, session->threads);
    if (status == nullptr) status = call(SetSessionGraphOptimizationLevel, options, session->level);
    if (status == nullptr) status = call(DisableMemPattern, options);
    if (status == nullptr) status = call(AddSessionConfigEntry, options, "session.use_env_allocators", "1");
    if (status == nullptr) status = call(AddSessionConfigEntry, options, "session.intra_op.allow_spinning", "0");
    if (status == nullptr && !session->constants.empty()) {
        status = call(AddExternalInitializers, options, static_cast<const char *const *>(session->names.data()),
                      static_cast<void *const *>(session->constants.data()), session->constants.size());
    }
    if (status == nullptr) {
        status = call(CreateSessionFromArray, static_cast<const void *>(environment),
                      static_cast<const void *>(session->model.data()), session->model.size(),
                      static_cast<const void *>(options), &session->handle);
    }
    release(ReleaseSessionOptions, options);
    return status;
}

// The handle to run; the one of a parent process with threads of its own is given up, since its threads are gone.
Status handle_of(Session *session, void **handle) {
    Status status = nullptr;
    if (session->threads > 1) {
        pthread_mutex_lock(&session->lock);
        uint32_t current = child_forks.load(std::memory_order_relaxed);
        if (session->epoch != current) {
            status = create(session);
            if (status == nullptr) session->epoch = current;
        }
        pthread_mutex_unlock(&session->lock);
    }
    *handle = session->handle;
    return status;
}

Status make_value(const st_operand &operand, void *const *buffers, void **value) {
    char *data = operand.buffer < 0 ? operand.data : static_cast<char *>(buffers[operand.buffer]);
    return call(CreateTensorWithDataAsOrtValue, static_cast<const void *>(memory),
                static_cast<void *>(data + operand.offset), size_t(operand.bytes), operand.dims, size_t(operand.rank),
                int(operand.type), value);
}

bool run_call(const st_call &item, void *const *buffers, char *error, size_t bytes) {
    int64_t count = item.inputs + item.outputs;
    std::vector<void *> values(count);
    std::vector<const char *> names(count);
    Status status = nullptr;
    for (int64_t i = 0; i < count && status == nullptr; i++) {
        names[i] = item.operands[i].name;
        status = make_value(item.operands[i], buffers, &values[i]);
    }
    void *session = nullptr;
    if (status == nullptr) status = handle_of(static_cast<Session *>(item.session), &session);
    if (status == nullptr) {
        status = call(Run, session, static_cast<const void *>(nullptr),
                      static_cast<const char *const *>(names.data()), static_cast<void *const *>(values.data()),
                      size_t(item.inputs), static_cast<const char *const *>(names.data() + item.inputs),
                      size_t(item.outputs), values.data() + item.inputs);
    }
    for (void *value : values) release(ReleaseValue, value);
    return !failed(status, error, bytes);
}

Status set_up() {
    pthread_atfork(nullptr, nullptr, [] { child_forks.fetch_add(1); });
    Status status = call(CreateEnv, 3, "stitchtune", &environment);
    if (status == nullptr) status = call(CreateCpuMemoryInfo, 0, 0, &memory);
    // One arena for the work memory of all sessions, since each of its own would keep its peak; it grows by what is
    // asked for (1) instead of by powers of two.
    void *arena_memory = nullptr, *arena = nullptr;
    if (status == nullptr) status = call(CreateCpuMemoryInfo, 1, 0, &arena_memory);
    if (status == nullptr) status = call(CreateArenaCfg, size_t(0), 1, -1, -1, &arena);
    if (status == nullptr) {
        status = call(CreateAndRegisterAllocator, environment, static_cast<const void *>(arena_memory),
                      static_cast<const void *>(arena));
    }
    return status;
}

// Null, or why the library cannot be used.
const char *open_library(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return dlerror();
    auto base = reinterpret_cast<const Base *(*)()>(dlsym(handle, "OrtGetApiBase"));
    if (base == nullptr) return dlerror();
    api = base()->api(kVersion);
    if (api == nullptr) return "this version of ONNX Runtime is too old";
    return failed(set_up(), open_error, sizeof open_error) ? open_error : nullptr;
}

}  // namespace

extern "C" {

const char *st_library_open(const char *path) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const char *reason = ready ? nullptr : open_library(path);
    ready = reason == nullptr;
    pthread_mutex_unlock(&lock);
    return reason;
}

void *st_session_create(const void *model, int64_t bytes, const st_operand *constants, int64_t count, int64_t threads,
                        int64_t level, char *error, int64_t error_bytes) {
    Session *session = new Session;
    session->model.assign(static_cast<const char *>(model), static_cast<const char *>(model) + bytes);
    session->threads = int(threads);
    session->level = int(level);
    session->epoch = child_forks.load();
    session->constants.resize(count);
    Status status = nullptr;
    for (int64_t i = 0; i < count && status == nullptr; i++) {
        session->names.push_back(constants[i].name);
        status = make_value(constants[i], nullptr, &session->constants[i]);
    }
    if (status == nullptr) status = create(session);
    if (!failed(status, error, size_t(error_bytes))) return session;
    st_session_release(session);
    return nullptr;
}

void st_session_release(void *object) {
    Session *session = static_cast<Session *>(object);
    release(ReleaseSession, session->handle);
    for (void *constant : session->constants) release(ReleaseValue, constant);
    delete session;
}

void st_library_run(void *const *buffers, const int64_t *args, char *, int32_t thread, int32_t threads, st_team *) {
    auto library = reinterpret_cast<const st_library *>(args);
    for (int64_t i = thread; i < library->count; i += threads) {
        char reason[768];
        if (run_call(library->calls[i], buffers, reason, sizeof reason)) continue;
        st_failure *failure = library->failure;
        if (__atomic_exchange_n(&failure->failed, 1, __ATOMIC_ACQ_REL) != 0) continue;
        snprintf(failure->message, sizeof failure->message, "%s: %s", library->name, reason);
    }
}
}
