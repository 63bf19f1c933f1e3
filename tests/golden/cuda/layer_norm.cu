// %0 = input f32 [i2, i3]
// %1 = input f32 [i4, i5]
// %2 = input f32 [i6]
// %3 = input f32 [i7]
// %4 = const f32 [] 4096.0
// %5 = const f32 [] 9.999999747378752e-06
// %6 = add f32 [i0, i1] (%0[i0, i1], %1[i0, i1])
// %7 = sum f32 [i0] over [i1] (%6[i0, i1])
// %8 = div f32 [i0] (%7[i0], %4[])
// %9 = sub f32 [i0, i1] (%6[i0, i1], %8[i0])
// %10 = mul f32 [i0, i1] (%9[i0, i1], %9[i0, i1])
// %11 = sum f32 [i0] over [i1] (%10[i0, i1])
// %12 = div f32 [i0] (%11[i0], %4[])
// %13 = add f32 [i0] (%12[i0], %5[])
// %14 = sqrt f32 [i0] (%13[i0])
// %15 = div f32 [i0, i1] (%9[i0, i1], %14[i0])
// %16 = mul f32 [i0, i1] (%15[i0, i1], %2[i1])
// %17 = add f32 [i0, i1] (%16[i0, i1], %3[i1])    -> output
// i0 = 2048, i1 = 4096, i2 = 2048, i3 = 4096, i4 = 2048, i5 = 4096, i6 = 4096, i7 = 4096
//
// x0 = %0 f32 [2048, 4096]
// x1 = %1 f32 [2048, 4096]
// x2 = %2 f32 [4096]
// x3 = %3 f32 [4096]
// y0 = %17 f32 [2048, 4096]
//
// kernel 0, blocks of 256 threads
//   phase 0
//     group: tasks over i0 by 1
//       stage %6, %7; loops i0 i1; vector i1 x 4; threads i1 x 256
//       stage %9, %11; loops i0 i1; vector i1 x 4; threads i1 x 256
//       stage %17; loops i0 i1; vector i1 x 4; threads i1 x 256
// %6: register to %7, %9
// %7: register to %8
// %8: inline to %9
// %9: register to %10, %15
// %10: inline to %11
// %11: register to %12
// %12: inline to %13
// %13: inline to %14
// %14: inline to %15
// %15: inline to %16
// %16: inline to %17

extern "C" __global__ void __launch_bounds__(256, 4)
layer_norm(const float* __restrict__ x0, const float* __restrict__ x1,
    const float* __restrict__ x2, const float* __restrict__ x3, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 2048) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 64);
    float h1[16];
    float h2[16];
    const int warp = thread / 32;
    const bool t3 = thread % 32 == 0;

    float w4[4];
    #pragma unroll
    for (int l5 = 0; l5 < 4; ++l5) {
      w4[l5] = 0.0f;
    }
    #pragma unroll
    for (int s6 = 0; s6 < 4; ++s6) {
      const int i7 = thread * 4 + s6 * 1024;
      float q8[4];
      st_unpack(q8, st_load_pack<4>(x0, task * 4096 + i7));
      float q9[4];
      st_unpack(q9, st_load_pack<4>(x1, task * 4096 + i7));
      #pragma unroll
      for (int e10 = 0; e10 < 4; ++e10) {
        const float t11 = q8[e10] + q9[e10];
        h1[s6 * 4 + e10] = t11;
        w4[e10] += t11;
      }
    }

    const float t12 = w4[0] + w4[2] + (w4[1] + w4[3]);
    const float t13 = t12 + st_shuffle_xor(t12, 1);
    const float t14 = t13 + st_shuffle_xor(t13, 2);
    const float t15 = t14 + st_shuffle_xor(t14, 4);
    const float t16 = t15 + st_shuffle_xor(t15, 8);
    const float t17 = t16 + st_shuffle_xor(t16, 16);
    if (t3) {
      st_shared_store(b0, warp, t17);
    }
    st_sync_block();

    const float t18 = st_shared_load(b0, 0) + st_shared_load(b0, 4) + (st_shared_load(b0, 2) + st_shared_load(b0, 6));
    const float t19 = st_shared_load(b0, 1) + st_shared_load(b0, 5) + (st_shared_load(b0, 3) + st_shared_load(b0, 7));

    float w20[4];
    #pragma unroll
    for (int l21 = 0; l21 < 4; ++l21) {
      w20[l21] = 0.0f;
    }

    const float t22 = (t18 + t19) / 4096.0f;
    #pragma unroll
    for (int s23 = 0; s23 < 4; ++s23) {
      #pragma unroll
      for (int e24 = 0; e24 < 4; ++e24) {
        const float t25 = h1[s23 * 4 + e24] - t22;
        h2[s23 * 4 + e24] = t25;
        w20[e24] += t25 * t25;
      }
    }

    const float t26 = w20[0] + w20[2] + (w20[1] + w20[3]);
    const float t27 = t26 + st_shuffle_xor(t26, 1);
    const float t28 = t27 + st_shuffle_xor(t27, 2);
    const float t29 = t28 + st_shuffle_xor(t28, 4);
    const float t30 = t29 + st_shuffle_xor(t29, 8);
    const float t31 = t30 + st_shuffle_xor(t30, 16);
    if (t3) {
      st_shared_store(b1, warp, t31);
    }
    st_sync_block();

    const float t32 = st_shared_load(b1, 0) + st_shared_load(b1, 4) + (st_shared_load(b1, 2) + st_shared_load(b1, 6));
    const float t33 = st_shared_load(b1, 1) + st_shared_load(b1, 5) + (st_shared_load(b1, 3) + st_shared_load(b1, 7));
    const float t34 = sqrtf((t32 + t33) / 4096.0f + 1e-05f);
    #pragma unroll
    for (int s35 = 0; s35 < 4; ++s35) {
      const int i36 = thread * 4 + s35 * 1024;
      float q37[4];
      st_unpack(q37, st_load_pack<4>(x2, i36));
      float q38[4];
      st_unpack(q38, st_load_pack<4>(x3, i36));
      float q39[4];
      #pragma unroll
      for (int e40 = 0; e40 < 4; ++e40) {
        const float t41 = h2[s35 * 4 + e40] / t34 * q37[e40];
        const float t42 = q38[e40];
        q39[e40] = t41 + t42;
      }
      st_store_pack<4>(y0, task * 4096 + i36, st_packed<4>(q39));
    }
    st_sync_block();
  }
}
