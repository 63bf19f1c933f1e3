// exp, log, tanh and erf of floats without branches or calls, as fast for lanes that underflow as for others. Errors stay below 4 units in the last place; NaN, infinities, signed zeros and subnormals are right.

#ifdef __FMA__
#define ST_MADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define ST_MADD(a, b, c) ((a) * (b) + (c))
#endif

ST_INLINE float st_expf(float x) {
  // 2^n e^r with |r| <= ln(2)/2; polynomial of Cephes' expf (S. Moshier). Adding 1.5 * 2^23 rounds to an integer and
  // leaves it in the low bits, from where it goes into the exponent. Results that may be subnormal are made 2^64 times
  // too large first.
  x = x < -104.0f ? -104.0f : x;
  float t = ST_MADD(x, 1.44269504f, 12582912.0f), n = t - 12582912.0f;
  float r = ST_MADD(n, 2.12194440e-4f, ST_MADD(n, -0.693359375f, x));
  float p = 1.9875691500e-4f;
  p = ST_MADD(p, r, 1.3981999507e-3f);
  p = ST_MADD(p, r, 8.3334519073e-3f);
  p = ST_MADD(p, r, 4.1665795894e-2f);
  p = ST_MADD(p, r, 1.6666665459e-1f);
  p = ST_MADD(p, r, 5.0000001201e-1f);
  float y = ST_MADD(p, r * r, r) + 1.0f;
  bool low = x < -87.0f;
  y = st_float(st_bits(y) + (st_bits(t) << 23) + (low ? 64u << 23 : 0u));
  y = low ? y * 0x1p-64f : y;
  return x <= 88.7228317f ? y : x + ST_INFINITY;  // infinity, or NaN
}

ST_INLINE float st_logf(float x) {
  // x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); series of FreeBSD's logf in s = f / (2 + f).
  bool small = x < 0x1p-126f;
  uint32_t ix = st_bits(small ? x * 0x1p25f : x) - 0x3f3504f3u;
  float k = (float)((int32_t)ix >> 23) - (small ? 25.0f : 0.0f);
  float f = st_float((ix & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float s = f / (2.0f + f), z = s * s, w = z * z, half = 0.5f * f * f;
  float r = w * (0.40000972152f + w * 0.24279078841f) + z * (0.66666662693f + w * 0.28498786688f);
  float y = ((s * (half + r) + k * 9.0580006145e-06f) - half) + f + k * 6.9313812256e-01f;
  y = x == ST_INFINITY ? x : y;
  y = x == 0.0f ? -ST_INFINITY : y;
  return x < 0.0f || x != x ? __builtin_nanf("") : y;
}

ST_INLINE float st_tanhf(float x) {
  // Rational approximation in x^2 as in Eigen; beyond 7.9 the result rounds to 1.
  float c = x > 7.90531110763549805f ? 7.90531110763549805f : x;
  c = c < -7.90531110763549805f ? -7.90531110763549805f : c;
  float z = c * c;
  float p = -2.76076847742355e-16f;
  p = ST_MADD(p, z, 2.00018790482477e-13f);
  p = ST_MADD(p, z, -8.60467152213735e-11f);
  p = ST_MADD(p, z, 5.12229709037114e-08f);
  p = ST_MADD(p, z, 1.48572235717979e-05f);
  p = ST_MADD(p, z, 6.37261928875436e-04f);
  p = ST_MADD(p, z, 4.89352455891786e-03f);
  float q = 1.19825839466702e-06f;
  q = ST_MADD(q, z, 1.18534705686654e-04f);
  q = ST_MADD(q, z, 2.26843463243900e-03f);
  q = ST_MADD(q, z, 4.89352518554385e-03f);
  float y = c * (p / q), size = __builtin_fabsf(x);
  y = size >= 7.90531110763549805f ? __builtin_copysignf(1.0f, x) : y;
  return size < 4e-4f ? x : y;
}

ST_INLINE float st_erff(float x) {
  // Rational approximation in x^2 as in Eigen; beyond 4 the result rounds to 1.
  float c = x > 4.0f ? 4.0f : x;
  c = c < -4.0f ? -4.0f : c;
  float z = c * c;
  float p = -2.72614225801306e-10f;
  p = ST_MADD(p, z, 2.77068142495902e-08f);
  p = ST_MADD(p, z, -2.10102402082508e-06f);
  p = ST_MADD(p, z, -5.69250639462346e-05f);
  p = ST_MADD(p, z, -7.34990630326855e-04f);
  p = ST_MADD(p, z, -2.95459980854025e-03f);
  p = ST_MADD(p, z, -1.60960333262415e-02f);
  float q = -1.45660718464996e-05f;
  q = ST_MADD(q, z, -2.13374055278905e-04f);
  q = ST_MADD(q, z, -1.68282697438203e-03f);
  q = ST_MADD(q, z, -7.37332916720468e-03f);
  q = ST_MADD(q, z, -1.42647390514189e-02f);
  float y = c * (p / q), size = __builtin_fabsf(x);
  y = size >= 4.0f ? __builtin_copysignf(1.0f, x) : y;
  // subnormal arguments lose digits in the quotient: erf(x) = 2/sqrt(pi) x there
  return size < 1e-4f ? x * 1.12837916709551257390f : y;
}

#define expf st_expf
#define logf st_logf
#define tanhf st_tanhf
#define erff st_erff
