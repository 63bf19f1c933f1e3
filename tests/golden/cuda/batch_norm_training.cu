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
//       stage %0, %10, %17; loops i0 i1 i2; vector i2 x 4; threads i1 x 4, i2 x 256
//   phase 1 (after a barrier)
//     group: tasks over i0 by 1, i1 by 16, i2 by 784
//       stage; combines %10, %17; loops i0; vector i0 x 1
//       stage %24; loops i1 i0 i2; vector i2 x 4; threads i1 x 5, i2 x 196
//     group: tasks over i0 by 32
//       stage; combines %10, %17; loops i0; vector i0 x 1; threads i0 x 32
//       stage %14, %27; loops i0; vector i0 x 1; threads i0 x 32
// %0: register to %10; block to %15
// %10: block to %11
// %17: block to %18
// inline wherever they are read: %11, %12, %13, %15, %18, %19, %20, %21, %22, %23, %25, %26
// reduction %17: 1 accumulators, in one pass with %10

extern "C" __global__ void __launch_bounds__(1024, 1)
batch_norm_training(const float* __restrict__ x0, const float* __restrict__ x1,
    const float* __restrict__ x2, const float* __restrict__ x3, const float* __restrict__ x4,
    float* __restrict__ y0, float* __restrict__ y1, float* __restrict__ y2, float* g0, float* g1,
    float* g2, float* g3, float* g4, unsigned* barrier) {
  const int thread = st_thread();
  // phase 0
  if (const int block = st_block(); block < 128) {
    const int task = block;
    float* c0 = ST_SHARED(float, 0);
    float* b0 = ST_SHARED(float, 50176);
    float* b1 = ST_SHARED(float, 50304);
    float* b2 = ST_SHARED(float, 50432);
    float* b3 = ST_SHARED(float, 50560);
    float* b4 = ST_SHARED(float, 50688);
    const int k1 = task % 2;
    const int k2 = task / 2;
    const bool t3 = thread / 1 % 2 == 0;
    const bool t4 = thread / 2 % 2 == 0;
    const bool t5 = thread / 4 % 2 == 0;
    const bool t6 = thread / 8 % 2 == 0;
    const bool t7 = thread / 16 % 2 == 0;
    const int warp = thread / 32;
    const bool t8 = thread % 32 == 0;

    float w9[4];
    float w10[4];
    float w11[4];
    float w12[4];
    float w13[4];
    #pragma unroll
    for (int l14 = 0; l14 < 4; ++l14) {
      w9[l14] = 0.0f;
      w10[l14] = 0.0f;
      w11[l14] = 0.0f;
      w12[l14] = 0.0f;
      w13[l14] = 0.0f;
    }

    const int k15 = k1 * 16;
    const int t16 = thread % 256;
    for (int i17 = thread / 256; i17 < 16; i17 += 4) {
      const int i18 = t16 * 4;
      if (i18 < 784) {
        float q19[4];
        st_unpack(q19, st_load_pack<4>(x0, (k15 + i17) * 50176 + k2 * 784 + i18));
        float q20[4];
        #pragma unroll
        for (int e21 = 0; e21 < 4; ++e21) {
          const float t22 = q19[e21];
          q20[e21] = t22;
          const float t23 = w9[e21];
          const float t24 = w11[e21];
          const float t25 = w13[e21];
          const float t26 = w10[e21];
          const float t27 = w12[e21];
          w9[e21] = t23 + 1.0f;
          w10[e21] = t26 + t22;
          w11[e21] = t24 + (t22 - t24) * (1.0f / st_max(t23 + 1.0f, 1.0f));
          w12[e21] = t27 + 0.0f + (t22 - t24 + (0.0f - t25)) * ((t22 - t24 + (0.0f - t25)) * (1.0f / st_max(t23 + 1.0f, 1.0f))) * t23;
          w13[e21] = t25 + (0.0f - t25) * (1.0f / st_max(t23 + 1.0f, 1.0f)) + st_sum_error(t24, (t22 - t24) * (1.0f / st_max(t23 + 1.0f, 1.0f)));
        }
        st_shared_store_pack<4>(c0, i17 * 784 + i18, st_packed<4>(q20));
      }
    }

    const float t28 = w9[0];
    const float t29 = w11[0];
    const float t30 = w13[0];
    const float t31 = w9[1];
    const float t32 = w11[1];
    const float t33 = w13[1];
    const float t34 = w9[2];
    const float t35 = w11[2];
    const float t36 = w13[2];
    const float t37 = w9[3];
    const float t38 = w11[3];
    const float t39 = w13[3];
    const float t40 = t28 + t34;
    const float t41 = t29 + (t35 - t29) * (t34 / st_max(t28 + t34, 1.0f));
    const float t42 = w12[0];
    const float t43 = w12[2];
    const float t44 = t30 + (t36 - t30) * (t34 / st_max(t28 + t34, 1.0f)) + st_sum_error(t29, (t35 - t29) * (t34 / st_max(t28 + t34, 1.0f)));
    const float t45 = t31 + t37;
    const float t46 = t32 + (t38 - t32) * (t37 / st_max(t31 + t37, 1.0f));
    const float t47 = w12[1];
    const float t48 = w12[3];
    const float t49 = t33 + (t39 - t33) * (t37 / st_max(t31 + t37, 1.0f)) + st_sum_error(t32, (t38 - t32) * (t37 / st_max(t31 + t37, 1.0f)));
    const float t50 = t40 + t45;
    const float t51 = w10[0] + w10[2] + (w10[1] + w10[3]);
    const float t52 = t41 + (t46 - t41) * (t45 / st_max(t40 + t45, 1.0f));
    const float t53 = t42 + t43 + (t35 - t29 + (t36 - t30)) * ((t35 - t29 + (t36 - t30)) * (t34 / st_max(t28 + t34, 1.0f))) * t28;
    const float t54 = t47 + t48 + (t38 - t32 + (t39 - t33)) * ((t38 - t32 + (t39 - t33)) * (t37 / st_max(t31 + t37, 1.0f))) * t31;
    const float t55 = t53 + t54 + (t46 - t41 + (t49 - t44)) * ((t46 - t41 + (t49 - t44)) * (t45 / st_max(t40 + t45, 1.0f))) * t40;
    const float t56 = t44 + (t49 - t44) * (t45 / st_max(t40 + t45, 1.0f)) + st_sum_error(t41, (t46 - t41) * (t45 / st_max(t40 + t45, 1.0f)));
    const float t57 = st_shuffle_xor(t50, 1);
    const float t58 = st_shuffle_xor(t51, 1);
    const float t59 = st_shuffle_xor(t52, 1);
    const float t60 = st_shuffle_xor(t55, 1);
    const float t61 = st_shuffle_xor(t56, 1);
    const float t62 = t3 ? t50 : t57;
    const float t63 = t3 ? t52 : t59;
    const float t64 = t3 ? t56 : t61;
    const float t65 = t3 ? t57 : t50;
    const float t66 = t3 ? t59 : t52;
    const float t67 = t3 ? t61 : t56;
    const float t68 = t62 + t65;
    const float t69 = (t3 ? t51 : t58) + (t3 ? t58 : t51);
    const float t70 = t63 + (t66 - t63) * (t65 / st_max(t62 + t65, 1.0f));
    const float t71 = t3 ? t55 : t60;
    const float t72 = t3 ? t60 : t55;
    const float t73 = t71 + t72 + (t66 - t63 + (t67 - t64)) * ((t66 - t63 + (t67 - t64)) * (t65 / st_max(t62 + t65, 1.0f))) * t62;
    const float t74 = t64 + (t67 - t64) * (t65 / st_max(t62 + t65, 1.0f)) + st_sum_error(t63, (t66 - t63) * (t65 / st_max(t62 + t65, 1.0f)));
    const float t75 = st_shuffle_xor(t68, 2);
    const float t76 = st_shuffle_xor(t69, 2);
    const float t77 = st_shuffle_xor(t70, 2);
    const float t78 = st_shuffle_xor(t73, 2);
    const float t79 = st_shuffle_xor(t74, 2);
    const float t80 = t4 ? t68 : t75;
    const float t81 = t4 ? t70 : t77;
    const float t82 = t4 ? t74 : t79;
    const float t83 = t4 ? t75 : t68;
    const float t84 = t4 ? t77 : t70;
    const float t85 = t4 ? t79 : t74;
    const float t86 = t80 + t83;
    const float t87 = (t4 ? t69 : t76) + (t4 ? t76 : t69);
    const float t88 = t81 + (t84 - t81) * (t83 / st_max(t80 + t83, 1.0f));
    const float t89 = t4 ? t73 : t78;
    const float t90 = t4 ? t78 : t73;
    const float t91 = t89 + t90 + (t84 - t81 + (t85 - t82)) * ((t84 - t81 + (t85 - t82)) * (t83 / st_max(t80 + t83, 1.0f))) * t80;
    const float t92 = t82 + (t85 - t82) * (t83 / st_max(t80 + t83, 1.0f)) + st_sum_error(t81, (t84 - t81) * (t83 / st_max(t80 + t83, 1.0f)));
    const float t93 = st_shuffle_xor(t86, 4);
    const float t94 = st_shuffle_xor(t87, 4);
    const float t95 = st_shuffle_xor(t88, 4);
    const float t96 = st_shuffle_xor(t91, 4);
    const float t97 = st_shuffle_xor(t92, 4);
    const float t98 = t5 ? t86 : t93;
    const float t99 = t5 ? t88 : t95;
    const float t100 = t5 ? t92 : t97;
    const float t101 = t5 ? t93 : t86;
    const float t102 = t5 ? t95 : t88;
    const float t103 = t5 ? t97 : t92;
    const float t104 = t98 + t101;
    const float t105 = (t5 ? t87 : t94) + (t5 ? t94 : t87);
    const float t106 = t99 + (t102 - t99) * (t101 / st_max(t98 + t101, 1.0f));
    const float t107 = t5 ? t91 : t96;
    const float t108 = t5 ? t96 : t91;
    const float t109 = t107 + t108 + (t102 - t99 + (t103 - t100)) * ((t102 - t99 + (t103 - t100)) * (t101 / st_max(t98 + t101, 1.0f))) * t98;
    const float t110 = t100 + (t103 - t100) * (t101 / st_max(t98 + t101, 1.0f)) + st_sum_error(t99, (t102 - t99) * (t101 / st_max(t98 + t101, 1.0f)));
    const float t111 = st_shuffle_xor(t104, 8);
    const float t112 = st_shuffle_xor(t105, 8);
    const float t113 = st_shuffle_xor(t106, 8);
    const float t114 = st_shuffle_xor(t109, 8);
    const float t115 = st_shuffle_xor(t110, 8);
    const float t116 = t6 ? t104 : t111;
    const float t117 = t6 ? t106 : t113;
    const float t118 = t6 ? t110 : t115;
    const float t119 = t6 ? t111 : t104;
    const float t120 = t6 ? t113 : t106;
    const float t121 = t6 ? t115 : t110;
    const float t122 = t116 + t119;
    const float t123 = (t6 ? t105 : t112) + (t6 ? t112 : t105);
    const float t124 = t117 + (t120 - t117) * (t119 / st_max(t116 + t119, 1.0f));
    const float t125 = t6 ? t109 : t114;
    const float t126 = t6 ? t114 : t109;
    const float t127 = t125 + t126 + (t120 - t117 + (t121 - t118)) * ((t120 - t117 + (t121 - t118)) * (t119 / st_max(t116 + t119, 1.0f))) * t116;
    const float t128 = t118 + (t121 - t118) * (t119 / st_max(t116 + t119, 1.0f)) + st_sum_error(t117, (t120 - t117) * (t119 / st_max(t116 + t119, 1.0f)));
    const float t129 = st_shuffle_xor(t122, 16);
    const float t130 = st_shuffle_xor(t123, 16);
    const float t131 = st_shuffle_xor(t124, 16);
    const float t132 = st_shuffle_xor(t127, 16);
    const float t133 = st_shuffle_xor(t128, 16);
    const float t134 = t7 ? t122 : t129;
    const float t135 = t7 ? t124 : t131;
    const float t136 = t7 ? t128 : t133;
    const float t137 = t7 ? t129 : t122;
    const float t138 = t7 ? t131 : t124;
    const float t139 = t7 ? t133 : t128;
    const float t140 = t7 ? t127 : t132;
    const float t141 = t7 ? t132 : t127;
    if (t8) {
      st_shared_store(b0, warp, t134 + t137);
      st_shared_store(b1, warp, (t7 ? t123 : t130) + (t7 ? t130 : t123));
      st_shared_store(b2, warp, t135 + (t138 - t135) * (t137 / st_max(t134 + t137, 1.0f)));
      const float t142 = t140 + t141 + (t138 - t135 + (t139 - t136)) * ((t138 - t135 + (t139 - t136)) * (t137 / st_max(t134 + t137, 1.0f))) * t134;
      st_shared_store(b3, warp, t142);
      const float t143 = t136 + (t139 - t136) * (t137 / st_max(t134 + t137, 1.0f)) + st_sum_error(t135, (t138 - t135) * (t137 / st_max(t134 + t137, 1.0f)));
      st_shared_store(b4, warp, t143);
    }
    st_sync_block();
    if (warp == 0) {
      const int lane = thread % 32;
      const float t144 = st_shared_load(b0, lane);
      const float t145 = st_shared_load(b1, lane);
      const float t146 = st_shared_load(b2, lane);
      const float t147 = st_shared_load(b3, lane);
      const float t148 = st_shared_load(b4, lane);
      const float t149 = st_shuffle_xor(t144, 1);
      const float t150 = st_shuffle_xor(t145, 1);
      const float t151 = st_shuffle_xor(t146, 1);
      const float t152 = st_shuffle_xor(t147, 1);
      const float t153 = st_shuffle_xor(t148, 1);
      const float t154 = t3 ? t144 : t149;
      const float t155 = t3 ? t146 : t151;
      const float t156 = t3 ? t148 : t153;
      const float t157 = t3 ? t149 : t144;
      const float t158 = t3 ? t151 : t146;
      const float t159 = t3 ? t153 : t148;
      const float t160 = t154 + t157;
      const float t161 = (t3 ? t145 : t150) + (t3 ? t150 : t145);
      const float t162 = t155 + (t158 - t155) * (t157 / st_max(t154 + t157, 1.0f));
      const float t163 = t3 ? t147 : t152;
      const float t164 = t3 ? t152 : t147;
      const float t165 = t163 + t164 + (t158 - t155 + (t159 - t156)) * ((t158 - t155 + (t159 - t156)) * (t157 / st_max(t154 + t157, 1.0f))) * t154;
      const float t166 = t156 + (t159 - t156) * (t157 / st_max(t154 + t157, 1.0f)) + st_sum_error(t155, (t158 - t155) * (t157 / st_max(t154 + t157, 1.0f)));
      const float t167 = st_shuffle_xor(t160, 2);
      const float t168 = st_shuffle_xor(t161, 2);
      const float t169 = st_shuffle_xor(t162, 2);
      const float t170 = st_shuffle_xor(t165, 2);
      const float t171 = st_shuffle_xor(t166, 2);
      const float t172 = t4 ? t160 : t167;
      const float t173 = t4 ? t162 : t169;
      const float t174 = t4 ? t166 : t171;
      const float t175 = t4 ? t167 : t160;
      const float t176 = t4 ? t169 : t162;
      const float t177 = t4 ? t171 : t166;
      const float t178 = t172 + t175;
      const float t179 = (t4 ? t161 : t168) + (t4 ? t168 : t161);
      const float t180 = t173 + (t176 - t173) * (t175 / st_max(t172 + t175, 1.0f));
      const float t181 = t4 ? t165 : t170;
      const float t182 = t4 ? t170 : t165;
      const float t183 = t181 + t182 + (t176 - t173 + (t177 - t174)) * ((t176 - t173 + (t177 - t174)) * (t175 / st_max(t172 + t175, 1.0f))) * t172;
      const float t184 = t174 + (t177 - t174) * (t175 / st_max(t172 + t175, 1.0f)) + st_sum_error(t173, (t176 - t173) * (t175 / st_max(t172 + t175, 1.0f)));
      const float t185 = st_shuffle_xor(t178, 4);
      const float t186 = st_shuffle_xor(t179, 4);
      const float t187 = st_shuffle_xor(t180, 4);
      const float t188 = st_shuffle_xor(t183, 4);
      const float t189 = st_shuffle_xor(t184, 4);
      const float t190 = t5 ? t178 : t185;
      const float t191 = t5 ? t180 : t187;
      const float t192 = t5 ? t184 : t189;
      const float t193 = t5 ? t185 : t178;
      const float t194 = t5 ? t187 : t180;
      const float t195 = t5 ? t189 : t184;
      const float t196 = t190 + t193;
      const float t197 = (t5 ? t179 : t186) + (t5 ? t186 : t179);
      const float t198 = t191 + (t194 - t191) * (t193 / st_max(t190 + t193, 1.0f));
      const float t199 = t5 ? t183 : t188;
      const float t200 = t5 ? t188 : t183;
      const float t201 = t199 + t200 + (t194 - t191 + (t195 - t192)) * ((t194 - t191 + (t195 - t192)) * (t193 / st_max(t190 + t193, 1.0f))) * t190;
      const float t202 = t192 + (t195 - t192) * (t193 / st_max(t190 + t193, 1.0f)) + st_sum_error(t191, (t194 - t191) * (t193 / st_max(t190 + t193, 1.0f)));
      const float t203 = st_shuffle_xor(t196, 8);
      const float t204 = st_shuffle_xor(t197, 8);
      const float t205 = st_shuffle_xor(t198, 8);
      const float t206 = st_shuffle_xor(t201, 8);
      const float t207 = st_shuffle_xor(t202, 8);
      const float t208 = t6 ? t196 : t203;
      const float t209 = t6 ? t198 : t205;
      const float t210 = t6 ? t202 : t207;
      const float t211 = t6 ? t203 : t196;
      const float t212 = t6 ? t205 : t198;
      const float t213 = t6 ? t207 : t202;
      const float t214 = t208 + t211;
      const float t215 = (t6 ? t197 : t204) + (t6 ? t204 : t197);
      const float t216 = t209 + (t212 - t209) * (t211 / st_max(t208 + t211, 1.0f));
      const float t217 = t6 ? t201 : t206;
      const float t218 = t6 ? t206 : t201;
      const float t219 = t217 + t218 + (t212 - t209 + (t213 - t210)) * ((t212 - t209 + (t213 - t210)) * (t211 / st_max(t208 + t211, 1.0f))) * t208;
      const float t220 = t210 + (t213 - t210) * (t211 / st_max(t208 + t211, 1.0f)) + st_sum_error(t209, (t212 - t209) * (t211 / st_max(t208 + t211, 1.0f)));
      const float t221 = st_shuffle_xor(t214, 16);
      const float t222 = st_shuffle_xor(t215, 16);
      const float t223 = st_shuffle_xor(t216, 16);
      const float t224 = st_shuffle_xor(t219, 16);
      const float t225 = st_shuffle_xor(t220, 16);
      const float t226 = t7 ? t214 : t221;
      const float t227 = t7 ? t216 : t223;
      const float t228 = t7 ? t220 : t225;
      const float t229 = t7 ? t221 : t214;
      const float t230 = t7 ? t223 : t216;
      const float t231 = t7 ? t225 : t220;
      const float t232 = t7 ? t219 : t224;
      const float t233 = t7 ? t224 : t219;
      if (t8) {
        st_store(g0, k1 * 64 + k2, t226 + t229);
        st_store(g1, k1 * 64 + k2, (t7 ? t215 : t222) + (t7 ? t222 : t215));
        st_store(g2, k1 * 64 + k2, t227 + (t230 - t227) * (t229 / st_max(t226 + t229, 1.0f)));
        const float t234 = t232 + t233 + (t230 - t227 + (t231 - t228)) * ((t230 - t227 + (t231 - t228)) * (t229 / st_max(t226 + t229, 1.0f))) * t226;
        st_store(g3, k1 * 64 + k2, t234);
        const float t235 = t228 + (t231 - t228) * (t229 / st_max(t226 + t229, 1.0f)) + st_sum_error(t227, (t230 - t227) * (t229 / st_max(t226 + t229, 1.0f)));
        st_store(g4, k1 * 64 + k2, t235);
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
        float a3 = 0.0f;
        float a4 = 0.0f;
        float a5 = 0.0f;
        float a6 = 0.0f;
        #pragma unroll 8
        for (int i7 = 0; i7 < 2; ++i7) {
          const float t8 = st_load_cg(g0, k1 + i7 * 64);
          const float t9 = st_load_cg(g2, k1 + i7 * 64);
          const float t10 = st_load_cg(g4, k1 + i7 * 64);
          const float t11 = st_load_cg(g3, k1 + i7 * 64);
          const float t12 = a3 + st_load_cg(g1, k1 + i7 * 64);
          const float t13 = a4 + (t9 - a4) * (t8 / st_max(a2 + t8, 1.0f));
          const float t14 = a5 + t11 + (t9 - a4 + (t10 - a6)) * ((t9 - a4 + (t10 - a6)) * (t8 / st_max(a2 + t8, 1.0f))) * a2;
          const float t15 = a6 + (t10 - a6) * (t8 / st_max(a2 + t8, 1.0f)) + st_sum_error(a4, (t9 - a4) * (t8 / st_max(a2 + t8, 1.0f)));
          a2 += t8;
          a3 = t12;
          a4 = t13;
          a5 = t14;
          a6 = t15;
        }
        st_shared_store(b0, 0, a3);
        st_shared_store(b1, 0, st_isinf(a4) ? ST_NAN : a5);
      }
      st_sync_block();
      if (thread < 980) {
        const float t16 = st_load(x2, k1);
        const float t17 = st_shared_load(b0, 0) / 25088.0f;
        const float t18 = sqrtf(1e-05f + st_shared_load(b1, 0) / 25088.0f);
        const float t19 = st_load(x3, k1);
        const int k20 = task % 2 * 16;
        const int t21 = thread % 196;
        for (int i22 = thread / 196; i22 < 16; i22 += 5) {
          const int i23 = t21 * 4;
          float q24[4];
          st_unpack(q24, st_shared_load_pack<4>(c0, i22 * 784 + i23));
          float q25[4];
          #pragma unroll
          for (int e26 = 0; e26 < 4; ++e26) {
            q25[e26] = st_max(0.0f, t16 + (q24[e26] - t17) / t18 * t19);
          }
          st_store_pack<4>(y1, (k20 + i22) * 50176 + k1 * 784 + i23, st_packed<4>(q25));
        }
      }
    } else {
      const int task = block - 128;
      float* b0 = ST_SHARED(float, 50176);
      float* b1 = ST_SHARED(float, 50304);
      const int k1 = task * 32;
      if (thread < 32) {
        float a2 = 0.0f;
        float a3 = 0.0f;
        float a4 = 0.0f;
        float a5 = 0.0f;
        float a6 = 0.0f;
        #pragma unroll 8
        for (int i7 = 0; i7 < 2; ++i7) {
          const float t8 = st_load_cg(g0, k1 + thread + i7 * 64);
          const float t9 = st_load_cg(g2, k1 + thread + i7 * 64);
          const float t10 = st_load_cg(g4, k1 + thread + i7 * 64);
          const float t11 = st_load_cg(g3, k1 + thread + i7 * 64);
          const float t12 = a3 + st_load_cg(g1, k1 + thread + i7 * 64);
          const float t13 = a4 + (t9 - a4) * (t8 / st_max(a2 + t8, 1.0f));
          const float t14 = a5 + t11 + (t9 - a4 + (t10 - a6)) * ((t9 - a4 + (t10 - a6)) * (t8 / st_max(a2 + t8, 1.0f))) * a2;
          const float t15 = a6 + (t10 - a6) * (t8 / st_max(a2 + t8, 1.0f)) + st_sum_error(a4, (t9 - a4) * (t8 / st_max(a2 + t8, 1.0f)));
          a2 += t8;
          a3 = t12;
          a4 = t13;
          a5 = t14;
          a6 = t15;
        }
        st_shared_store(b0, thread, a3);
        st_shared_store(b1, thread, st_isinf(a4) ? ST_NAN : a5);
      }
      if (thread < 32) {
        st_store(y0, k1 + thread, 0.1f * (st_shared_load(b0, thread) / 25088.0f) + st_load(x1, k1 + thread) * 0.9f);
        st_store(y2, k1 + thread, 0.9f * st_load(x4, k1 + thread) + 0.1f * (st_shared_load(b1, thread) / 25088.0f));
      }
    }
  }
}
