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
//     group: tasks over i0 by 32
//       stage; combines %5, %17; loops i0; vector i0 x 1; threads i0 x 32
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
    const bool t3 = thread / 32 == 0;
    for (int i4 = 0; i4 < 768; i4 += 128) {
      const int i5 = i4 + lane * 4;
      float w6[4];
      #pragma unroll
      for (int l7 = 0; l7 < 4; ++l7) {
        w6[l7] = 0.0f;
      }
      float w8[4];
      #pragma unroll
      for (int l9 = 0; l9 < 4; ++l9) {
        w8[l9] = 0.0f;
      }
      float q10[4];
      st_unpack(q10, st_load_pack<4>(x0, (k1 + warp) * 768 + i5));
      float q11[4];
      float q12[4];
      st_unpack(q12, st_load_pack<4>(x3, (k1 + warp) * 768 + i5));
      #pragma unroll
      for (int e13 = 0; e13 < 4; ++e13) {
        const float t14 = q10[e13];
        q11[e13] = t14;
        w6[e13] += t14;
        w8[e13] += t14 * q12[e13];
      }
      st_shared_store_pack<4>(b0, warp * 768 + i5, st_packed<4>(q11));
      const int t15 = int(unsigned(i4 / 128) % 2u);
      #pragma unroll
      for (int e16 = 0; e16 < 4; ++e16) {
        st_shared_store(b1, t2 + e16 * 1024 + t15 * 4096, w6[e16]);
      }
      st_sync_block();
      if (t3) {
        float q17[4];
        #pragma unroll
        for (int e18 = 0; e18 < 4; ++e18) {
          const float t19 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096);
          const float t20 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 128);
          const float t21 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 32);
          const float t22 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 160);
          const float t23 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 64);
          const float t24 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 192);
          const float t25 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 96);
          const float t26 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 224);
          const float t27 = t21 + t22 + (t25 + t26);
          const float t28 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 256);
          const float t29 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 384);
          const float t30 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 288);
          const float t31 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 416);
          const float t32 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 320);
          const float t33 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 448);
          const float t34 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 352);
          const float t35 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 480);
          const float t36 = t30 + t31 + (t34 + t35);
          const float t37 = t28 + t29 + (t32 + t33) + t36;
          const float t38 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 512);
          const float t39 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 640);
          const float t40 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 544);
          const float t41 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 672);
          const float t42 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 576);
          const float t43 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 704);
          const float t44 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 608);
          const float t45 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 736);
          const float t46 = t40 + t41 + (t44 + t45);
          const float t47 = t38 + t39 + (t42 + t43) + t46;
          const float t48 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 768);
          const float t49 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 896);
          const float t50 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 800);
          const float t51 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 928);
          const float t52 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 832);
          const float t53 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 960);
          const float t54 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 864);
          const float t55 = st_shared_load(b1, lane + e18 * 1024 + t15 * 4096 + 992);
          const float t56 = t50 + t51 + (t54 + t55);
          const float t57 = t19 + t20 + (t23 + t24) + t27 + t37 + t47;
          const float t58 = t48 + t49 + (t52 + t53) + t56;
          q17[e18] = t57 + t58;
        }
        if (warp == 0) {
          st_store_pack<4>(g0, task * 768 + i5, st_packed<4>(q17));
        }
      }
      #pragma unroll
      for (int e59 = 0; e59 < 4; ++e59) {
        st_shared_store(b2, t2 + e59 * 1024 + t15 * 4096, w8[e59]);
      }
      st_sync_block();
      if (t3) {
        float q60[4];
        #pragma unroll
        for (int e61 = 0; e61 < 4; ++e61) {
          const float t62 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096);
          const float t63 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 128);
          const float t64 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 32);
          const float t65 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 160);
          const float t66 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 64);
          const float t67 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 192);
          const float t68 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 96);
          const float t69 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 224);
          const float t70 = t64 + t65 + (t68 + t69);
          const float t71 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 256);
          const float t72 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 384);
          const float t73 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 288);
          const float t74 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 416);
          const float t75 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 320);
          const float t76 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 448);
          const float t77 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 352);
          const float t78 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 480);
          const float t79 = t73 + t74 + (t77 + t78);
          const float t80 = t71 + t72 + (t75 + t76) + t79;
          const float t81 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 512);
          const float t82 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 640);
          const float t83 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 544);
          const float t84 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 672);
          const float t85 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 576);
          const float t86 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 704);
          const float t87 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 608);
          const float t88 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 736);
          const float t89 = t83 + t84 + (t87 + t88);
          const float t90 = t81 + t82 + (t85 + t86) + t89;
          const float t91 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 768);
          const float t92 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 896);
          const float t93 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 800);
          const float t94 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 928);
          const float t95 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 832);
          const float t96 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 960);
          const float t97 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 864);
          const float t98 = st_shared_load(b2, lane + e61 * 1024 + t15 * 4096 + 992);
          const float t99 = t93 + t94 + (t97 + t98);
          const float t100 = t62 + t63 + (t66 + t67) + t70 + t80 + t90;
          const float t101 = t91 + t92 + (t95 + t96) + t99;
          q60[e61] = t100 + t101;
        }
        if (warp == 0) {
          st_store_pack<4>(g1, task * 768 + i5, st_packed<4>(q60));
        }
      }
    }
    if (thread < 32) {
      for (int i102 = thread * 4; i102 < 768; i102 += 128) {
        float q103[4];
        st_unpack(q103, st_load_pack<4>(x2, i102));
        float q104[4];
        #pragma unroll
        for (int e105 = 0; e105 < 4; ++e105) {
          q104[e105] = q103[e105];
        }
        st_shared_store_pack<4>(b3, i102, st_packed<4>(q104));
      }
    }
    st_sync_block();

    float w106[4];
    #pragma unroll
    for (int l107 = 0; l107 < 4; ++l107) {
      w106[l107] = 0.0f;
    }

    float w108[4];
    #pragma unroll
    for (int l109 = 0; l109 < 4; ++l109) {
      w108[l109] = 0.0f;
    }
    for (int i110 = lane * 4; i110 < 768; i110 += 128) {
      float q111[4];
      st_unpack(q111, st_shared_load_pack<4>(b0, warp * 768 + i110));
      float q112[4];
      st_unpack(q112, st_shared_load_pack<4>(b3, i110));
      float q113[4];
      st_unpack(q113, st_load_pack<4>(x3, (k1 + warp) * 768 + i110));
      #pragma unroll
      for (int e114 = 0; e114 < 4; ++e114) {
        const float t115 = q111[e114] * q112[e114];
        w106[e114] += t115;
        w108[e114] += t115 * q113[e114];
      }
    }

    const float t116 = w106[0] + w106[2] + (w106[1] + w106[3]);
    const float t117 = t116 + st_shuffle_xor(t116, 1);
    const float t118 = t117 + st_shuffle_xor(t117, 2);
    const float t119 = t118 + st_shuffle_xor(t118, 4);
    const float t120 = t119 + st_shuffle_xor(t119, 8);
    const float t121 = w108[0] + w108[2] + (w108[1] + w108[3]);
    const float t122 = t121 + st_shuffle_xor(t121, 1);
    const float t123 = t122 + st_shuffle_xor(t122, 2);
    const float t124 = t123 + st_shuffle_xor(t123, 4);
    const float t125 = t124 + st_shuffle_xor(t124, 8);
    const float t126 = st_load(x1, k1 + warp);
    const float t127 = (t120 + st_shuffle_xor(t120, 16)) / 768.0f;
    const float t128 = (t125 + st_shuffle_xor(t125, 16)) / 768.0f;
    for (int i129 = lane * 4; i129 < 768; i129 += 128) {
      float q130[4];
      st_unpack(q130, st_shared_load_pack<4>(b0, warp * 768 + i129));
      float q131[4];
      st_unpack(q131, st_shared_load_pack<4>(b3, i129));
      float q132[4];
      st_unpack(q132, st_load_pack<4>(x3, (k1 + warp) * 768 + i129));
      float q133[4];
      #pragma unroll
      for (int e134 = 0; e134 < 4; ++e134) {
        const float t135 = t126 * (q130[e134] * q131[e134] - t127 - q132[e134] * t128);
        q133[e134] = t135;
      }
      st_store_pack<4>(y1, (k1 + warp) * 768 + i129, st_packed<4>(q133));
    }
    st_sync_block();
  }

  st_sync_grid(barrier);

  // phase 1
  if (const int block = st_block(); block < 24) {
    const int task = block;
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 4096);
    const int k1 = task * 32;
    const int lane = thread % 32;
    const int warp = thread / 32;
    const bool t2 = warp == 0;
    float a3 = 0.0f;
    const int t4 = lane + warp * 32;
    #pragma unroll 8
    for (int i5 = warp; i5 < 128; i5 += 32) {
      a3 += st_load_cg(g0, k1 + lane + i5 * 768);
    }

    st_shared_store(b0, t4, a3);
    st_sync_block();

    const float t6 = st_shared_load(b0, lane) + st_shared_load(b0, lane + 128);
    const float t7 = st_shared_load(b0, lane + 64) + st_shared_load(b0, lane + 192);
    const float t8 = st_shared_load(b0, lane + 32) + st_shared_load(b0, lane + 160);
    const float t9 = st_shared_load(b0, lane + 96) + st_shared_load(b0, lane + 224);
    const float t10 = st_shared_load(b0, lane + 256) + st_shared_load(b0, lane + 384);
    const float t11 = st_shared_load(b0, lane + 320) + st_shared_load(b0, lane + 448);
    const float t12 = st_shared_load(b0, lane + 288) + st_shared_load(b0, lane + 416);
    const float t13 = st_shared_load(b0, lane + 352) + st_shared_load(b0, lane + 480);
    const float t14 = t10 + t11 + (t12 + t13);
    const float t15 = st_shared_load(b0, lane + 512) + st_shared_load(b0, lane + 640);
    const float t16 = st_shared_load(b0, lane + 576) + st_shared_load(b0, lane + 704);
    const float t17 = st_shared_load(b0, lane + 544) + st_shared_load(b0, lane + 672);
    const float t18 = st_shared_load(b0, lane + 608) + st_shared_load(b0, lane + 736);
    const float t19 = t15 + t16 + (t17 + t18);
    const float t20 = st_shared_load(b0, lane + 768) + st_shared_load(b0, lane + 896);
    const float t21 = st_shared_load(b0, lane + 832) + st_shared_load(b0, lane + 960);
    const float t22 = st_shared_load(b0, lane + 800) + st_shared_load(b0, lane + 928);
    const float t23 = st_shared_load(b0, lane + 864) + st_shared_load(b0, lane + 992);
    const float t24 = t20 + t21 + (t22 + t23);
    if (t2) {
      const float t25 = t6 + t7 + (t8 + t9) + t14 + t19 + t24;
      st_store(y0, k1 + lane, t25);
    }

    float a26 = 0.0f;
    #pragma unroll 8
    for (int i27 = warp; i27 < 128; i27 += 32) {
      a26 += st_load_cg(g1, k1 + lane + i27 * 768);
    }

    st_shared_store(b1, t4, a26);
    st_sync_block();

    const float t28 = st_shared_load(b1, lane) + st_shared_load(b1, lane + 128);
    const float t29 = st_shared_load(b1, lane + 64) + st_shared_load(b1, lane + 192);
    const float t30 = st_shared_load(b1, lane + 32) + st_shared_load(b1, lane + 160);
    const float t31 = st_shared_load(b1, lane + 96) + st_shared_load(b1, lane + 224);
    const float t32 = st_shared_load(b1, lane + 256) + st_shared_load(b1, lane + 384);
    const float t33 = st_shared_load(b1, lane + 320) + st_shared_load(b1, lane + 448);
    const float t34 = st_shared_load(b1, lane + 288) + st_shared_load(b1, lane + 416);
    const float t35 = st_shared_load(b1, lane + 352) + st_shared_load(b1, lane + 480);
    const float t36 = t32 + t33 + (t34 + t35);
    const float t37 = st_shared_load(b1, lane + 512) + st_shared_load(b1, lane + 640);
    const float t38 = st_shared_load(b1, lane + 576) + st_shared_load(b1, lane + 704);
    const float t39 = st_shared_load(b1, lane + 544) + st_shared_load(b1, lane + 672);
    const float t40 = st_shared_load(b1, lane + 608) + st_shared_load(b1, lane + 736);
    const float t41 = t37 + t38 + (t39 + t40);
    const float t42 = st_shared_load(b1, lane + 768) + st_shared_load(b1, lane + 896);
    const float t43 = st_shared_load(b1, lane + 832) + st_shared_load(b1, lane + 960);
    const float t44 = st_shared_load(b1, lane + 800) + st_shared_load(b1, lane + 928);
    const float t45 = st_shared_load(b1, lane + 864) + st_shared_load(b1, lane + 992);
    const float t46 = t42 + t43 + (t44 + t45);
    if (t2) {
      const float t47 = t28 + t29 + (t30 + t31) + t36 + t41 + t46;
      st_store(y2, k1 + lane, t47);
    }
    st_sync_block();
  }
}
