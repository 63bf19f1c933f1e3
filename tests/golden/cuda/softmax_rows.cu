// %0 = input f32 [i2, i3]
// %1 = max f32 [i0] over [i1] (%0[i0, i1])
// %2 = sub f32 [i0, i1] (%0[i0, i1], %1[i0])
// %3 = exp f32 [i0, i1] (%2[i0, i1])
// %4 = sum f32 [i0] over [i1] (%3[i0, i1])
// %5 = div f32 [i0, i1] (%3[i0, i1], %4[i0])    -> output
// i0 = 8192, i1 = 384, i2 = 8192, i3 = 384
//
// x0 = %0 f32 [8192, 384]
// y0 = %5 f32 [8192, 384]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i0 by 8
//       stage %0, %1; loops i0 i1; vector i1 x 4; threads i0 x 8, i1 x 32
//       stage %3, %4; loops i0 i1; vector i1 x 4; threads i0 x 8, i1 x 32
//       stage %5; loops i0 i1; vector i1 x 4; threads i0 x 8, i1 x 32
// %0: register to %1, %2
// %1: register to %2
// %3: register to %4, %5
// %4: register to %5
// inline wherever they are read: %2

extern "C" __global__ void __launch_bounds__(256, 4)
softmax_rows(const float* __restrict__ x0, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 1024) {
    const int task = block;
    const int k1 = task * 8;
    const int lane = thread % 32;
    const int warp = thread / 32;

    float h2[12];
    float h3[12];
    float w4[4];
    #pragma unroll
    for (int l5 = 0; l5 < 4; ++l5) {
      w4[l5] = -ST_INFINITY;
    }
    #pragma unroll
    for (int s6 = 0; s6 < 3; ++s6) {
      float q7[4];
      st_unpack(q7, st_load_pack<4>(x0, (k1 + warp) * 384 + lane * 4 + s6 * 128));
      #pragma unroll
      for (int e8 = 0; e8 < 4; ++e8) {
        const float t9 = q7[e8];
        h2[s6 * 4 + e8] = t9;
        w4[e8] = st_max(w4[e8], t9);
      }
    }

    const float t10 = st_max(st_max(w4[0], w4[2]), st_max(w4[1], w4[3]));
    const float t11 = st_max(t10, st_shuffle_xor(t10, 1));
    const float t12 = st_max(t11, st_shuffle_xor(t11, 2));
    const float t13 = st_max(t12, st_shuffle_xor(t12, 4));
    const float t14 = st_max(t13, st_shuffle_xor(t13, 8));
    const float t15 = st_max(t14, st_shuffle_xor(t14, 16));

    float w16[4];
    #pragma unroll
    for (int l17 = 0; l17 < 4; ++l17) {
      w16[l17] = 0.0f;
    }
    #pragma unroll
    for (int s18 = 0; s18 < 3; ++s18) {
      #pragma unroll
      for (int e19 = 0; e19 < 4; ++e19) {
        const float t20 = expf(h2[s18 * 4 + e19] - t15);
        h3[s18 * 4 + e19] = t20;
        w16[e19] += t20;
      }
    }

    const float t21 = w16[0] + w16[2] + (w16[1] + w16[3]);
    const float t22 = t21 + st_shuffle_xor(t21, 1);
    const float t23 = t22 + st_shuffle_xor(t22, 2);
    const float t24 = t23 + st_shuffle_xor(t23, 4);
    const float t25 = t24 + st_shuffle_xor(t24, 8);
    const float t26 = t25 + st_shuffle_xor(t25, 16);
    #pragma unroll
    for (int s27 = 0; s27 < 3; ++s27) {
      float q28[4];
      #pragma unroll
      for (int e29 = 0; e29 < 4; ++e29) {
        q28[e29] = h3[s27 * 4 + e29] / t26;
      }
      st_store_pack<4>(y0, (k1 + warp) * 384 + lane * 4 + s27 * 128, st_packed<4>(q28));
    }
  }
}
