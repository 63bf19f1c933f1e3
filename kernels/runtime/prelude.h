// What generated C++ needs beside arithmetic.h, which follows it: types, lanes folded in registers, stores past the
// caches. Includes nothing, since every generated unit compiles it.
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define ST_INLINE static inline __attribute__((always_inline))
// A group's function. g++ 12 calls one without effects, and leaves out calls of it, where induction variables have turned
// its addresses into integers; noipa keeps it from looking.
#if defined(__clang__)
#define ST_GROUP static __attribute__((noinline)) void
#define ST_MASKED
#else
#define ST_GROUP static __attribute__((noipa)) void
// A group that loads under masks. In a loop that the address of a masked load does not depend on, g++ 12's choice of
// induction variables gives it the address of a neighbouring load that does.
#define ST_MASKED __attribute__((optimize("no-ivopts")))
#endif
#if defined(__x86_64__) && !defined(__clang__)
#define ST_VECTOR(bits) __attribute__((target("prefer-vector-width=" #bits)))
#else
#define ST_VECTOR(bits)
#endif
#define ST_DEVICE ST_INLINE  // what stands before the functions of arithmetic.h

// A constant that the compiler does not know.
ST_INLINE int64_t st_hidden(int64_t x) {
  __asm__("" : "+r"(x));
  return x;
}

struct st_team {
  void (*barrier)(st_team *, int32_t thread);
};

// --- folding lanes: halves are combined lane by lane until one is left

struct st_fold_sum {
  template <class V> static inline __attribute__((always_inline)) V apply(V a, V b) { return a + b; }
};
struct st_fold_prod {
  template <class V> static inline __attribute__((always_inline)) V apply(V a, V b) { return a * b; }
};
struct st_fold_max {
  template <class V> static inline __attribute__((always_inline)) V apply(V a, V b) { return (a > b) | (a != a) ? a : b; }
};
struct st_fold_min {
  template <class V> static inline __attribute__((always_inline)) V apply(V a, V b) { return (a < b) | (a != a) ? a : b; }
};
#if defined(__AVX512F__)
#define ST_REGISTER 64
#elif defined(__AVX__)
#define ST_REGISTER 32
#else
#define ST_REGISTER 16
#endif
#if defined(__clang__)
#define ST_SWAP(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define ST_SWAP(v, ...) __builtin_shuffle(v, (decltype(v == v)){__VA_ARGS__})
#endif
// One register of lanes. The last steps stay in a register too: scalar ones would compare and jump.
template <class Op, class T, int N> struct st_lanes {
  typedef T vector __attribute__((vector_size(N * sizeof(T))));
  typedef T half __attribute__((vector_size(N / 2 * sizeof(T))));
  static inline __attribute__((always_inline)) T fold(vector v) {
    half a, b;
    __builtin_memcpy(&a, &v, sizeof a);
    __builtin_memcpy(&b, (const char *)&v + sizeof a, sizeof b);
    return st_lanes<Op, T, N / 2>::fold(Op::apply(a, b));
  }
};
template <class Op> struct st_lanes<Op, float, 4> {
  typedef float vector __attribute__((vector_size(16)));
  static inline __attribute__((always_inline)) float fold(vector v) {
    v = Op::apply(v, (vector)ST_SWAP(v, 2, 3, 0, 1));
    return Op::apply(v, (vector)ST_SWAP(v, 1, 0, 3, 2))[0];
  }
};
template <class Op> struct st_lanes<Op, double, 2> {
  typedef double vector __attribute__((vector_size(16)));
  static inline __attribute__((always_inline)) double fold(vector v) { return Op::apply(v, (vector)ST_SWAP(v, 1, 0))[0]; }
};
template <class Op, class T> struct st_lanes<Op, T, 1> {
  typedef T vector __attribute__((vector_size(sizeof(T))));
  static inline __attribute__((always_inline)) T fold(vector v) { return v[0]; }
};
// Vectors of more bytes than a register has would be taken apart into scalars where they are compared.
template <class Op, class T, int N> struct st_folder {
  enum { lanes = N * sizeof(T) > ST_REGISTER ? ST_REGISTER / sizeof(T) : N, parts = N / lanes };
  typedef typename st_lanes<Op, T, lanes>::vector vector;
  static inline __attribute__((always_inline)) T run(const T *x) {
    vector v[parts];
    __builtin_memcpy(v, x, sizeof v);
    for (int h = parts / 2; h; h /= 2)
      for (int k = 0; k < h; ++k) v[k] = Op::apply(v[k], v[k + h]);
    return st_lanes<Op, T, lanes>::fold(v[0]);
  }
};
// Signed integers are folded as unsigned ones where they wrap.
template <class T> struct st_same { typedef T type; };
template <> struct st_same<int8_t> { typedef uint8_t type; };
template <> struct st_same<int16_t> { typedef uint16_t type; };
template <> struct st_same<int32_t> { typedef uint32_t type; };
template <> struct st_same<int64_t> { typedef uint64_t type; };
template <class Op, int N, class T> ST_INLINE T st_fold(const T *x) { return st_folder<Op, T, N>::run(x); }
template <class Op, int N, class T> ST_INLINE T st_fold_wrapping(const T *x) {
  typedef typename st_same<T>::type U;
  return (T)st_folder<Op, U, N>::run((const U *)x);
}

// --- stores past the caches: whole lines of 64 bytes go by non-temporal stores, the ragged ends normally

#if defined(__SSE2__)
typedef long long st_v2 __attribute__((vector_size(16), may_alias));
typedef long long st_v4 __attribute__((vector_size(32), may_alias));
typedef long long st_v8 __attribute__((vector_size(64), may_alias));
template <class T> ST_INLINE void st_stream(T *to, const T *from, int64_t count) {
  int64_t head = (int64_t)((64 - (__UINTPTR_TYPE__)to % 64) % 64 / sizeof(T));
  head = head < count ? head : count;
  __builtin_memcpy(to, from, head * sizeof(T));
  int64_t i = head, line = 64 / sizeof(T);
  for (; i + line <= count; i += line) {
#if defined(__clang__)
    st_v8 x;
    __builtin_memcpy(&x, from + i, 64);
    __builtin_nontemporal_store(x, (st_v8 *)(to + i));
#elif defined(__AVX512F__)
    st_v8 x;
    __builtin_memcpy(&x, from + i, 64);
    __builtin_ia32_movntdq512((st_v8 *)(to + i), x);
#elif defined(__AVX__)
    for (int k = 0; k < 2; ++k) {
      st_v4 x;
      __builtin_memcpy(&x, (const char *)(from + i) + 32 * k, 32);
      __builtin_ia32_movntdq256((st_v4 *)((char *)(to + i) + 32 * k), x);
    }
#else
    for (int k = 0; k < 4; ++k) {
      st_v2 x;
      __builtin_memcpy(&x, (const char *)(from + i) + 16 * k, 16);
      __builtin_ia32_movntdq((st_v2 *)((char *)(to + i) + 16 * k), x);
    }
#endif
  }
  __builtin_memcpy(to + i, from + i, (count - i) * sizeof(T));
}
ST_INLINE void st_stream_fence() { __builtin_ia32_sfence(); }
#else
template <class T> ST_INLINE void st_stream(T *to, const T *from, int64_t count) {
  __builtin_memcpy(to, from, count * sizeof(T));
}
ST_INLINE void st_stream_fence() {}
#endif
