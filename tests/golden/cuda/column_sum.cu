// %0 = input f32 [i2, i3]
// %1 = sum f32 [i0] over [i1] (%0[i1, i0])    -> output
// i0 = 1024, i1 = 16384, i2 = 16384, i3 = 1024
//
// x0 = %0 f32 [16384, 1024]
// y0 = %1 f32 [1024]
//
// kernel 0, blocks of 1024 threads
//   phase 0
//     group: tasks over i0 by 128, i1 by 1024
//       stage %1; loops i0 i1; vector i0 x 4; threads i1 x 32, i0 x 32; unrolled i1 x 2
//   phase 1 (after a barrier)
//     group: tasks over i0 by 8
//       stage; combines %1; loops i0; vector i0 x 1; threads i0 x 8

extern "C" __global__ void __launch_bounds__(1024, 1)
column_sum(const float* __restrict__ x0, float* __restrict__ y0, float* g0, unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 128) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    const int k1 = task % 16;
    const int k2 = task / 16 * 128;
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int i3 = lane * 4;

    float w4[4];
    #pragma unroll
    for (int l5 = 0; l5 < 4; ++l5) {
      w4[l5] = 0.0f;
    }

    const int k6 = k1 * 1024;
    #pragma unroll 2
    for (int i7 = warp; i7 < 1024; i7 += 32) {
      float q8[4];
      st_unpack(q8, st_load_pack<4>(x0, (k6 + i7) * 1024 + k2 + i3));
      #pragma unroll
      for (int e9 = 0; e9 < 4; ++e9) {
        w4[e9] += q8[e9];
      }
    }
    #pragma unroll
    for (int e10 = 0; e10 < 4; ++e10) {
      st_shared_store(b0, thread + e10 * 1024, w4[e10]);
    }
    st_sync_block();
    #pragma unroll 4
    for (int e11 = 0; e11 < 4; ++e11) {
      if (warp == e11) {
        const float t12 = st_shared_load(b0, lane + e11 * 1024);
        const float t13 = st_shared_load(b0, lane + e11 * 1024 + 128);
        const float t14 = st_shared_load(b0, lane + e11 * 1024 + 32);
        const float t15 = st_shared_load(b0, lane + e11 * 1024 + 160);
        const float t16 = st_shared_load(b0, lane + e11 * 1024 + 64);
        const float t17 = st_shared_load(b0, lane + e11 * 1024 + 192);
        const float t18 = st_shared_load(b0, lane + e11 * 1024 + 96);
        const float t19 = st_shared_load(b0, lane + e11 * 1024 + 224);
        const float t20 = t14 + t15 + (t18 + t19);
        const float t21 = st_shared_load(b0, lane + e11 * 1024 + 256);
        const float t22 = st_shared_load(b0, lane + e11 * 1024 + 384);
        const float t23 = st_shared_load(b0, lane + e11 * 1024 + 288);
        const float t24 = st_shared_load(b0, lane + e11 * 1024 + 416);
        const float t25 = st_shared_load(b0, lane + e11 * 1024 + 320);
        const float t26 = st_shared_load(b0, lane + e11 * 1024 + 448);
        const float t27 = st_shared_load(b0, lane + e11 * 1024 + 352);
        const float t28 = st_shared_load(b0, lane + e11 * 1024 + 480);
        const float t29 = t23 + t24 + (t27 + t28);
        const float t30 = t21 + t22 + (t25 + t26) + t29;
        const float t31 = st_shared_load(b0, lane + e11 * 1024 + 512);
        const float t32 = st_shared_load(b0, lane + e11 * 1024 + 640);
        const float t33 = st_shared_load(b0, lane + e11 * 1024 + 544);
        const float t34 = st_shared_load(b0, lane + e11 * 1024 + 672);
        const float t35 = st_shared_load(b0, lane + e11 * 1024 + 576);
        const float t36 = st_shared_load(b0, lane + e11 * 1024 + 704);
        const float t37 = st_shared_load(b0, lane + e11 * 1024 + 608);
        const float t38 = st_shared_load(b0, lane + e11 * 1024 + 736);
        const float t39 = t33 + t34 + (t37 + t38);
        const float t40 = t31 + t32 + (t35 + t36) + t39;
        const float t41 = st_shared_load(b0, lane + e11 * 1024 + 768);
        const float t42 = st_shared_load(b0, lane + e11 * 1024 + 896);
        const float t43 = st_shared_load(b0, lane + e11 * 1024 + 800);
        const float t44 = st_shared_load(b0, lane + e11 * 1024 + 928);
        const float t45 = st_shared_load(b0, lane + e11 * 1024 + 832);
        const float t46 = st_shared_load(b0, lane + e11 * 1024 + 960);
        const float t47 = st_shared_load(b0, lane + e11 * 1024 + 864);
        const float t48 = st_shared_load(b0, lane + e11 * 1024 + 992);
        const float t49 = t43 + t44 + (t47 + t48);
        const float t50 = t12 + t13 + (t16 + t17) + t20 + t30 + t40;
        const float t51 = t41 + t42 + (t45 + t46) + t49;
        st_store(g0, k1 * 1024 + k2 + i3 + e11, t50 + t51);
      }
    }
  }

  st_sync_grid(barrier);

  // phase 1
  if (const int block = st_block(); block < 128) {
    const int task = block;
    const int k1 = task * 8;
    const int t2 = thread % 8;
    const int t3 = thread / 8;
    if (thread < 32) {
      float a4 = 0.0f;
      #pragma unroll 8
      for (int i5 = t3; i5 < 16; i5 += 4) {
        a4 += st_load_cg(g0, k1 + t2 + i5 * 1024);
      }
      const float t6 = a4 + st_shuffle_xor(a4, 8);
      const float t7 = t6 + st_shuffle_xor(t6, 16);
      if (t3 == 0) {
        st_store(y0, k1 + t2, t7);
      }
    }
  }
}
