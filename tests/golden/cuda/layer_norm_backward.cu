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
    for (int i2 = 0; i2 < 768; i2 += 128) {
      const int i3 = i2 + lane * 4;
      float w4[4];
      #pragma unroll
      for (int l5 = 0; l5 < 4; ++l5) {
        w4[l5] = 0.0f;
      }
      float w6[4];
      #pragma unroll
      for (int l7 = 0; l7 < 4; ++l7) {
        w6[l7] = 0.0f;
      }
      float q8[4];
      st_unpack(q8, st_load_pack<4>(x0, (k1 + warp) * 768 + i3));
      float q9[4];
      float q10[4];
      st_unpack(q10, st_load_pack<4>(x3, (k1 + warp) * 768 + i3));
      #pragma unroll
      for (int e11 = 0; e11 < 4; ++e11) {
        const float t12 = q8[e11];
        q9[e11] = t12;
        w4[e11] += t12;
        w6[e11] += t12 * q10[e11];
      }
      st_shared_store_pack<4>(b0, warp * 768 + i3, st_packed<4>(q9));
      const int t13 = int(unsigned(i2 / 128) % 2u);
      #pragma unroll
      for (int e14 = 0; e14 < 4; ++e14) {
        st_shared_store(b1, thread + e14 * 1024 + t13 * 4096, w4[e14]);
      }
      st_sync_block();
      #pragma unroll 4
      for (int e15 = 0; e15 < 4; ++e15) {
        if (warp == e15) {
          const float t16 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096);
          const float t17 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 128);
          const float t18 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 32);
          const float t19 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 160);
          const float t20 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 64);
          const float t21 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 192);
          const float t22 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 96);
          const float t23 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 224);
          const float t24 = t18 + t19 + (t22 + t23);
          const float t25 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 256);
          const float t26 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 384);
          const float t27 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 288);
          const float t28 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 416);
          const float t29 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 320);
          const float t30 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 448);
          const float t31 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 352);
          const float t32 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 480);
          const float t33 = t27 + t28 + (t31 + t32);
          const float t34 = t25 + t26 + (t29 + t30) + t33;
          const float t35 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 512);
          const float t36 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 640);
          const float t37 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 544);
          const float t38 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 672);
          const float t39 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 576);
          const float t40 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 704);
          const float t41 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 608);
          const float t42 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 736);
          const float t43 = t37 + t38 + (t41 + t42);
          const float t44 = t35 + t36 + (t39 + t40) + t43;
          const float t45 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 768);
          const float t46 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 896);
          const float t47 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 800);
          const float t48 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 928);
          const float t49 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 832);
          const float t50 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 960);
          const float t51 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 864);
          const float t52 = st_shared_load(b1, lane + e15 * 1024 + t13 * 4096 + 992);
          const float t53 = t47 + t48 + (t51 + t52);
          const float t54 = t16 + t17 + (t20 + t21) + t24 + t34 + t44;
          const float t55 = t45 + t46 + (t49 + t50) + t53;
          st_store(g0, task * 768 + i3 + e15, t54 + t55);
        }
      }
      #pragma unroll
      for (int e56 = 0; e56 < 4; ++e56) {
        st_shared_store(b2, thread + e56 * 1024 + t13 * 4096, w6[e56]);
      }
      st_sync_block();
      #pragma unroll 4
      for (int e57 = 0; e57 < 4; ++e57) {
        if (warp == e57) {
          const float t58 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096);
          const float t59 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 128);
          const float t60 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 32);
          const float t61 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 160);
          const float t62 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 64);
          const float t63 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 192);
          const float t64 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 96);
          const float t65 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 224);
          const float t66 = t60 + t61 + (t64 + t65);
          const float t67 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 256);
          const float t68 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 384);
          const float t69 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 288);
          const float t70 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 416);
          const float t71 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 320);
          const float t72 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 448);
          const float t73 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 352);
          const float t74 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 480);
          const float t75 = t69 + t70 + (t73 + t74);
          const float t76 = t67 + t68 + (t71 + t72) + t75;
          const float t77 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 512);
          const float t78 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 640);
          const float t79 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 544);
          const float t80 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 672);
          const float t81 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 576);
          const float t82 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 704);
          const float t83 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 608);
          const float t84 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 736);
          const float t85 = t79 + t80 + (t83 + t84);
          const float t86 = t77 + t78 + (t81 + t82) + t85;
          const float t87 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 768);
          const float t88 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 896);
          const float t89 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 800);
          const float t90 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 928);
          const float t91 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 832);
          const float t92 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 960);
          const float t93 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 864);
          const float t94 = st_shared_load(b2, lane + e57 * 1024 + t13 * 4096 + 992);
          const float t95 = t89 + t90 + (t93 + t94);
          const float t96 = t58 + t59 + (t62 + t63) + t66 + t76 + t86;
          const float t97 = t87 + t88 + (t91 + t92) + t95;
          st_store(g1, task * 768 + i3 + e57, t96 + t97);
        }
      }
    }
    if (thread < 32) {
      for (int i98 = thread * 4; i98 < 768; i98 += 128) {
        float q99[4];
        st_unpack(q99, st_load_pack<4>(x2, i98));
        float q100[4];
        #pragma unroll
        for (int e101 = 0; e101 < 4; ++e101) {
          q100[e101] = q99[e101];
        }
        st_shared_store_pack<4>(b3, i98, st_packed<4>(q100));
      }
    }
    st_sync_block();

    float w102[4];
    #pragma unroll
    for (int l103 = 0; l103 < 4; ++l103) {
      w102[l103] = 0.0f;
    }

    float w104[4];
    #pragma unroll
    for (int l105 = 0; l105 < 4; ++l105) {
      w104[l105] = 0.0f;
    }
    for (int i106 = lane * 4; i106 < 768; i106 += 128) {
      float q107[4];
      st_unpack(q107, st_shared_load_pack<4>(b0, warp * 768 + i106));
      float q108[4];
      st_unpack(q108, st_shared_load_pack<4>(b3, i106));
      float q109[4];
      st_unpack(q109, st_load_pack<4>(x3, (k1 + warp) * 768 + i106));
      #pragma unroll
      for (int e110 = 0; e110 < 4; ++e110) {
        const float t111 = q107[e110] * q108[e110];
        w102[e110] += t111;
        w104[e110] += t111 * q109[e110];
      }
    }

    const float t112 = w102[0] + w102[2] + (w102[1] + w102[3]);
    const float t113 = t112 + st_shuffle_xor(t112, 1);
    const float t114 = t113 + st_shuffle_xor(t113, 2);
    const float t115 = t114 + st_shuffle_xor(t114, 4);
    const float t116 = t115 + st_shuffle_xor(t115, 8);
    const float t117 = w104[0] + w104[2] + (w104[1] + w104[3]);
    const float t118 = t117 + st_shuffle_xor(t117, 1);
    const float t119 = t118 + st_shuffle_xor(t118, 2);
    const float t120 = t119 + st_shuffle_xor(t119, 4);
    const float t121 = t120 + st_shuffle_xor(t120, 8);
    const float t122 = st_load(x1, k1 + warp);
    const float t123 = (t116 + st_shuffle_xor(t116, 16)) / 768.0f;
    const float t124 = (t121 + st_shuffle_xor(t121, 16)) / 768.0f;
    for (int i125 = lane * 4; i125 < 768; i125 += 128) {
      float q126[4];
      st_unpack(q126, st_shared_load_pack<4>(b0, warp * 768 + i125));
      float q127[4];
      st_unpack(q127, st_shared_load_pack<4>(b3, i125));
      float q128[4];
      st_unpack(q128, st_load_pack<4>(x3, (k1 + warp) * 768 + i125));
      float q129[4];
      #pragma unroll
      for (int e130 = 0; e130 < 4; ++e130) {
        q129[e130] = t122 * (q126[e130] * q127[e130] - t123 - q128[e130] * t124);
      }
      st_store_pack<4>(y1, (k1 + warp) * 768 + i125, st_packed<4>(q129));
    }
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
  }
}
