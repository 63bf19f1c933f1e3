// %0 = input f32 [i0]
// %1 = const f32 [] 1.0
// %2 = neg f32 [i1] (%0[i1])
// %3 = exp f32 [i1] (%2[i1])
// %4 = add f32 [i1] (%3[i1], %1[])
// %5 = div f32 [i1] (%0[i1], %4[i1])    -> output
// i0 = 1000003, i1 = 1000003
//
// x0 = %0 f32 [1000003]
// y0 = %5 f32 [1000003]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i1 by 1024
//       stage %5; loops i1; vector i1 x 4; threads i1 x 256
// inline wherever they are read: %2, %3, %4

extern "C" __global__ void __launch_bounds__(256, 4)
elementwise(const float* __restrict__ x0, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 977) {
    const int task = block;
    const int k1 = task * 1024;
    const int k2 = st_min(1024, 1000003 - k1);
    const int i3 = thread * 4;
    if (i3 < k2 - k2 % 4) {
      float q4[4];
      st_unpack(q4, st_load_pack<4>(x0, k1 + i3));
      float q5[4];
      #pragma unroll
      for (int e6 = 0; e6 < 4; ++e6) {
        const float t7 = q4[e6];
        q5[e6] = t7 / (expf(-t7) + 1.0f);
      }
      st_store_pack<4>(y0, k1 + i3, st_packed<4>(q5));
    }
    if (k2 % 4 > 0 && thread == k2 / 4 % 256) {
      const int i8 = k2 - k2 % 4;
      #pragma unroll 4
      for (int e9 = 0; e9 < 4; ++e9) {
        if (i8 + e9 < k2) {
          const int p10 = i8 + e9;
          const float t11 = st_load(x0, k1 + p10);
          st_store(y0, k1 + p10, t11 / (expf(-t11) + 1.0f));
        }
      }
    }
  }
}
