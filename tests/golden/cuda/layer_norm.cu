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
//       stage %11; loops i0 i1; vector i1 x 4; threads i1 x 256
//       stage %17; loops i0 i1; vector i1 x 4; threads i1 x 256
// %6: register to %7, %9
// %7: register to %8
// %11: register to %12
// inline wherever they are read: %8, %9, %10, %12, %13, %14, %15, %16

extern "C" __global__ void __launch_bounds__(256, 4)
layer_norm(const float* __restrict__ x0, const float* __restrict__ x1,
    const float* __restrict__ x2, const float* __restrict__ x3, float* __restrict__ y0) {
  const int thread = st_thread();
  if (const int block = st_block(); block < 2048) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 64);
    float h1[16];
    const int warp = thread / 32;
    const bool t2 = thread % 32 == 0;
    const int t3 = thread % 8;

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
    if (t2) {
      st_shared_store(b0, warp, t17);
    }
    st_sync_block();

    const float t18 = st_shared_load(b0, t3);
    const float t19 = t18 + st_shuffle_xor(t18, 1);
    const float t20 = t19 + st_shuffle_xor(t19, 2);
    const float t21 = (t20 + st_shuffle_xor(t20, 4)) / 4096.0f;

    float w22[4];
    #pragma unroll
    for (int l23 = 0; l23 < 4; ++l23) {
      w22[l23] = 0.0f;
    }
    #pragma unroll
    for (int s24 = 0; s24 < 4; ++s24) {
      #pragma unroll
      for (int e25 = 0; e25 < 4; ++e25) {
        const float t26 = h1[s24 * 4 + e25] - t21;
        w22[e25] += t26 * t26;
      }
    }

    const float t27 = w22[0] + w22[2] + (w22[1] + w22[3]);
    const float t28 = t27 + st_shuffle_xor(t27, 1);
    const float t29 = t28 + st_shuffle_xor(t28, 2);
    const float t30 = t29 + st_shuffle_xor(t29, 4);
    const float t31 = t30 + st_shuffle_xor(t30, 8);
    const float t32 = t31 + st_shuffle_xor(t31, 16);
    if (t2) {
      st_shared_store(b1, warp, t32);
    }
    st_sync_block();

    const float t33 = st_shared_load(b1, t3);
    const float t34 = t33 + st_shuffle_xor(t33, 1);
    const float t35 = t34 + st_shuffle_xor(t34, 2);
    const float t36 = sqrtf((t35 + st_shuffle_xor(t35, 4)) / 4096.0f + 1e-05f);
    #pragma unroll
    for (int s37 = 0; s37 < 4; ++s37) {
      const int i38 = thread * 4 + s37 * 1024;
      float q39[4];
      st_unpack(q39, st_load_pack<4>(x2, i38));
      float q40[4];
      st_unpack(q40, st_load_pack<4>(x3, i38));
      float q41[4];
      #pragma unroll
      for (int e42 = 0; e42 < 4; ++e42) {
        const float t43 = (h1[s37 * 4 + e42] - t21) / t36 * q39[e42];
        const float t44 = q40[e42];
        q41[e42] = t43 + t44;
      }
      st_store_pack<4>(y0, task * 4096 + i38, st_packed<4>(q41));
    }
  }
}
