// %0 = input f16 [i2]
// %1 = input f16 [i3, i4]
// %2 = const f16 [] 0.5
// %3 = const f16 [] 0.70703125
// %4 = const f16 [] 1.0
// %5 = add f16 [i0, i1] (%0[i1], %1[i0, i1])
// %6 = mul f16 [i0, i1] (%5[i0, i1], %3[])
// %7 = erf f16 [i0, i1] (%6[i0, i1])
// %8 = add f16 [i0, i1] (%7[i0, i1], %4[])
// %9 = mul f16 [i0, i1] (%2[], %8[i0, i1])
// %10 = mul f16 [i0, i1] (%5[i0, i1], %9[i0, i1])    -> output
// i0 = 1024, i1 = 3072, i2 = 3072, i3 = 1024, i4 = 3072
//
// x0 = %0 f16 [3072]
// x1 = %1 f16 [1024, 3072]
// y0 = %10 f16 [1024, 3072]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i0 by 2, i1 by 3072
//       stage %10; loops i0 i1; vector i1 x 8; threads i0 x 2, i1 x 128
// inline wherever they are read: %5, %6, %7, %8, %9

extern "C" __global__ void __launch_bounds__(256, 4)
bias_gelu(const uint16_t* __restrict__ x0, const uint16_t* __restrict__ x1,
    uint16_t* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 512) {
    const int task = block;
    const int k1 = task * 2;
    const int t2 = thread / 128;
    for (int i3 = thread % 128 * 8; i3 < 3072; i3 += 1024) {
      float q4[8];
      st_unpack_f16(q4, st_load_pack<8>(x0, i3));
      float q5[8];
      st_unpack_f16(q5, st_load_pack<8>(x1, (k1 + t2) * 3072 + i3));
      float q6[8];
      #pragma unroll
      for (int e7 = 0; e7 < 8; ++e7) {
        const float t8 = st_round_f16(q4[e7] + q5[e7]);
        q6[e7] = t8 * st_round_f16(0.5f * st_round_f16(st_round_f16(erff(st_round_f16(t8 * 0.70703125f))) + 1.0f));
      }
      st_store_pack<8>(y0, (k1 + t2) * 3072 + i3, st_packed_f16<8>(q6));
    }
  }
}
