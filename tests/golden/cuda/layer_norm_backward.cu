// %0 = input f32 [i2, i3]
// %1 = input f32 [i4]
// %2 = input f32 [i5]
// %3 = input f32 [i6, i7]
// %4 = const f32 [] 768.0
// %5 = sum f32 [i0] over [i1] (%0[i1, i0])    -> output
// %6 = mul f32 [i1, i0] (%0[i1, i0], %2[i0])
// %7 = sum f32 [i1] over [i0] (%6[i1, i0])
// %8 = div f32 [i1] (%7[i1], %4[])
// %9 = sub f32 [i1, i0] (%6[i1, i0], %8[i1])
// %10 = mul f32 [i1, i0] (%6[i1, i0], %3[i1, i0])
// %11 = sum f32 [i1] over [i0] (%10[i1, i0])
// %12 = div f32 [i1] (%11[i1], %4[])
// %13 = mul f32 [i1, i0] (%3[i1, i0], %12[i1])
// %14 = sub f32 [i1, i0] (%9[i1, i0], %13[i1, i0])
// %15 = mul f32 [i1, i0] (%1[i1], %14[i1, i0])    -> output
// %16 = mul f32 [i1, i0] (%0[i1, i0], %3[i1, i0])
// %17 = sum f32 [i0] over [i1] (%16[i1, i0])    -> output
// i0 = 768, i1 = 4096, i2 = 4096, i3 = 768, i4 = 4096, i5 = 768, i6 = 4096, i7 = 768
//
// x0 = %0 f32 [4096, 768]
// x1 = %1 f32 [4096]
// x2 = %2 f32 [768]
// x3 = %3 f32 [4096, 768]
// y0 = %5 f32 [768]
// y1 = %15 f32 [4096, 768]
// y2 = %17 f32 [768]
//
// kernel 0, blocks of 1024 threads
//   phase 0
//     group: tasks over i1 by 32
//       stage %0, %5, %17; loops i0 i1; vector i0 x 4; threads i1 x 32, i0 x 32
//       stage %2; loops i0; vector i0 x 4; threads i0 x 32
//       stage %7, %11; loops i1 i0; vector i0 x 4; threads i1 x 32, i0 x 32
//       stage %15; loops i1 i0; vector i0 x 4; threads i1 x 32, i0 x 32
//   phase 1 (after a barrier)
//     group: tasks over i0 by 8
//       stage; combines %5, %17; loops i0; vector i0 x 1; threads i0 x 8
// %0: register to %5, %16; block to %6
// %2: block to %6
// %7: register to %8
// %11: register to %12
// inline wherever they are read: %6, %8, %9, %10, %12, %13, %14, %16

extern "C" __global__ void __launch_bounds__(1024, 1)
layer_norm_backward(const float* __restrict__ x0, const float* __restrict__ x1,
    const float* __restrict__ x2, const float* __restrict__ x3, float* __restrict__ y0,
    float* __restrict__ y1, float* __restrict__ y2, float* g0, float* g1, unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 128) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 98304);
    float* b2 = ST_SHARED(float, 131072);
    float* b3 = ST_SHARED(float, 163840);
    const int k1 = task * 32;
    const int lane = thread % 32;
    const int warp = thread / 32;
    const int t2 = lane + warp * 32;
    for (int i3 = 0; i3 < 768; i3 += 128) {
      const int i4 = i3 + lane * 4;
      float w5[4];
      #pragma unroll
      for (int l6 = 0; l6 < 4; ++l6) {
        w5[l6] = 0.0f;
      }
      float w7[4];
      #pragma unroll
      for (int l8 = 0; l8 < 4; ++l8) {
        w7[l8] = 0.0f;
      }
      float q9[4];
      st_unpack(q9, st_load_pack<4>(x0, (k1 + warp) * 768 + i4));
      float q10[4];
      float q11[4];
      st_unpack(q11, st_load_pack<4>(x3, (k1 + warp) * 768 + i4));
      #pragma unroll
      for (int e12 = 0; e12 < 4; ++e12) {
        const float t13 = q9[e12];
        q10[e12] = t13;
        w5[e12] += t13;
        w7[e12] += t13 * q11[e12];
      }
      st_shared_store_pack<4>(b0, warp * 768 + i4, st_packed<4>(q10));
      const int t14 = int(unsigned(i3 / 128) % 2u);
      #pragma unroll
      for (int e15 = 0; e15 < 4; ++e15) {
        st_shared_store(b1, t2 + e15 * 1024 + t14 * 4096, w5[e15]);
      }
      st_sync_block();
      #pragma unroll 4
      for (int e16 = 0; e16 < 4; ++e16) {
        if (warp == e16) {
          const float t17 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096);
          const float t18 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 128);
          const float t19 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 32);
          const float t20 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 160);
          const float t21 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 64);
          const float t22 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 192);
          const float t23 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 96);
          const float t24 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 224);
          const float t25 = t19 + t20 + (t23 + t24);
          const float t26 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 256);
          const float t27 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 384);
          const float t28 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 288);
          const float t29 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 416);
          const float t30 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 320);
          const float t31 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 448);
          const float t32 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 352);
          const float t33 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 480);
          const float t34 = t28 + t29 + (t32 + t33);
          const float t35 = t26 + t27 + (t30 + t31) + t34;
          const float t36 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 512);
          const float t37 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 640);
          const float t38 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 544);
          const float t39 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 672);
          const float t40 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 576);
          const float t41 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 704);
          const float t42 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 608);
          const float t43 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 736);
          const float t44 = t38 + t39 + (t42 + t43);
          const float t45 = t36 + t37 + (t40 + t41) + t44;
          const float t46 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 768);
          const float t47 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 896);
          const float t48 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 800);
          const float t49 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 928);
          const float t50 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 832);
          const float t51 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 960);
          const float t52 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 864);
          const float t53 = st_shared_load(b1, lane + e16 * 1024 + t14 * 4096 + 992);
          const float t54 = t48 + t49 + (t52 + t53);
          const float t55 = t17 + t18 + (t21 + t22) + t25 + t35 + t45;
          const float t56 = t46 + t47 + (t50 + t51) + t54;
          st_store(g0, task * 768 + i4 + e16, t55 + t56);
        }
      }
      #pragma unroll
      for (int e57 = 0; e57 < 4; ++e57) {
        st_shared_store(b2, t2 + e57 * 1024 + t14 * 4096, w7[e57]);
      }
      st_sync_block();
      #pragma unroll 4
      for (int e58 = 0; e58 < 4; ++e58) {
        if (warp == e58) {
          const float t59 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096);
          const float t60 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 128);
          const float t61 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 32);
          const float t62 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 160);
          const float t63 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 64);
          const float t64 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 192);
          const float t65 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 96);
          const float t66 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 224);
          const float t67 = t61 + t62 + (t65 + t66);
          const float t68 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 256);
          const float t69 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 384);
          const float t70 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 288);
          const float t71 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 416);
          const float t72 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 320);
          const float t73 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 448);
          const float t74 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 352);
          const float t75 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 480);
          const float t76 = t70 + t71 + (t74 + t75);
          const float t77 = t68 + t69 + (t72 + t73) + t76;
          const float t78 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 512);
          const float t79 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 640);
          const float t80 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 544);
          const float t81 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 672);
          const float t82 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 576);
          const float t83 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 704);
          const float t84 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 608);
          const float t85 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 736);
          const float t86 = t80 + t81 + (t84 + t85);
          const float t87 = t78 + t79 + (t82 + t83) + t86;
          const float t88 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 768);
          const float t89 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 896);
          const float t90 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 800);
          const float t91 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 928);
          const float t92 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 832);
          const float t93 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 960);
          const float t94 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 864);
          const float t95 = st_shared_load(b2, lane + e58 * 1024 + t14 * 4096 + 992);
          const float t96 = t90 + t91 + (t94 + t95);
          const float t97 = t59 + t60 + (t63 + t64) + t67 + t77 + t87;
          const float t98 = t88 + t89 + (t92 + t93) + t96;
          st_store(g1, task * 768 + i4 + e58, t97 + t98);
        }
      }
    }
    if (thread < 32) {
      for (int i99 = thread * 4; i99 < 768; i99 += 128) {
        float q100[4];
        st_unpack(q100, st_load_pack<4>(x2, i99));
        float q101[4];
        #pragma unroll
        for (int e102 = 0; e102 < 4; ++e102) {
          q101[e102] = q100[e102];
        }
        st_shared_store_pack<4>(b3, i99, st_packed<4>(q101));
      }
    }
    st_sync_block();

    float w103[4];
    #pragma unroll
    for (int l104 = 0; l104 < 4; ++l104) {
      w103[l104] = 0.0f;
    }

    float w105[4];
    #pragma unroll
    for (int l106 = 0; l106 < 4; ++l106) {
      w105[l106] = 0.0f;
    }
    for (int i107 = lane * 4; i107 < 768; i107 += 128) {
      float q108[4];
      st_unpack(q108, st_shared_load_pack<4>(b0, warp * 768 + i107));
      float q109[4];
      st_unpack(q109, st_shared_load_pack<4>(b3, i107));
      float q110[4];
      st_unpack(q110, st_load_pack<4>(x3, (k1 + warp) * 768 + i107));
      #pragma unroll
      for (int e111 = 0; e111 < 4; ++e111) {
        const float t112 = q108[e111] * q109[e111];
        w103[e111] += t112;
        w105[e111] += t112 * q110[e111];
      }
    }

    const float t113 = w103[0] + w103[2] + (w103[1] + w103[3]);
    const float t114 = t113 + st_shuffle_xor(t113, 1);
    const float t115 = t114 + st_shuffle_xor(t114, 2);
    const float t116 = t115 + st_shuffle_xor(t115, 4);
    const float t117 = t116 + st_shuffle_xor(t116, 8);
    const float t118 = w105[0] + w105[2] + (w105[1] + w105[3]);
    const float t119 = t118 + st_shuffle_xor(t118, 1);
    const float t120 = t119 + st_shuffle_xor(t119, 2);
    const float t121 = t120 + st_shuffle_xor(t120, 4);
    const float t122 = t121 + st_shuffle_xor(t121, 8);
    const float t123 = st_load(x1, k1 + warp);
    const float t124 = (t117 + st_shuffle_xor(t117, 16)) / 768.0f;
    const float t125 = (t122 + st_shuffle_xor(t122, 16)) / 768.0f;
    for (int i126 = lane * 4; i126 < 768; i126 += 128) {
      float q127[4];
      st_unpack(q127, st_shared_load_pack<4>(b0, warp * 768 + i126));
      float q128[4];
      st_unpack(q128, st_shared_load_pack<4>(b3, i126));
      float q129[4];
      st_unpack(q129, st_load_pack<4>(x3, (k1 + warp) * 768 + i126));
      float q130[4];
      #pragma unroll
      for (int e131 = 0; e131 < 4; ++e131) {
        q130[e131] = t123 * (q127[e131] * q128[e131] - t124 - q129[e131] * t125);
      }
      st_store_pack<4>(y1, (k1 + warp) * 768 + i126, st_packed<4>(q130));
    }
    st_sync_block();
  }

  st_sync_grid(barrier);

  // phase 1
  if (const int block = st_block(); block < 96) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 1024);
    const int k1 = task * 8;
    const int t2 = thread % 8;
    const int t3 = thread / 8;
    const bool t4 = t3 == 0;
    float a5 = 0.0f;
    const int t6 = t2 + thread / 32 * 8;
    const bool t7 = thread / 8 % 4 == 0;
    const int t8 = thread / 8 % 4 * 8;
    a5 += st_load_cg(g0, k1 + t2 + t3 * 768);
    const float t9 = a5 + st_shuffle_xor(a5, 8);
    const float t10 = t9 + st_shuffle_xor(t9, 16);
    if (t7) {
      st_shared_store(b0, t6, t10);
    }
    st_sync_block();

    const float t11 = st_shared_load(b0, t2 + t8) + st_shared_load(b0, t2 + t8 + 128);
    const float t12 = st_shared_load(b0, t2 + t8 + 64) + st_shared_load(b0, t2 + t8 + 192);
    const float t13 = st_shared_load(b0, t2 + t8 + 32) + st_shared_load(b0, t2 + t8 + 160);
    const float t14 = st_shared_load(b0, t2 + t8 + 96) + st_shared_load(b0, t2 + t8 + 224);
    const float t15 = t11 + t12 + (t13 + t14);
    const float t16 = t15 + st_shuffle_xor(t15, 8);
    const float t17 = t16 + st_shuffle_xor(t16, 16);
    if (t4) {
      st_store(y0, k1 + t2, t17);
    }

    float a18 = 0.0f;
    a18 += st_load_cg(g1, k1 + t2 + t3 * 768);
    const float t19 = a18 + st_shuffle_xor(a18, 8);
    const float t20 = t19 + st_shuffle_xor(t19, 16);
    if (t7) {
      st_shared_store(b1, t6, t20);
    }
    st_sync_block();

    const float t21 = st_shared_load(b1, t2 + t8) + st_shared_load(b1, t2 + t8 + 128);
    const float t22 = st_shared_load(b1, t2 + t8 + 64) + st_shared_load(b1, t2 + t8 + 192);
    const float t23 = st_shared_load(b1, t2 + t8 + 32) + st_shared_load(b1, t2 + t8 + 160);
    const float t24 = st_shared_load(b1, t2 + t8 + 96) + st_shared_load(b1, t2 + t8 + 224);
    const float t25 = t21 + t22 + (t23 + t24);
    const float t26 = t25 + st_shuffle_xor(t25, 8);
    const float t27 = t26 + st_shuffle_xor(t26, 16);
    if (t4) {
      st_store(y2, k1 + t2, t27);
    }
    st_sync_block();
  }
}
