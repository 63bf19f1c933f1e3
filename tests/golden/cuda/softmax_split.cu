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
//       stage %0, %1, %4; loops i0 i1; vector i1 x 4; threads i1 x 1024; unrolled i1 x 2
//   phase 1 (after a barrier)
//     group: tasks over i0 by 1, i1 by 31776
//       stage; combines %1, %4; loops i0
//       stage %5; loops i0 i1; vector i1 x 4; threads i1 x 1024; unrolled i1 x 2
// %0: register to %1; block to %2
// %1: block to %2
// %4: block to %5
// inline wherever they are read: %2, %3
// reduction %4: 1 accumulators, in one pass with %1

extern "C" __global__ void __launch_bounds__(1024, 1)
softmax_split(const float* __restrict__ x0, float* __restrict__ y0, float* g0, float* g1,
    unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 132) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 127104);
    float* b1 = ST_SHARED(float, 127232);
    const int k1 = task % 66;
    const int k2 = k1 * 31776;
    const int k3 = task / 66;
    const bool t4 = thread / 1 % 2 == 0;
    const bool t5 = thread / 2 % 2 == 0;
    const bool t6 = thread / 4 % 2 == 0;
    const bool t7 = thread / 8 % 2 == 0;
    const bool t8 = thread / 16 % 2 == 0;
    const int warp = thread / 32;
    const bool t9 = thread % 32 == 0;

    float w10[4];
    float w11[4];
    #pragma unroll
    for (int l12 = 0; l12 < 4; ++l12) {
      w10[l12] = -ST_INFINITY;
      w11[l12] = 0.0f;
    }
    #pragma unroll 2
    for (int i13 = thread * 4; i13 < st_min(31776, 2097152 - k2); i13 += 4096) {
      float q14[4];
      st_unpack(q14, st_load_pack<4>(x0, k3 * 2097152 + k2 + i13));
      float q15[4];
      #pragma unroll
      for (int e16 = 0; e16 < 4; ++e16) {
        const float t17 = q14[e16];
        q15[e16] = t17;
        const float t18 = w10[e16];
        const float t19 = w11[e16];
        w10[e16] = st_max(t18, t17);
        w11[e16] = (t18 > t17 ? t19 : 1.0f) + (t18 > t17 ? 1.0f : t19) * expf(t18 == t17 ? 0.0f : st_min(t18, t17) - st_max(t18, t17));
      }
      st_shared_store_pack<4>(c0, i13, st_packed<4>(q15));
    }

    const float t20 = w10[0];
    const float t21 = w11[0];
    const float t22 = w10[1];
    const float t23 = w11[1];
    const float t24 = w10[2];
    const float t25 = w11[2];
    const float t26 = w10[3];
    const float t27 = w11[3];
    const float t28 = st_max(t20, t24);
    const float t29 = (t20 > t24 ? t21 : t25) + (t20 > t24 ? t25 : t21) * expf(t20 == t24 ? 0.0f : st_min(t20, t24) - st_max(t20, t24));
    const float t30 = st_max(t22, t26);
    const float t31 = (t22 > t26 ? t23 : t27) + (t22 > t26 ? t27 : t23) * expf(t22 == t26 ? 0.0f : st_min(t22, t26) - st_max(t22, t26));
    const float t32 = st_max(t28, t30);
    const float t33 = (t28 > t30 ? t29 : t31) + (t28 > t30 ? t31 : t29) * expf(t28 == t30 ? 0.0f : st_min(t28, t30) - st_max(t28, t30));
    const float t34 = st_shuffle_xor(t32, 1);
    const float t35 = st_shuffle_xor(t33, 1);
    const float t36 = t4 ? t32 : t34;
    const float t37 = t4 ? t33 : t35;
    const float t38 = t4 ? t34 : t32;
    const float t39 = t4 ? t35 : t33;
    const float t40 = st_max(t36, t38);
    const float t41 = (t36 > t38 ? t37 : t39) + (t36 > t38 ? t39 : t37) * expf(t36 == t38 ? 0.0f : st_min(t36, t38) - st_max(t36, t38));
    const float t42 = st_shuffle_xor(t40, 2);
    const float t43 = st_shuffle_xor(t41, 2);
    const float t44 = t5 ? t40 : t42;
    const float t45 = t5 ? t41 : t43;
    const float t46 = t5 ? t42 : t40;
    const float t47 = t5 ? t43 : t41;
    const float t48 = st_max(t44, t46);
    const float t49 = (t44 > t46 ? t45 : t47) + (t44 > t46 ? t47 : t45) * expf(t44 == t46 ? 0.0f : st_min(t44, t46) - st_max(t44, t46));
    const float t50 = st_shuffle_xor(t48, 4);
    const float t51 = st_shuffle_xor(t49, 4);
    const float t52 = t6 ? t48 : t50;
    const float t53 = t6 ? t49 : t51;
    const float t54 = t6 ? t50 : t48;
    const float t55 = t6 ? t51 : t49;
    const float t56 = st_max(t52, t54);
    const float t57 = (t52 > t54 ? t53 : t55) + (t52 > t54 ? t55 : t53) * expf(t52 == t54 ? 0.0f : st_min(t52, t54) - st_max(t52, t54));
    const float t58 = st_shuffle_xor(t56, 8);
    const float t59 = st_shuffle_xor(t57, 8);
    const float t60 = t7 ? t56 : t58;
    const float t61 = t7 ? t57 : t59;
    const float t62 = t7 ? t58 : t56;
    const float t63 = t7 ? t59 : t57;
    const float t64 = st_max(t60, t62);
    const float t65 = (t60 > t62 ? t61 : t63) + (t60 > t62 ? t63 : t61) * expf(t60 == t62 ? 0.0f : st_min(t60, t62) - st_max(t60, t62));
    const float t66 = st_shuffle_xor(t64, 16);
    const float t67 = st_shuffle_xor(t65, 16);
    const float t68 = t8 ? t64 : t66;
    const float t69 = t8 ? t65 : t67;
    const float t70 = t8 ? t66 : t64;
    const float t71 = t8 ? t67 : t65;
    if (t9) {
      st_shared_store(b0, warp, st_max(t68, t70));
      const float t72 = (t68 > t70 ? t69 : t71) + (t68 > t70 ? t71 : t69) * expf(t68 == t70 ? 0.0f : st_min(t68, t70) - st_max(t68, t70));
      st_shared_store(b1, warp, t72);
    }
    st_sync_block();
    if (warp == 0) {
      const int lane = thread % 32;
      const float t73 = st_shared_load(b0, lane);
      const float t74 = st_shared_load(b1, lane);
      const float t75 = st_shuffle_xor(t73, 1);
      const float t76 = st_shuffle_xor(t74, 1);
      const float t77 = t4 ? t73 : t75;
      const float t78 = t4 ? t74 : t76;
      const float t79 = t4 ? t75 : t73;
      const float t80 = t4 ? t76 : t74;
      const float t81 = st_max(t77, t79);
      const float t82 = (t77 > t79 ? t78 : t80) + (t77 > t79 ? t80 : t78) * expf(t77 == t79 ? 0.0f : st_min(t77, t79) - st_max(t77, t79));
      const float t83 = st_shuffle_xor(t81, 2);
      const float t84 = st_shuffle_xor(t82, 2);
      const float t85 = t5 ? t81 : t83;
      const float t86 = t5 ? t82 : t84;
      const float t87 = t5 ? t83 : t81;
      const float t88 = t5 ? t84 : t82;
      const float t89 = st_max(t85, t87);
      const float t90 = (t85 > t87 ? t86 : t88) + (t85 > t87 ? t88 : t86) * expf(t85 == t87 ? 0.0f : st_min(t85, t87) - st_max(t85, t87));
      const float t91 = st_shuffle_xor(t89, 4);
      const float t92 = st_shuffle_xor(t90, 4);
      const float t93 = t6 ? t89 : t91;
      const float t94 = t6 ? t90 : t92;
      const float t95 = t6 ? t91 : t89;
      const float t96 = t6 ? t92 : t90;
      const float t97 = st_max(t93, t95);
      const float t98 = (t93 > t95 ? t94 : t96) + (t93 > t95 ? t96 : t94) * expf(t93 == t95 ? 0.0f : st_min(t93, t95) - st_max(t93, t95));
      const float t99 = st_shuffle_xor(t97, 8);
      const float t100 = st_shuffle_xor(t98, 8);
      const float t101 = t7 ? t97 : t99;
      const float t102 = t7 ? t98 : t100;
      const float t103 = t7 ? t99 : t97;
      const float t104 = t7 ? t100 : t98;
      const float t105 = st_max(t101, t103);
      const float t106 = (t101 > t103 ? t102 : t104) + (t101 > t103 ? t104 : t102) * expf(t101 == t103 ? 0.0f : st_min(t101, t103) - st_max(t101, t103));
      const float t107 = st_shuffle_xor(t105, 16);
      const float t108 = st_shuffle_xor(t106, 16);
      const float t109 = t8 ? t105 : t107;
      const float t110 = t8 ? t106 : t108;
      const float t111 = t8 ? t107 : t105;
      const float t112 = t8 ? t108 : t106;
      if (t9) {
        st_store(g0, k1 * 2 + k3, st_max(t109, t111));
        const float t113 = (t109 > t111 ? t110 : t112) + (t109 > t111 ? t112 : t110) * expf(t109 == t111 ? 0.0f : st_min(t109, t111) - st_max(t109, t111));
        st_store(g1, k1 * 2 + k3, t113);
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
    const int k1 = task % 66 * 31776;
    const int k2 = task / 66;
    if (thread < 32) {
      const bool t3 = thread == 0;
      float a4 = -ST_INFINITY;
      float a5 = 0.0f;
      const bool t6 = thread / 1 % 2 == 0;
      const bool t7 = thread / 2 % 2 == 0;
      const bool t8 = thread / 4 % 2 == 0;
      const bool t9 = thread / 8 % 2 == 0;
      const bool t10 = thread / 16 % 2 == 0;
      #pragma unroll 8
      for (int i11 = thread; i11 < 66; i11 += 32) {
        const float t12 = st_load_cg(g0, k2 + i11 * 2);
        const float t13 = st_load_cg(g1, k2 + i11 * 2);
        const float t14 = (a4 > t12 ? a5 : t13) + (a4 > t12 ? t13 : a5) * expf(a4 == t12 ? 0.0f : st_min(a4, t12) - st_max(a4, t12));
        a4 = st_max(a4, t12);
        a5 = t14;
      }
      const float t15 = st_shuffle_xor(a4, 1);
      const float t16 = st_shuffle_xor(a5, 1);
      const float t17 = t6 ? a4 : t15;
      const float t18 = t6 ? a5 : t16;
      const float t19 = t6 ? t15 : a4;
      const float t20 = t6 ? t16 : a5;
      const float t21 = st_max(t17, t19);
      const float t22 = (t17 > t19 ? t18 : t20) + (t17 > t19 ? t20 : t18) * expf(t17 == t19 ? 0.0f : st_min(t17, t19) - st_max(t17, t19));
      const float t23 = st_shuffle_xor(t21, 2);
      const float t24 = st_shuffle_xor(t22, 2);
      const float t25 = t7 ? t21 : t23;
      const float t26 = t7 ? t22 : t24;
      const float t27 = t7 ? t23 : t21;
      const float t28 = t7 ? t24 : t22;
      const float t29 = st_max(t25, t27);
      const float t30 = (t25 > t27 ? t26 : t28) + (t25 > t27 ? t28 : t26) * expf(t25 == t27 ? 0.0f : st_min(t25, t27) - st_max(t25, t27));
      const float t31 = st_shuffle_xor(t29, 4);
      const float t32 = st_shuffle_xor(t30, 4);
      const float t33 = t8 ? t29 : t31;
      const float t34 = t8 ? t30 : t32;
      const float t35 = t8 ? t31 : t29;
      const float t36 = t8 ? t32 : t30;
      const float t37 = st_max(t33, t35);
      const float t38 = (t33 > t35 ? t34 : t36) + (t33 > t35 ? t36 : t34) * expf(t33 == t35 ? 0.0f : st_min(t33, t35) - st_max(t33, t35));
      const float t39 = st_shuffle_xor(t37, 8);
      const float t40 = st_shuffle_xor(t38, 8);
      const float t41 = t9 ? t37 : t39;
      const float t42 = t9 ? t38 : t40;
      const float t43 = t9 ? t39 : t37;
      const float t44 = t9 ? t40 : t38;
      const float t45 = st_max(t41, t43);
      const float t46 = (t41 > t43 ? t42 : t44) + (t41 > t43 ? t44 : t42) * expf(t41 == t43 ? 0.0f : st_min(t41, t43) - st_max(t41, t43));
      const float t47 = st_shuffle_xor(t45, 16);
      const float t48 = st_shuffle_xor(t46, 16);
      const float t49 = t10 ? t45 : t47;
      const float t50 = t10 ? t46 : t48;
      const float t51 = t10 ? t47 : t45;
      const float t52 = t10 ? t48 : t46;
      const float t53 = st_max(t49, t51);
      const float t54 = (t49 > t51 ? t50 : t52) + (t49 > t51 ? t52 : t50) * expf(t49 == t51 ? 0.0f : st_min(t49, t51) - st_max(t49, t51));
      if (t3) {
        st_shared_store(b0, 0, t53);
      }
      if (t3) {
        st_shared_store(b1, 0, st_isinf(t53) && t54 > 0.0f ? ST_NAN : t54);
      }
    }
    st_sync_block();

    const float t55 = st_shared_load(b0, 0);
    const float t56 = st_shared_load(b1, 0);
    #pragma unroll 2
    for (int i57 = thread * 4; i57 < st_min(31776, 2097152 - k1); i57 += 4096) {
      float q58[4];
      st_unpack(q58, st_shared_load_pack<4>(c0, i57));
      float q59[4];
      #pragma unroll
      for (int e60 = 0; e60 < 4; ++e60) {
        q59[e60] = expf(q58[e60] - t55) / t56;
      }
      st_store_pack<4>(y0, k2 * 2097152 + k1 + i57, st_packed<4>(q59));
    }
  }
}
