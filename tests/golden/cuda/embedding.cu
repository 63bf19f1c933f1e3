// %0 = input f32 [i0, i1]
// %1 = input i64 [i2]
// %2 = const f32 [] 27.7
// %3 = mul f32 [i3, i4] (%0[lookup(%1[i3], |i0|), i4], %2[])    -> output
// i0 = 30522, i1 = 768, i2 = 4096, i3 = 4096, i4 = 768
//
// x0 = %0 f32 [30522, 768]
// x1 = %1 i64 [4096]
// y0 = %3 f32 [4096, 768]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i3 by 4, i4 by 768
//       stage %3; loops i3 i4; vector i4 x 4; threads i3 x 4, i4 x 64

extern "C" __global__ void __launch_bounds__(256, 4)
embedding(const float* __restrict__ x0, const int64_t* __restrict__ x1, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 1024) {
    const int task = block;
    const int k1 = task * 4;
    const int t2 = thread / 64;
    const int64_t t3 = st_load(x1, k1 + t2);
    const int t4 = int(st_min<int64_t>(st_max<int64_t>(t3 < 0 ? t3 + 30522 : t3, 0), 30521));
    for (int i5 = thread % 64 * 4; i5 < 768; i5 += 256) {
      float q6[4];
      st_unpack(q6, st_load_pack<4>(x0, t4 * 768 + i5));
      float q7[4];
      #pragma unroll
      for (int e8 = 0; e8 < 4; ++e8) {
        q7[e8] = q6[e8] * 27.7f;
      }
      st_store_pack<4>(y0, (k1 + t2) * 768 + i5, st_packed<4>(q7));
    }
  }
}
