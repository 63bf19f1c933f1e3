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
//       stage %0, %1; loops i0 i1; vector i1 x 4; threads i1 x 1024
//   phase 1 (after a barrier)
//     group: tasks over i0 by 1, i1 by 31776
//       stage; combines %1; loops i0
//       stage %4; loops i0 i1; vector i1 x 4; threads i1 x 1024
//   phase 2 (after a barrier)
//     group: tasks over i0 by 1, i1 by 31776
//       stage; combines %4, %1; loops i0
//       stage %5; loops i0 i1; vector i1 x 4; threads i1 x 1024
// %0: register to %1; block to %2
// %1: block to %2
// %2: inline to %3
// %3: inline to %4, %5
// %4: block to %5

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

    float w4[4];
    #pragma unroll
    for (int l5 = 0; l5 < 4; ++l5) {
      w4[l5] = -ST_INFINITY;
    }
    for (int i6 = thread * 4; i6 < st_min(31776, 2097152 - k2); i6 += 4096) {
      float q7[4];
      st_unpack(q7, st_load_pack<4>(x0, k3 * 2097152 + k2 + i6));
      float q8[4];
      #pragma unroll
      for (int e9 = 0; e9 < 4; ++e9) {
        const float t10 = q7[e9];
        q8[e9] = t10;
        w4[e9] = st_max(w4[e9], t10);
      }
      st_shared_store_pack<4>(c0, i6, st_packed<4>(q8));
    }

    const float t11 = st_max(st_max(w4[0], w4[2]), st_max(w4[1], w4[3]));
    const float t12 = st_max(t11, st_shuffle_xor(t11, 1));
    const float t13 = st_max(t12, st_shuffle_xor(t12, 2));
    const float t14 = st_max(t13, st_shuffle_xor(t13, 4));
    const float t15 = st_max(t14, st_shuffle_xor(t14, 8));
    const float t16 = st_max(t15, st_shuffle_xor(t15, 16));
    if (thread % 32 == 0) {
      st_shared_store(b0, thread / 32, t16);
    }
    st_sync_block();

    const float t17 = st_max(st_max(st_shared_load(b0, 0), st_shared_load(b0, 16)), st_max(st_shared_load(b0, 8), st_shared_load(b0, 24)));
    const float t18 = st_max(st_max(st_shared_load(b0, 4), st_shared_load(b0, 20)), st_max(st_shared_load(b0, 12), st_shared_load(b0, 28)));
    const float t19 = st_max(st_max(st_shared_load(b0, 1), st_shared_load(b0, 17)), st_max(st_shared_load(b0, 9), st_shared_load(b0, 25)));
    const float t20 = st_max(st_max(st_shared_load(b0, 5), st_shared_load(b0, 21)), st_max(st_shared_load(b0, 13), st_shared_load(b0, 29)));
    const float t21 = st_max(st_max(st_shared_load(b0, 2), st_shared_load(b0, 18)), st_max(st_shared_load(b0, 10), st_shared_load(b0, 26)));
    const float t22 = st_max(st_max(st_shared_load(b0, 6), st_shared_load(b0, 22)), st_max(st_shared_load(b0, 14), st_shared_load(b0, 30)));
    const float t23 = st_max(st_max(st_shared_load(b0, 3), st_shared_load(b0, 19)), st_max(st_shared_load(b0, 11), st_shared_load(b0, 27)));
    const float t24 = st_max(st_max(st_shared_load(b0, 7), st_shared_load(b0, 23)), st_max(st_shared_load(b0, 15), st_shared_load(b0, 31)));
    const float t25 = st_max(st_max(t19, t20), st_max(t23, t24));
    if (thread == 0) {
      st_store(g0, k1 * 2 + k3, st_max(st_max(st_max(t17, t18), st_max(t21, t22)), t25));
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
    if (thread < 1) {
      float a3 = -ST_INFINITY;
      #pragma unroll 4
      for (int i4 = 0; i4 < 66; ++i4) {
        a3 = st_max(a3, st_load_cg(g0, k2 + i4 * 2));
      }
      st_shared_store(b0, 0, a3);
    }
    st_sync_block();

    const float t5 = st_shared_load(b0, 0);

    float w6[4];
    #pragma unroll
    for (int l7 = 0; l7 < 4; ++l7) {
      w6[l7] = 0.0f;
    }
    for (int i8 = thread * 4; i8 < st_min(31776, 2097152 - k1 * 31776); i8 += 4096) {
      float q9[4];
      st_unpack(q9, st_shared_load_pack<4>(c0, i8));
      #pragma unroll
      for (int e10 = 0; e10 < 4; ++e10) {
        w6[e10] += expf(q9[e10] - t5);
      }
    }

    const float t11 = w6[0] + w6[2] + (w6[1] + w6[3]);
    const float t12 = t11 + st_shuffle_xor(t11, 1);
    const float t13 = t12 + st_shuffle_xor(t12, 2);
    const float t14 = t13 + st_shuffle_xor(t13, 4);
    const float t15 = t14 + st_shuffle_xor(t14, 8);
    const float t16 = t15 + st_shuffle_xor(t15, 16);
    if (thread % 32 == 0) {
      st_shared_store(b1, thread / 32, t16);
    }
    st_sync_block();

    const float t17 = st_shared_load(b1, 0) + st_shared_load(b1, 16) + (st_shared_load(b1, 8) + st_shared_load(b1, 24));
    const float t18 = st_shared_load(b1, 4) + st_shared_load(b1, 20) + (st_shared_load(b1, 12) + st_shared_load(b1, 28));
    const float t19 = st_shared_load(b1, 1) + st_shared_load(b1, 17) + (st_shared_load(b1, 9) + st_shared_load(b1, 25));
    const float t20 = st_shared_load(b1, 5) + st_shared_load(b1, 21) + (st_shared_load(b1, 13) + st_shared_load(b1, 29));
    const float t21 = st_shared_load(b1, 2) + st_shared_load(b1, 18) + (st_shared_load(b1, 10) + st_shared_load(b1, 26));
    const float t22 = st_shared_load(b1, 6) + st_shared_load(b1, 22) + (st_shared_load(b1, 14) + st_shared_load(b1, 30));
    const float t23 = st_shared_load(b1, 3) + st_shared_load(b1, 19) + (st_shared_load(b1, 11) + st_shared_load(b1, 27));
    const float t24 = st_shared_load(b1, 7) + st_shared_load(b1, 23) + (st_shared_load(b1, 15) + st_shared_load(b1, 31));
    const float t25 = t19 + t20 + (t23 + t24);
    if (thread == 0) {
      st_store(g1, k1 * 2 + k2, t17 + t18 + (t21 + t22) + t25);
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
    if (thread < 1) {
      float a3 = -ST_INFINITY;
      #pragma unroll 4
      for (int i4 = 0; i4 < 66; ++i4) {
        a3 = st_max(a3, st_load_cg(g0, k2 + i4 * 2));
      }
      st_shared_store(b0, 0, a3);
      float a5 = 0.0f;
      #pragma unroll 4
      for (int i6 = 0; i6 < 66; ++i6) {
        a5 += st_load_cg(g1, k2 + i6 * 2);
      }
      st_shared_store(b1, 0, a5);
    }
    st_sync_block();

    const float t7 = st_shared_load(b0, 0);
    const float t8 = st_shared_load(b1, 0);
    for (int i9 = thread * 4; i9 < st_min(31776, 2097152 - k1); i9 += 4096) {
      float q10[4];
      st_unpack(q10, st_shared_load_pack<4>(c0, i9));
      float q11[4];
      #pragma unroll
      for (int e12 = 0; e12 < 4; ++e12) {
        q11[e12] = expf(q10[e12] - t7) / t8;
      }
      st_store_pack<4>(y0, k2 * 2097152 + k1 + i9, st_packed<4>(q11));
    }
  }
}
