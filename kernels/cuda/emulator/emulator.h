// What CUDA text needs to be compiled by a C++ compiler for the emulator: the words of the language, and the functions
// of runtime/device.h, each of which asks the emulator's runtime. Call sites are line numbers of the text.

#include <cmath>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define ST_DEVICE static inline
#define ST_INLINE_ALWAYS __attribute__((always_inline)) static inline
#define ST_LINE int line = __builtin_LINE()
#ifndef ST_ON_ACCESS  // tests may want to know of each launch, access and synchronisation (scope: 1 warp, 2 block, 3 grid)
#define ST_ON_LAUNCH()
#define ST_ON_ACCESS(base, offset, bytes, how, line)
#define ST_ON_SYNC(scope, line)
#endif

static const StRuntime* st_runtime;
extern "C" void st_bind(const StRuntime* runtime) {
  st_runtime = runtime;
  ST_ON_LAUNCH();
}

ST_INLINE_ALWAYS int st_thread() { return st_runtime->now->thread; }
ST_INLINE_ALWAYS int st_block() { return st_runtime->now->block; }
ST_INLINE_ALWAYS int st_grid() { return st_runtime->now->grid; }
#define ST_SHARED(T, offset) ((T*)(st_runtime->now->shared + (offset)))

template <int N, class T> struct alignas(N * sizeof(T)) st_pack { T x[N]; };
template <class T> struct StSame { using type = T; };

template <class V, class T> ST_INLINE_ALWAYS V st_emulated_load(const T* p, int64_t i, int how, int line) {
  V value{};
  if (const void* at = st_runtime->access(p, i * (int64_t)sizeof(T), sizeof(V), how, line))
    memcpy((void*)&value, at, sizeof(V));
  ST_ON_ACCESS(p, i * (int64_t)sizeof(T), (int)sizeof(V), how, line);
  return value;
}
template <class V, class T> ST_INLINE_ALWAYS void st_emulated_store(T* p, int64_t i, const V& value, int how, int line) {
  if (void* at = st_runtime->access(p, i * (int64_t)sizeof(T), sizeof(V), how | ST_WRITE, line))
    memcpy(at, (const void*)&value, sizeof(V));
  ST_ON_ACCESS(p, i * (int64_t)sizeof(T), (int)sizeof(V), how | ST_WRITE, line);
}

template <class T, class I> ST_INLINE_ALWAYS T st_load(const T* p, I i, ST_LINE) {
  return st_emulated_load<T>(p, i, 0, line);
}
template <class T, class I> ST_INLINE_ALWAYS T st_load_cg(const T* p, I i, ST_LINE) {
  return st_emulated_load<T>(p, i, ST_CACHE_GLOBAL, line);
}
template <class T, class I> ST_INLINE_ALWAYS void st_store(T* p, I i, typename StSame<T>::type v, ST_LINE) {
  st_emulated_store<T>(p, i, v, 0, line);
}
template <int N, class T, class I> ST_INLINE_ALWAYS st_pack<N, T> st_load_pack(const T* p, I i, ST_LINE) {
  return st_emulated_load<st_pack<N, T>>(p, i, 0, line);
}
template <int N, class T, class I> ST_INLINE_ALWAYS st_pack<N, T> st_load_pack_cg(const T* p, I i, ST_LINE) {
  return st_emulated_load<st_pack<N, T>>(p, i, ST_CACHE_GLOBAL, line);
}
template <int N, class T, class I>
ST_INLINE_ALWAYS void st_store_pack(T* p, I i, const typename StSame<st_pack<N, T>>::type& v, ST_LINE) {
  st_emulated_store<st_pack<N, T>>(p, i, v, 0, line);
}
template <class T, class I> ST_INLINE_ALWAYS T st_shared_load(const T* p, I i, ST_LINE) {
  return st_emulated_load<T>(p, i, ST_SHARED_MEMORY, line);
}
template <class T, class I> ST_INLINE_ALWAYS void st_shared_store(T* p, I i, typename StSame<T>::type v, ST_LINE) {
  st_emulated_store<T>(p, i, v, ST_SHARED_MEMORY, line);
}
template <int N, class T, class I> ST_INLINE_ALWAYS st_pack<N, T> st_shared_load_pack(const T* p, I i, ST_LINE) {
  return st_emulated_load<st_pack<N, T>>(p, i, ST_SHARED_MEMORY, line);
}
template <int N, class T, class I>
ST_INLINE_ALWAYS void st_shared_store_pack(T* p, I i, const typename StSame<st_pack<N, T>>::type& v, ST_LINE) {
  st_emulated_store<st_pack<N, T>>(p, i, v, ST_SHARED_MEMORY, line);
}

template <class T> ST_INLINE_ALWAYS T st_shuffle_xor(T v, int mask, ST_LINE) {
  uint64_t bits = 0;
  memcpy(&bits, &v, sizeof(T));
  bits = st_runtime->shuffle(bits, mask, line);
  memcpy(&v, &bits, sizeof(T));
  return v;
}
ST_INLINE_ALWAYS void st_sync_warp(ST_LINE) {
  st_runtime->sync_warp(line);
  ST_ON_SYNC(1, line);
}
ST_INLINE_ALWAYS void st_sync_block(ST_LINE) {
  st_runtime->sync_block(line);
  ST_ON_SYNC(2, line);
}
ST_INLINE_ALWAYS void st_enter_grid(ST_LINE) {
  st_runtime->enter_grid(line);
  ST_ON_SYNC(3, line);
}
ST_INLINE_ALWAYS unsigned st_atomic_add_acq_rel(unsigned* word, unsigned value, ST_LINE) {
  return st_runtime->add(word, value, line);
}
ST_INLINE_ALWAYS unsigned st_load_acquire(const unsigned* word, ST_LINE) { return st_runtime->acquire(word, line); }
ST_INLINE_ALWAYS void st_pause(ST_LINE) { st_runtime->pause(line); }

// What nobody has written to an array in registers: NaN, or -1.
template <class T, int N> ST_INLINE_ALWAYS void st_poison(T (&array)[N]) { memset((void*)array, 0xff, sizeof array); }

// The compiler checks indices of register arrays (-fsanitize=bounds) and calls this, with where they stand.
struct StPlace {
  const char* file;
  unsigned line, column;
};
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(StPlace* place, uintptr_t index) {
  st_runtime->array_bounds((int64_t)index, (int)place->line);
}

// Calls a kernel with parameters that lie wherever `at` says.
template <int... K> struct StIndices {};
template <int N, int... K> struct StCount : StCount<N - 1, N - 1, K...> {};
template <int... K> struct StCount<0, K...> { using type = StIndices<K...>; };
template <class... A, int... K> static void st_call(void (*kernel)(A...), void** at, StIndices<K...>) {
  kernel(*(A*)at[K]...);
}
template <class... A> static void st_call(void (*kernel)(A...), void** at) {
  st_call(kernel, at, typename StCount<sizeof...(A)>::type{});
}
