// What generated kernels need of C++: types, conversions, and scalar functions that g++ turns into vector code
// inside `omp simd` loops. Everything is free of branches where that matters, and includes nothing, since every
// generated unit compiles it. NaN goes through minima and maxima; integers wrap; integer division by zero gives 0.
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
#else
#define ST_GROUP static __attribute__((noipa)) void
#endif
#if defined(__x86_64__) && !defined(__clang__)
#define ST_VECTOR(bits) __attribute__((target("prefer-vector-width=" #bits)))
#else
#define ST_VECTOR(bits)
#endif
#define ST_INFINITY __builtin_inff()

// A constant that the compiler does not know.
ST_INLINE int64_t st_hidden(int64_t x) {
  __asm__("" : "+r"(x));
  return x;
}

struct st_team {
  void (*barrier)(st_team *, int32_t thread);
};

// --- bits

ST_INLINE uint32_t st_bits(float x) {
  uint32_t r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}
ST_INLINE float st_float(uint32_t x) {
  float r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}

// --- half precision by integer arithmetic: unlike _Float16 it vectorises everywhere

// condition ? a : b without a select: several selects in a row become jumps that keep g++ from vectorising.
ST_INLINE uint32_t st_pick(bool condition, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & -(uint32_t)condition); }

ST_INLINE float st_load_f16(uint16_t h) {
  // exponent and mantissa as a float 2^112 too small, scaled (exact, subnormals too); infinity and NaN keep their exponent
  uint32_t magnitude = ((uint32_t)h & 0x7fffu) << 13;
  uint32_t bits = st_bits(st_float(magnitude) * 0x1p112f);
  return st_float(st_pick(magnitude >= 0x0f800000u, magnitude | 0x7f800000u, bits) | ((uint32_t)h & 0x8000u) << 16);
}
// To the nearest float16, halves to even: normal numbers by an integer addition at bit 13, subnormal ones by a float
// addition that puts their last place at the float's; both still floats.
ST_INLINE float st_round_f16(float f) {
  uint32_t w = st_bits(f), magnitude = w & 0x7fffffffu;
  uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
  normal = st_pick(normal >= 0x47800000u, 0x7f800000u, normal);
  uint32_t tiny = st_bits((st_float(magnitude) + 0.5f) - 0.5f);
  uint32_t rounded = st_pick(magnitude > 0x7f800000u, 0x7fc00000u, st_pick(magnitude < 0x38800000u, tiny, normal));
  return st_float(rounded | (w & 0x80000000u));
}
ST_INLINE uint16_t st_store_f16(float f) {
  uint32_t w = st_bits(st_round_f16(f)), magnitude = w & 0x7fffffffu;
  uint32_t normal = (magnitude >> 13) - (112u << 10);
  uint32_t tiny = st_bits(st_float(magnitude) + 0.5f) & 0x7fffu;
  // the low 15 bits of a shifted infinity or NaN are just those of float16
  uint32_t bits = st_pick(magnitude >= 0x7f800000u, (magnitude >> 13) & 0x7fffu, st_pick(magnitude < 0x38800000u, tiny, normal));
  return (uint16_t)((bits & 0x7fffu) | ((w & 0x80000000u) >> 16));
}
ST_INLINE float st_load_bf16(uint16_t h) { return st_float((uint32_t)h << 16); }
ST_INLINE uint32_t st_bits_bf16(float f) {
  uint32_t w = st_bits(f);
  return st_pick((w & 0x7fffffffu) > 0x7f800000u, w | 0x400000u, w + 0x7fffu + ((w >> 16) & 1u));
}
ST_INLINE uint16_t st_store_bf16(float f) { return (uint16_t)(st_bits_bf16(f) >> 16); }
ST_INLINE float st_round_bf16(float f) { return st_float(st_bits_bf16(f) & 0xffff0000u); }

// --- integers

template <class T> struct st_wide { typedef uint32_t type; };
template <> struct st_wide<int64_t> { typedef uint64_t type; };
template <> struct st_wide<uint64_t> { typedef uint64_t type; };

template <class T> ST_INLINE T st_add(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a + (U)b);
}
template <class T> ST_INLINE T st_sub(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a - (U)b);
}
template <class T> ST_INLINE T st_mul(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a * (U)b);
}
template <class T> ST_INLINE T st_neg(T a) { return st_sub<T>(0, a); }
template <class T> ST_INLINE T st_abs(T a) { return a < 0 ? st_neg(a) : a; }
template <class T> ST_INLINE T st_sign(T a) { return (T)((a > 0) - (a < 0)); }
template <class T> ST_INLINE T st_div(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return st_neg(a);
  return (T)(a / b);
}
template <class T> ST_INLINE T st_fmod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  return (T)(a % b);
}
template <class T> ST_INLINE T st_mod(T a, T b) {
  T r = st_fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? (T)(r + b) : r;
}
template <class T> ST_INLINE T st_shl(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (U)b < 8 * sizeof(T) ? (T)((U)a << ((U)b & (8 * sizeof(T) - 1))) : T(0);
}
template <class T> ST_INLINE T st_shr(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)(a >> ((U)b < 8 * sizeof(T) ? (U)b : 8 * sizeof(T) - 1)) & ((T(-1) > T(0) && (U)b >= 8 * sizeof(T)) ? T(0) : T(-1));
}
template <class T> static T st_pow(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == T(-1) ? ((b & 1) ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; b > 0; b = (T)(b >> 1)) {
    if (b & 1) r = st_mul(r, a);
    a = st_mul(a, a);
  }
  return r;
}
ST_INLINE int64_t st_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
ST_INLINE int64_t st_remainder(int64_t a, int64_t b) {
  int64_t r = a % b;
  return r < 0 ? r + b : r;
}

// --- minima and maxima: NaN wins

template <class T> ST_INLINE T st_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> ST_INLINE T st_min(T a, T b) { return a < b || a != a ? a : b; }
template <class T> ST_INLINE bool st_before_argmax_first(T a, int64_t i, T b, int64_t j) {
  return (a > b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j);
}
template <class T> ST_INLINE bool st_before_argmax_last(T a, int64_t i, T b, int64_t j) {
  return (a > b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i > j);
}
template <class T> ST_INLINE bool st_before_argmin_first(T a, int64_t i, T b, int64_t j) {
  return (a < b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j);
}
template <class T> ST_INLINE bool st_before_argmin_last(T a, int64_t i, T b, int64_t j) {
  return (a < b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i > j);
}

// --- floating point

#define ST_FLOAT(T, S)                                                                                                 \
  ST_INLINE T st_sign(T a) { return a != a ? a : T(a > 0) - T(a < 0); }                                                \
  ST_INLINE T st_fmod(T a, T b) { return __builtin_fmod##S(a, b); }                                                    \
  ST_INLINE T st_mod(T a, T b) {                                                                                       \
    T r = __builtin_fmod##S(a, b);                                                                                     \
    return r == 0 ? __builtin_copysign##S(r, b) : (r < 0) != (b < 0) ? r + b : r;                                      \
  }
ST_FLOAT(float, f)
ST_FLOAT(double, )

// The rounding error of a + b, exact (Knuth's TwoSum); 0 where the sum is infinite or NaN.
ST_INLINE float st_sum_error(float a, float b) {
  float s = a + b, c = s - a, error = (a - (s - c)) + (b - c);
  return error == error ? error : 0.0f;
}

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
