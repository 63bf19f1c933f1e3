// Scalar arithmetic of generated kernels: of C++ inside `omp simd` loops, where g++ turns it into vector code since it is
// free of branches where that matters, of CUDA under NVRTC, and of CUDA under the emulator's g++. The unit defines
// ST_DEVICE, what stands before a function, and the integer types. NaN goes through minima and maxima; integers wrap;
// integer division by zero gives 0.

#ifdef __CUDACC_RTC__
#define ST_C(function) function
#else
#define ST_C(function) __builtin_##function
#endif

// --- bits

#ifdef __CUDACC_RTC__
ST_DEVICE uint32_t st_bits(float x) { return __float_as_uint(x); }
ST_DEVICE float st_float(uint32_t x) { return __uint_as_float(x); }
#define ST_INFINITY st_float(0x7f800000u)
#define ST_NAN st_float(0x7fc00000u)
#else
ST_DEVICE uint32_t st_bits(float x) {
  uint32_t r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}
ST_DEVICE float st_float(uint32_t x) {
  float r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}
#define ST_INFINITY __builtin_inff()
#define ST_NAN __builtin_nanf("")
#endif

// --- half precision: 16 bits in memory, floats in registers

// condition ? a : b without a select: several selects in a row become jumps that keep g++ from vectorising.
ST_DEVICE uint32_t st_pick(bool condition, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & -(uint32_t)condition); }

#ifdef __CUDACC_RTC__
ST_DEVICE float st_widen_f16(uint16_t h) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
  return r;
}
ST_DEVICE uint16_t st_narrow_f16(float f) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f));
  return r;
}
ST_DEVICE float st_round_f16(float f) { return st_widen_f16(st_narrow_f16(f)); }
#else
// By integer arithmetic: unlike _Float16 it vectorises everywhere.
ST_DEVICE float st_widen_f16(uint16_t h) {
  // exponent and mantissa as a float 2^112 too small, scaled (exact, subnormals too); infinity and NaN keep their exponent
  uint32_t magnitude = ((uint32_t)h & 0x7fffu) << 13;
  uint32_t bits = st_bits(st_float(magnitude) * 0x1p112f);
  return st_float(st_pick(magnitude >= 0x0f800000u, magnitude | 0x7f800000u, bits) | ((uint32_t)h & 0x8000u) << 16);
}
// To the nearest float16, halves to even: normal numbers by an integer addition at bit 13, subnormal ones by a float
// addition that puts their last place at the float's; both still floats.
ST_DEVICE float st_round_f16(float f) {
  uint32_t w = st_bits(f), magnitude = w & 0x7fffffffu;
  uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
  normal = st_pick(normal >= 0x47800000u, 0x7f800000u, normal);
  uint32_t tiny = st_bits((st_float(magnitude) + 0.5f) - 0.5f);
  uint32_t rounded = st_pick(magnitude > 0x7f800000u, 0x7fc00000u, st_pick(magnitude < 0x38800000u, tiny, normal));
  return st_float(rounded | (w & 0x80000000u));
}
ST_DEVICE uint16_t st_narrow_f16(float f) {
  uint32_t w = st_bits(st_round_f16(f)), magnitude = w & 0x7fffffffu;
  uint32_t normal = (magnitude >> 13) - (112u << 10);
  uint32_t tiny = st_bits(st_float(magnitude) + 0.5f) & 0x7fffu;
  // the low 15 bits of a shifted infinity or NaN are just those of float16
  uint32_t bits = st_pick(magnitude >= 0x7f800000u, (magnitude >> 13) & 0x7fffu, st_pick(magnitude < 0x38800000u, tiny, normal));
  return (uint16_t)((bits & 0x7fffu) | ((w & 0x80000000u) >> 16));
}
#endif
ST_DEVICE float st_widen_bf16(uint16_t h) { return st_float((uint32_t)h << 16); }
ST_DEVICE uint32_t st_bits_bf16(float f) {
  uint32_t w = st_bits(f);
  return st_pick((w & 0x7fffffffu) > 0x7f800000u, w | 0x400000u, w + 0x7fffu + ((w >> 16) & 1u));
}
ST_DEVICE uint16_t st_narrow_bf16(float f) { return (uint16_t)(st_bits_bf16(f) >> 16); }
ST_DEVICE float st_round_bf16(float f) { return st_float(st_bits_bf16(f) & 0xffff0000u); }

// --- packs of CUDA's memory accesses, to and from register arrays

template <int N, class T> struct st_pack;
template <int N, class T, class R> ST_DEVICE void st_unpack(R* into, st_pack<N, T> p) {
#pragma unroll
  for (int k = 0; k < N; ++k) into[k] = (R)p.x[k];
}
template <int N> ST_DEVICE void st_unpack_f16(float* into, st_pack<N, uint16_t> p) {
#pragma unroll
  for (int k = 0; k < N; ++k) into[k] = st_widen_f16(p.x[k]);
}
template <int N> ST_DEVICE void st_unpack_bf16(float* into, st_pack<N, uint16_t> p) {
#pragma unroll
  for (int k = 0; k < N; ++k) into[k] = st_widen_bf16(p.x[k]);
}
template <int N, class T> ST_DEVICE st_pack<N, T> st_packed(const T* from) {
  st_pack<N, T> p;
#pragma unroll
  for (int k = 0; k < N; ++k) p.x[k] = from[k];
  return p;
}
template <int N, class T, class R> ST_DEVICE st_pack<N, T> st_packed_as(const R* from) {
  st_pack<N, T> p;
#pragma unroll
  for (int k = 0; k < N; ++k) p.x[k] = (T)from[k];
  return p;
}
template <int N> ST_DEVICE st_pack<N, uint16_t> st_packed_f16(const float* from) {
  st_pack<N, uint16_t> p;
#pragma unroll
  for (int k = 0; k < N; ++k) p.x[k] = st_narrow_f16(from[k]);
  return p;
}
template <int N> ST_DEVICE st_pack<N, uint16_t> st_packed_bf16(const float* from) {
  st_pack<N, uint16_t> p;
#pragma unroll
  for (int k = 0; k < N; ++k) p.x[k] = st_narrow_bf16(from[k]);
  return p;
}

// --- integers

template <class T> struct st_wide { typedef uint32_t type; };
template <> struct st_wide<int64_t> { typedef uint64_t type; };
template <> struct st_wide<uint64_t> { typedef uint64_t type; };

template <class T> ST_DEVICE T st_add(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a + (U)b);
}
template <class T> ST_DEVICE T st_sub(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a - (U)b);
}
template <class T> ST_DEVICE T st_mul(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)((U)a * (U)b);
}
template <class T> ST_DEVICE T st_neg(T a) { return st_sub<T>(0, a); }
template <class T> ST_DEVICE T st_abs(T a) { return a < 0 ? st_neg(a) : a; }
template <class T> ST_DEVICE T st_sign(T a) { return (T)((a > 0) - (a < 0)); }
template <class T> ST_DEVICE T st_div(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return st_neg(a);
  return (T)(a / b);
}
template <class T> ST_DEVICE T st_fmod(T a, T b) {
  if (b == 0 || (T(-1) < T(0) && b == T(-1))) return 0;
  return (T)(a % b);
}
template <class T> ST_DEVICE T st_mod(T a, T b) {
  T r = st_fmod<T>(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? (T)(r + b) : r;
}
template <class T> ST_DEVICE T st_shl(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (U)b < 8 * sizeof(T) ? (T)((U)a << ((U)b & (8 * sizeof(T) - 1))) : T(0);
}
template <class T> ST_DEVICE T st_shr(T a, T b) {
  typedef typename st_wide<T>::type U;
  return (T)(a >> ((U)b < 8 * sizeof(T) ? (U)b : 8 * sizeof(T) - 1)) & ((T(-1) > T(0) && (U)b >= 8 * sizeof(T)) ? T(0) : T(-1));
}
template <class T> ST_DEVICE T st_pow(T a, T b) {
  if (b < 0) return a == 1 ? 1 : a == T(-1) ? ((b & 1) ? T(-1) : T(1)) : T(0);
  T r = 1;
  for (; b > 0; b = (T)(b >> 1)) {
    if (b & 1) r = st_mul(r, a);
    a = st_mul(a, a);
  }
  return r;
}
template <class T> ST_DEVICE T st_floordiv(T a, T b) { return a / b - (a % b < 0); }
template <class T> ST_DEVICE T st_remainder(T a, T b) {
  T r = a % b;
  return r < 0 ? r + b : r;
}

// --- minima and maxima: NaN wins

template <class T> ST_DEVICE T st_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> ST_DEVICE T st_min(T a, T b) { return a < b || a != a ? a : b; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> ST_DEVICE float st_max(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
template <> ST_DEVICE float st_min(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#endif
template <class T> ST_DEVICE bool st_before_argmax_first(T a, int64_t i, T b, int64_t j) {
  return (a > b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j);
}
template <class T> ST_DEVICE bool st_before_argmax_last(T a, int64_t i, T b, int64_t j) {
  return (a > b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i > j);
}
template <class T> ST_DEVICE bool st_before_argmin_first(T a, int64_t i, T b, int64_t j) {
  return (a < b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j);
}
template <class T> ST_DEVICE bool st_before_argmin_last(T a, int64_t i, T b, int64_t j) {
  return (a < b && b == b) || (a != a && b == b) || ((a == b || (a != a && b != b)) && i > j);
}

// --- floating point

#define ST_FLOAT(T, S)                                                                                                 \
  ST_DEVICE bool st_isnan(T a) { return a != a; }                                                                      \
  ST_DEVICE bool st_isinf(T a) { return ST_C(fabs##S)(a) == T(ST_INFINITY); }                                          \
  ST_DEVICE T st_sign(T a) { return a != a ? a : T(a > 0) - T(a < 0); }                                                \
  ST_DEVICE T st_fmod(T a, T b) { return ST_C(fmod##S)(a, b); }                                                        \
  ST_DEVICE T st_mod(T a, T b) {                                                                                       \
    T r = ST_C(fmod##S)(a, b);                                                                                         \
    return r == 0 ? ST_C(copysign##S)(r, b) : (r < 0) != (b < 0) ? r + b : r;                                          \
  }
ST_FLOAT(float, f)
ST_FLOAT(double, )

// The rounding error of a + b, exact (Knuth's TwoSum); 0 where the sum is infinite or NaN.
ST_DEVICE float st_sum_error(float a, float b) {
  const float s = a + b, c = s - a, error = (a - (s - c)) + (b - c);
  return error == error ? error : 0.0f;
}
