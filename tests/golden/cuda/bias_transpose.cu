// %0 = input f32 [i0, i1]
// %1 = input f32 [i2]
// %2 = add f32 [i3, i4] (%0[i4, i3], %1[i3])    -> output
// i0 = 1024, i1 = 768, i2 = 768, i3 = 768, i4 = 1024
//
// x0 = %0 f32 [1024, 768]
// x1 = %1 f32 [768]
// y0 = %2 f32 [768, 1024]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i3 by 32, i4 by 32
//       stage %0; loops i4 i3; vector i3 x 4; threads i4 x 32, i3 x 8
//       stage %2; loops i4 i3; vector i4 x 4; threads i3 x 32, i4 x 8
// %0: block to %2
// buffer %0: axes i4 i3, padded by 1

extern "C" __global__ void __launch_bounds__(256, 4)
bias_transpose(const float* __restrict__ x0, const float* __restrict__ x1, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 768) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    const int k1 = task % 32 * 32;
    const int k2 = task / 32 * 32;
    const int t3 = thread / 8;
    const int i4 = thread % 8 * 4;

    float q5[4];
    st_unpack(q5, st_load_pack<4>(x0, (k1 + t3) * 768 + k2 + i4));
    #pragma unroll
    for (int e6 = 0; e6 < 4; ++e6) {
      st_shared_store(b0, t3 * 33 + i4 + e6, q5[e6]);
    }
    st_sync_block();

    const float t7 = st_load(x1, k2 + t3);

    float q8[4];
    #pragma unroll
    for (int e9 = 0; e9 < 4; ++e9) {
      q8[e9] = st_shared_load(b0, (i4 + e9) * 33 + t3) + t7;
    }

    st_store_pack<4>(y0, (k2 + t3) * 1024 + k1 + i4, st_packed<4>(q8));
  }
}
