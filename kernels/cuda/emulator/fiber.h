// Fibers: threads of execution that switch by hand, on small stacks from a pool.

#if defined(__x86_64__)
// Saves what a callee must keep, and swaps stacks. System V ABI; the floating-point control words never change here.
extern "C" void st_switch(void** save, void* load);
asm(R"(
.text
.globl st_switch
.hidden st_switch
.type st_switch,@function
st_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size st_switch,.-st_switch
)");
using Context = void*;
static inline void switch_context(Context* save, Context* load) { st_switch(save, *load); }
static void make_context(Context* context, char* stack, size_t bytes, void (*entry)()) {
  // As if `entry` had been called: at its first instruction the stack is 8 off a multiple of 16.
  void** top = (void**)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
  *--top = nullptr;
  *--top = (void*)entry;
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  *context = top;
}
#else
#include <ucontext.h>
using Context = ucontext_t;
static inline void switch_context(Context* save, Context* load) { swapcontext(save, load); }
static void make_context(Context* context, char* stack, size_t bytes, void (*entry)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}
#endif

// Stacks are mapped many at a time; those given back last are given out first, so that threads that never wait share
// one warm stack. The first ones have a page without access below them: an overflow stops the process rather than
// spoiling a neighbour. (A process may have some 65,000 maps, so not all of them can.)
struct Stacks {
  static constexpr size_t kBytes = 64 << 10, kPage = 4096, kBatch = 64, kGuarded = 16 << 10;
  static constexpr size_t kKept = 1024;
  std::vector<char*> free, batches;

  char* take() {
    if (free.empty()) grow();
    char* stack = free.back();
    free.pop_back();
    return stack;
  }
  void give(char* stack) { free.push_back(stack); }

  // Between launches: gives back the memory that only a large grid needs.
  void trim() {
    if (batches.size() * kBatch <= kKept) return;
    for (char* memory : batches) munmap(memory, kBatch * kBytes);
    free.clear();
    batches.clear();
  }

 private:
  void grow() {
    char* memory = (char*)mmap(nullptr, kBatch * kBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == (char*)MAP_FAILED) throw std::bad_alloc();
    batches.push_back(memory);
    bool guarded = batches.size() * kBatch <= kGuarded;
    for (size_t k = 0; k < kBatch; ++k) {
      if (guarded) mprotect(memory + k * kBytes, kPage, PROT_NONE);
      free.push_back(memory + k * kBytes);
    }
  }
};
