// Library ops inside a sequence of launches: ONNX Runtime sessions, called by the threads of the team.
//
// A library op is a list of calls over slices of its operands. The team's threads share out the calls, so no second
// thread pool wakes up, and nothing returns to Python in between.
#pragma once
#include "team.h"

extern "C" {

// One tensor of a call: `buffers[buffer] + offset`, or `data` when `buffer` is negative (a constant).
struct st_operand {
    int64_t buffer;
    char *data;
    int64_t offset;
    int64_t bytes;
    int64_t type;  // ONNX TensorProto.DataType
    int64_t rank;
    const int64_t *dims;
    const char *name;
};

// One run of a session over `inputs + outputs` operands.
struct st_call {
    void *session;
    const st_operand *operands;
    int64_t inputs;
    int64_t outputs;
};

// Where the first failure of a run leaves its message.
struct st_failure {
    int64_t failed;
    char message[1016];
};

// The `args` of a library record.
struct st_library {
    const st_call *calls;
    int64_t count;
    const char *name;
    st_failure *failure;
};

// Loads ONNX Runtime's shared library. Returns null, or why it cannot be used.
const char *st_library_open(const char *path);

// A session of a serialized ONNX model. With `threads` 1 it runs in the calling thread only, else on a pool of its
// own that never spins. `constants` give the external initializers of the model; their memory must outlive the
// session. Null on failure, with the reason in `error`.
void *st_session_create(const void *model, int64_t bytes, const st_operand *constants, int64_t count, int64_t threads,
                        int64_t level, char *error, int64_t error_bytes);
void st_session_release(void *session);

// The kernel of a library record: `args` is the st_library, cast.
void st_library_run(void *const *buffers, const int64_t *args, char *block, int32_t thread, int32_t threads,
                    st_team *team);
}
