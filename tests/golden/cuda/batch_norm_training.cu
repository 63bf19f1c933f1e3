// %0 = input f32 [i3, i4, i5]
// %1 = input f32 [i6]
// %2 = input f32 [i7]
// %3 = input f32 [i8]
// %4 = input f32 [i9]
// %5 = const f32 [] 0.10000000149011612
// %6 = const f32 [] 25088.0
// %7 = const f32 [] 0.8999999761581421
// %8 = const f32 [] 0.0
// %9 = const f32 [] 9.999999747378752e-06
// %10 = sum f32 [i0] over [i1, i2] (%0[i1, i0, i2])
// %11 = div f32 [i0] (%10[i0], %6[])
// %12 = mul f32 [i0] (%5[], %11[i0])
// %13 = mul f32 [i0] (%1[i0], %7[])
// %14 = add f32 [i0] (%12[i0], %13[i0])    -> output
// %15 = sub f32 [i1, i0, i2] (%0[i1, i0, i2], %11[i0])
// %16 = mul f32 [i1, i0, i2] (%15[i1, i0, i2], %15[i1, i0, i2])
// %17 = sum f32 [i0] over [i1, i2] (%16[i1, i0, i2])
// %18 = div f32 [i0] (%17[i0], %6[])
// %19 = add f32 [i0] (%9[], %18[i0])
// %20 = sqrt f32 [i0] (%19[i0])
// %21 = div f32 [i1, i0, i2] (%15[i1, i0, i2], %20[i0])
// %22 = mul f32 [i1, i0, i2] (%21[i1, i0, i2], %3[i0])
// %23 = add f32 [i1, i0, i2] (%2[i0], %22[i1, i0, i2])
// %24 = maximum f32 [i1, i0, i2] (%8[], %23[i1, i0, i2])    -> output
// %25 = mul f32 [i0] (%7[], %4[i0])
// %26 = mul f32 [i0] (%5[], %18[i0])
// %27 = add f32 [i0] (%25[i0], %26[i0])    -> output
// i0 = 64, i1 = 32, i2 = 784, i3 = 32, i4 = 64, i5 = 784, i6 = 64, i7 = 64, i8 = 64, i9 = 64
//
// x0 = %0 f32 [32, 64, 784]
// x1 = %1 f32 [64]
// x2 = %2 f32 [64]
// x3 = %3 f32 [64]
// x4 = %4 f32 [64]
// y0 = %14 f32 [64]
// y1 = %24 f32 [32, 64, 784]
// y2 = %27 f32 [64]
//
// kernel 0, blocks of 1024 threads
//   phase 0
//     group: tasks over i0 by 1, i1 by 16, i2 by 784
//       stage %0, %10; loops i0 i1 i2; vector i2 x 4; threads i1 x 4, i2 x 256
//   phase 1 (after a barrier)
//     group: tasks over i0 by 1, i1 by 16, i2 by 784
//       stage; combines %10; loops i0; vector i0 x 1
//       stage %17; loops i0 i1 i2; vector i2 x 4; threads i1 x 4, i2 x 256
//     group: tasks over i0 by 32
//       stage; combines %10; loops i0; vector i0 x 1; threads i0 x 32
//       stage %14; loops i0; vector i0 x 1; threads i0 x 32
//   phase 2 (after a barrier)
//     group: tasks over i0 by 1, i1 by 16, i2 by 784
//       stage; combines %17, %10; loops i0; vector i0 x 1
//       stage %24; loops i1 i0 i2; vector i2 x 4; threads i1 x 5, i2 x 196
//     group: tasks over i0 by 32
//       stage; combines %17; loops i0; vector i0 x 1; threads i0 x 32
//       stage %27; loops i0; vector i0 x 1; threads i0 x 32
// %0: register to %10; block to %15
// %10: block to %11
// %17: block to %18
// inline wherever they are read: %11, %12, %13, %15, %16, %18, %19, %20, %21, %22, %23, %25, %26

extern "C" __global__ void __launch_bounds__(1024, 1)
batch_norm_training(const float* __restrict__ x0, const float* __restrict__ x1,
    const float* __restrict__ x2, const float* __restrict__ x3, const float* __restrict__ x4,
    float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* g0, float* g1,
    unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 128) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 50176);
    const int k1 = task % 2;
    const int k2 = task / 2;
    const int warp = thread / 32;
    const bool t3 = thread % 32 == 0;

    float w4[4];
    #pragma unroll
    for (int l5 = 0; l5 < 4; ++l5) {
      w4[l5] = 0.0f;
    }

    const int k6 = k1 * 16;
    const int t7 = thread % 256;
    for (int i8 = thread / 256; i8 < 16; i8 += 4) {
      const int i9 = t7 * 4;
      if (i9 < 784) {
        float q10[4];
        st_unpack(q10, st_load_pack<4>(x0, (k6 + i8) * 50176 + k2 * 784 + i9));
        float q11[4];
        #pragma unroll
        for (int e12 = 0; e12 < 4; ++e12) {
          const float t13 = q10[e12];
          q11[e12] = t13;
          w4[e12] += t13;
        }
        st_shared_store_pack<4>(c0, i8 * 784 + i9, st_packed<4>(q11));
      }
    }

    const float t14 = w4[0] + w4[2] + (w4[1] + w4[3]);
    const float t15 = t14 + st_shuffle_xor(t14, 1);
    const float t16 = t15 + st_shuffle_xor(t15, 2);
    const float t17 = t16 + st_shuffle_xor(t16, 4);
    const float t18 = t17 + st_shuffle_xor(t17, 8);
    const float t19 = t18 + st_shuffle_xor(t18, 16);
    if (t3) {
      st_shared_store(b0, warp, t19);
    }
    st_sync_block();
    if (warp == 0) {
      const float t20 = st_shared_load(b0, thread % 32);
      const float t21 = t20 + st_shuffle_xor(t20, 1);
      const float t22 = t21 + st_shuffle_xor(t21, 2);
      const float t23 = t22 + st_shuffle_xor(t22, 4);
      const float t24 = t23 + st_shuffle_xor(t23, 8);
      const float t25 = t24 + st_shuffle_xor(t24, 16);
      if (t3) {
        st_store(g0, k1 * 64 + k2, t25);
      }
    }
  }

  st_sync_grid(barrier);

  // phase 1
  if (const int block = st_block(); block < 130) {
    if (block < 128) {
      const int task = block;
      float* c0 = ST_SHARED(float, 0);
      float* b0 = ST_SHARED(float, 50176);
      float* b1 = ST_SHARED(float, 50240);
      const int k1 = task / 2;
      if (thread == 0) {
        float a2 = 0.0f;
        #pragma unroll 8
        for (int i3 = 0; i3 < 2; ++i3) {
          a2 += st_load_cg(g0, k1 + i3 * 64);
        }
        st_shared_store(b0, 0, a2);
      }
      st_sync_block();

      const int warp = thread / 32;
      const bool t4 = thread % 32 == 0;
      const float t5 = st_shared_load(b0, 0) / 25088.0f;

      float w6[4];
      #pragma unroll
      for (int l7 = 0; l7 < 4; ++l7) {
        w6[l7] = 0.0f;
      }

      const int t8 = thread % 256;
      for (int i9 = thread / 256; i9 < 16; i9 += 4) {
        const int i10 = t8 * 4;
        if (i10 < 784) {
          float q11[4];
          st_unpack(q11, st_shared_load_pack<4>(c0, i9 * 784 + i10));
          #pragma unroll
          for (int e12 = 0; e12 < 4; ++e12) {
            const float t13 = q11[e12] - t5;
            w6[e12] += t13 * t13;
          }
        }
      }

      const float t14 = w6[0] + w6[2] + (w6[1] + w6[3]);
      const float t15 = t14 + st_shuffle_xor(t14, 1);
      const float t16 = t15 + st_shuffle_xor(t15, 2);
      const float t17 = t16 + st_shuffle_xor(t16, 4);
      const float t18 = t17 + st_shuffle_xor(t17, 8);
      const float t19 = t18 + st_shuffle_xor(t18, 16);
      if (t4) {
        st_shared_store(b1, warp, t19);
      }
      st_sync_block();
      if (warp == 0) {
        const float t20 = st_shared_load(b1, thread % 32);
        const float t21 = t20 + st_shuffle_xor(t20, 1);
        const float t22 = t21 + st_shuffle_xor(t21, 2);
        const float t23 = t22 + st_shuffle_xor(t22, 4);
        const float t24 = t23 + st_shuffle_xor(t23, 8);
        const float t25 = t24 + st_shuffle_xor(t24, 16);
        if (t4) {
          st_store(g1, task % 2 * 64 + k1, t25);
        }
      }
    } else {
      const int task = block - 128;
      float* b0 = ST_SHARED(float, 50176);
      const int k1 = task * 32;
      if (thread < 32) {
        float a2 = 0.0f;
        #pragma unroll 8
        for (int i3 = 0; i3 < 2; ++i3) {
          a2 += st_load_cg(g0, k1 + thread + i3 * 64);
        }
        st_shared_store(b0, thread, a2);
      }
      if (thread < 32) {
        st_store(y0, k1 + thread, 0.1f * (st_shared_load(b0, thread) / 25088.0f) + st_load(x1, k1 + thread) * 0.9f);
      }
    }
  }

  st_sync_grid(barrier);

  // phase 2
  if (const int block = st_block(); block < 130) {
    if (block < 128) {
      const int task = block;
      float* c0 = ST_SHARED(float, 0);
      float* b0 = ST_SHARED(float, 50176);
      float* b1 = ST_SHARED(float, 50240);
      const int k1 = task / 2;
      if (thread == 0) {
        float a2 = 0.0f;
        #pragma unroll 8
        for (int i3 = 0; i3 < 2; ++i3) {
          a2 += st_load_cg(g0, k1 + i3 * 64);
        }
        st_shared_store(b0, 0, a2);
        float a4 = 0.0f;
        #pragma unroll 8
        for (int i5 = 0; i5 < 2; ++i5) {
          a4 += st_load_cg(g1, k1 + i5 * 64);
        }
        st_shared_store(b1, 0, a4);
      }
      st_sync_block();
      if (thread < 980) {
        const float t6 = st_load(x2, k1);
        const float t7 = st_shared_load(b0, 0) / 25088.0f;
        const float t8 = sqrtf(1e-05f + st_shared_load(b1, 0) / 25088.0f);
        const float t9 = st_load(x3, k1);
        const int k10 = task % 2 * 16;
        const int t11 = thread % 196;
        for (int i12 = thread / 196; i12 < 16; i12 += 5) {
          const int i13 = t11 * 4;
          float q14[4];
          st_unpack(q14, st_shared_load_pack<4>(c0, i12 * 784 + i13));
          float q15[4];
          #pragma unroll
          for (int e16 = 0; e16 < 4; ++e16) {
            q15[e16] = st_max(0.0f, t6 + (q14[e16] - t7) / t8 * t9);
          }
          st_store_pack<4>(y1, (k10 + i12) * 50176 + k1 * 784 + i13, st_packed<4>(q15));
        }
      }
    } else {
      const int task = block - 128;
      float* b0 = ST_SHARED(float, 50176);
      const int k1 = task * 32;
      if (thread < 32) {
        float a2 = 0.0f;
        #pragma unroll 8
        for (int i3 = 0; i3 < 2; ++i3) {
          a2 += st_load_cg(g1, k1 + thread + i3 * 64);
        }
        st_shared_store(b0, thread, a2);
      }
      if (thread < 32) {
        st_store(y2, k1 + thread, 0.9f * st_load(x4, k1 + thread) + 0.1f * (st_shared_load(b0, thread) / 25088.0f));
      }
    }
  }
}
