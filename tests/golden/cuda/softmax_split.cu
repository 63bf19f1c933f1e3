// %0 = input f32 [i2, i3]
// %1 = max f32 [i0] over [i1] (%0[i0, i1])
// %2 = sub f32 [i0, i1] (%0[i0, i1], %1[i0])
// %3 = exp f32 [i0, i1] (%2[i0, i1])
// %4 = sum f32 [i0] over [i1] (%3[i0, i1])
// %5 = div f32 [i0, i1] (%3[i0, i1], %4[i0])    -> output
// i0 = 2, i1 = 2097152, i2 = 2, i3 = 2097152
//
// x0 = %0 f32 [2, 2097152]
// y0 = %5 f32 [2, 2097152]
//
// kernel 0, blocks of 1024 threads
//   phase 0
//     group: tasks over i0 by 1, i1 by 31776
//       stage %0, %1; loops i0 i1; vector i1 x 4; threads i1 x 1024; unrolled i1 x 2
//   phase 1 (after a barrier)
//     group: tasks over i0 by 1, i1 by 31776
//       stage; combines %1; loops i0
//       stage %4; loops i0 i1; vector i1 x 4; threads i1 x 1024; unrolled i1 x 2
//   phase 2 (after a barrier)
//     group: tasks over i0 by 1, i1 by 31776
//       stage; combines %4, %1; loops i0
//       stage %5; loops i0 i1; vector i1 x 4; threads i1 x 1024; unrolled i1 x 2
// %0: register to %1; block to %2
// %1: block to %2
// %4: block to %5
// inline wherever they are read: %2, %3

extern "C" __global__ void __launch_bounds__(1024, 1)
softmax_split(const float* __restrict__ x0, float* __restrict__ y0, float* g0, float* g1,
    unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 132) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 127104);
    const int k1 = task % 66;
    const int k2 = k1 * 31776;
    const int k3 = task / 66;
    const int warp = thread / 32;
    const bool t4 = thread % 32 == 0;

    float w5[4];
    #pragma unroll
    for (int l6 = 0; l6 < 4; ++l6) {
      w5[l6] = -ST_INFINITY;
    }
    #pragma unroll 2
    for (int i7 = thread * 4; i7 < st_min(31776, 2097152 - k2); i7 += 4096) {
      float q8[4];
      st_unpack(q8, st_load_pack<4>(x0, k3 * 2097152 + k2 + i7));
      float q9[4];
      #pragma unroll
      for (int e10 = 0; e10 < 4; ++e10) {
        const float t11 = q8[e10];
        q9[e10] = t11;
        w5[e10] = st_max(w5[e10], t11);
      }
      st_shared_store_pack<4>(c0, i7, st_packed<4>(q9));
    }

    const float t12 = st_max(st_max(w5[0], w5[2]), st_max(w5[1], w5[3]));
    const float t13 = st_max(t12, st_shuffle_xor(t12, 1));
    const float t14 = st_max(t13, st_shuffle_xor(t13, 2));
    const float t15 = st_max(t14, st_shuffle_xor(t14, 4));
    const float t16 = st_max(t15, st_shuffle_xor(t15, 8));
    const float t17 = st_max(t16, st_shuffle_xor(t16, 16));
    if (t4) {
      st_shared_store(b0, warp, t17);
    }
    st_sync_block();
    if (warp == 0) {
      const float t18 = st_shared_load(b0, thread % 32);
      const float t19 = st_max(t18, st_shuffle_xor(t18, 1));
      const float t20 = st_max(t19, st_shuffle_xor(t19, 2));
      const float t21 = st_max(t20, st_shuffle_xor(t20, 4));
      const float t22 = st_max(t21, st_shuffle_xor(t21, 8));
      const float t23 = st_max(t22, st_shuffle_xor(t22, 16));
      if (t4) {
        st_store(g0, k1 * 2 + k3, t23);
      }
    }
  }

  st_sync_grid(barrier);

  // phase 1
  if (const int block = st_block(); block < 132) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 127104);
    float* b1 = ST_SHARED(float, 127168);
    const int k1 = task % 66;
    const int k2 = task / 66;
    if (thread < 32) {
      float a3 = -ST_INFINITY;
      #pragma unroll 8
      for (int i4 = thread; i4 < 66; i4 += 32) {
        a3 = st_max(a3, st_load_cg(g0, k2 + i4 * 2));
      }
      const float t5 = st_max(a3, st_shuffle_xor(a3, 1));
      const float t6 = st_max(t5, st_shuffle_xor(t5, 2));
      const float t7 = st_max(t6, st_shuffle_xor(t6, 4));
      const float t8 = st_max(t7, st_shuffle_xor(t7, 8));
      const float t9 = st_max(t8, st_shuffle_xor(t8, 16));
      if (thread == 0) {
        st_shared_store(b0, 0, t9);
      }
    }
    st_sync_block();

    const int warp = thread / 32;
    const bool t10 = thread % 32 == 0;
    const float t11 = st_shared_load(b0, 0);

    float w12[4];
    #pragma unroll
    for (int l13 = 0; l13 < 4; ++l13) {
      w12[l13] = 0.0f;
    }
    #pragma unroll 2
    for (int i14 = thread * 4; i14 < st_min(31776, 2097152 - k1 * 31776); i14 += 4096) {
      float q15[4];
      st_unpack(q15, st_shared_load_pack<4>(c0, i14));
      #pragma unroll
      for (int e16 = 0; e16 < 4; ++e16) {
        w12[e16] += expf(q15[e16] - t11);
      }
    }

    const float t17 = w12[0] + w12[2] + (w12[1] + w12[3]);
    const float t18 = t17 + st_shuffle_xor(t17, 1);
    const float t19 = t18 + st_shuffle_xor(t18, 2);
    const float t20 = t19 + st_shuffle_xor(t19, 4);
    const float t21 = t20 + st_shuffle_xor(t20, 8);
    const float t22 = t21 + st_shuffle_xor(t21, 16);
    if (t10) {
      st_shared_store(b1, warp, t22);
    }
    st_sync_block();
    if (warp == 0) {
      const float t23 = st_shared_load(b1, thread % 32);
      const float t24 = t23 + st_shuffle_xor(t23, 1);
      const float t25 = t24 + st_shuffle_xor(t24, 2);
      const float t26 = t25 + st_shuffle_xor(t25, 4);
      const float t27 = t26 + st_shuffle_xor(t26, 8);
      const float t28 = t27 + st_shuffle_xor(t27, 16);
      if (t10) {
        st_store(g1, k1 * 2 + k2, t28);
      }
    }
  }

  st_sync_grid(barrier);

  // phase 2
  if (const int block = st_block(); block < 132) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 127104);
    float* b1 = ST_SHARED(float, 127168);
    const int k1 = task % 66 * 31776;
    const int k2 = task / 66;
    if (thread < 32) {
      const bool t3 = thread == 0;
      float a4 = -ST_INFINITY;
      #pragma unroll 8
      for (int i5 = thread; i5 < 66; i5 += 32) {
        a4 = st_max(a4, st_load_cg(g0, k2 + i5 * 2));
      }
      const float t6 = st_max(a4, st_shuffle_xor(a4, 1));
      const float t7 = st_max(t6, st_shuffle_xor(t6, 2));
      const float t8 = st_max(t7, st_shuffle_xor(t7, 4));
      const float t9 = st_max(t8, st_shuffle_xor(t8, 8));
      const float t10 = st_max(t9, st_shuffle_xor(t9, 16));
      if (t3) {
        st_shared_store(b0, 0, t10);
      }
      float a11 = 0.0f;
      #pragma unroll 8
      for (int i12 = thread; i12 < 66; i12 += 32) {
        a11 += st_load_cg(g1, k2 + i12 * 2);
      }
      const float t13 = a11 + st_shuffle_xor(a11, 1);
      const float t14 = t13 + st_shuffle_xor(t13, 2);
      const float t15 = t14 + st_shuffle_xor(t14, 4);
      const float t16 = t15 + st_shuffle_xor(t15, 8);
      const float t17 = t16 + st_shuffle_xor(t16, 16);
      if (t3) {
        st_shared_store(b1, 0, t17);
      }
    }
    st_sync_block();

    const float t18 = st_shared_load(b0, 0);
    const float t19 = st_shared_load(b1, 0);
    #pragma unroll 2
    for (int i20 = thread * 4; i20 < st_min(31776, 2097152 - k1); i20 += 4096) {
      float q21[4];
      st_unpack(q21, st_shared_load_pack<4>(c0, i20));
      float q22[4];
      #pragma unroll
      for (int e23 = 0; e23 < 4; ++e23) {
        q22[e23] = expf(q21[e23] - t18) / t19;
      }
      st_store_pack<4>(y0, k2 * 2097152 + k1 + i20, st_packed<4>(q22));
    }
  }
}
