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
// %9: register to %10, %15
// %11: register to %12
// inline wherever they are read: %8, %10, %12, %13, %14, %15, %16

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
    const int t4 = thread % 8;

    float w5[4];
    #pragma unroll
    for (int l6 = 0; l6 < 4; ++l6) {
      w5[l6] = 0.0f;
    }
    #pragma unroll
    for (int s7 = 0; s7 < 4; ++s7) {
      const int i8 = thread * 4 + s7 * 1024;
      float q9[4];
      st_unpack(q9, st_load_pack<4>(x0, task * 4096 + i8));
      float q10[4];
      st_unpack(q10, st_load_pack<4>(x1, task * 4096 + i8));
      #pragma unroll
      for (int e11 = 0; e11 < 4; ++e11) {
        const float t12 = q9[e11] + q10[e11];
        h1[s7 * 4 + e11] = t12;
        w5[e11] += t12;
      }
    }

    const float t13 = w5[0] + w5[2] + (w5[1] + w5[3]);
    const float t14 = t13 + st_shuffle_xor(t13, 1);
    const float t15 = t14 + st_shuffle_xor(t14, 2);
    const float t16 = t15 + st_shuffle_xor(t15, 4);
    const float t17 = t16 + st_shuffle_xor(t16, 8);
    const float t18 = t17 + st_shuffle_xor(t17, 16);
    if (t3) {
      st_shared_store(b0, warp, t18);
    }
    st_sync_block();

    const float t19 = st_shared_load(b0, t4);
    const float t20 = t19 + st_shuffle_xor(t19, 1);
    const float t21 = t20 + st_shuffle_xor(t20, 2);
    const float t22 = (t21 + st_shuffle_xor(t21, 4)) / 4096.0f;

    float w23[4];
    #pragma unroll
    for (int l24 = 0; l24 < 4; ++l24) {
      w23[l24] = 0.0f;
    }
    #pragma unroll
    for (int s25 = 0; s25 < 4; ++s25) {
      #pragma unroll
      for (int e26 = 0; e26 < 4; ++e26) {
        const float t27 = h1[s25 * 4 + e26] - t22;
        h2[s25 * 4 + e26] = t27;
        w23[e26] += t27 * t27;
      }
    }

    const float t28 = w23[0] + w23[2] + (w23[1] + w23[3]);
    const float t29 = t28 + st_shuffle_xor(t28, 1);
    const float t30 = t29 + st_shuffle_xor(t29, 2);
    const float t31 = t30 + st_shuffle_xor(t30, 4);
    const float t32 = t31 + st_shuffle_xor(t31, 8);
    const float t33 = t32 + st_shuffle_xor(t32, 16);
    if (t3) {
      st_shared_store(b1, warp, t33);
    }
    st_sync_block();

    const float t34 = st_shared_load(b1, t4);
    const float t35 = t34 + st_shuffle_xor(t34, 1);
    const float t36 = t35 + st_shuffle_xor(t35, 2);
    const float t37 = sqrtf((t36 + st_shuffle_xor(t36, 4)) / 4096.0f + 1e-05f);
    #pragma unroll
    for (int s38 = 0; s38 < 4; ++s38) {
      const int i39 = thread * 4 + s38 * 1024;
      float q40[4];
      st_unpack(q40, st_load_pack<4>(x2, i39));
      float q41[4];
      st_unpack(q41, st_load_pack<4>(x3, i39));
      float q42[4];
      #pragma unroll
      for (int e43 = 0; e43 < 4; ++e43) {
        const float t44 = h2[s38 * 4 + e43] / t37 * q40[e43];
        const float t45 = q41[e43];
        q42[e43] = t44 + t45;
      }
      st_store_pack<4>(y0, task * 4096 + i39, st_packed<4>(q42));
    }
    st_sync_block();
  }
}
