#include "collector/analysis/work/kernel_class.h"

#include <gtest/gtest.h>

namespace gpuprobe::analysis {
namespace {

struct Named {
  const char* kernel;
  KernelClass is;
};

// Names as the libraries give them.
constexpr Named kNamed[] = {
    {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", KernelClass::kCollective},
    {"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", KernelClass::kGemm},
    {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)",
     KernelClass::kGemm},
    {"nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", KernelClass::kGemm},
    {"void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)", KernelClass::kGemm},
    {"void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensor<float> "
     "> >(...)",
     KernelClass::kReduction},
    {"void reduce_1Block_kernel<float, 128, 7, cublasGemvTensor<float>, cublasGemvTensor<float> >(...)",
     KernelClass::kReduction},
    {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, ...>(...)",
     KernelClass::kGemm},
    {"triton_mm", KernelClass::kGemm},
    {"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
     KernelClass::kConvolution},
    {"void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(...)", KernelClass::kConvolution},
    {"void cutlass::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_128x64>(Params)",
     KernelClass::kConvolution},
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >(Params)",
     KernelClass::kAttention},
    {"fmha_cutlassB_bf16_aligned_64x64_k64_sm80(PyTorchMemEffAttention::Params)", KernelClass::kAttention},
    {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)",
     KernelClass::kNormalisation},
    {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>(...)",
     KernelClass::kNormalisation},
    {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, ...>(int)",
     KernelClass::kElementwise},
    {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...)::lambda>(int)",
     KernelClass::kCopy},
    {"triton_poi_fused_add_gelu_3", KernelClass::kElementwise},
    {"triton_red_fused_native_layer_norm_2", KernelClass::kNormalisation},
    {"triton_red_fused_sum_2", KernelClass::kReduction},
    {"triton_poi_fused_addmm_clone_transpose_view_2", KernelClass::kElementwise},
    {"triton_poi_fused_convolution_relu_0", KernelClass::kElementwise},
    {"triton_poi_fused_linear_1", KernelClass::kElementwise},
    {"triton_per_fused__softmax_backward_data_div_view_7", KernelClass::kReduction},
    {"triton_red_fused_gelu_gelu_backward_sum_view_2", KernelClass::kReduction},
    {"triton_red_fused_convolution_backward_4", KernelClass::kReduction},
    {"triton_per_fused__unsafe_view_add_addmm_native_layer_norm_native_layer_norm_backward_10",
     KernelClass::kNormalisation},
    {"triton_for_fused_0", KernelClass::kOptimizer},
    {"triton_spl_fused_cumsum_0", KernelClass::kReduction},
    {"triton_tem_fused_mm_1", KernelClass::kGemm},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps> >(ReduceOp)",
     KernelClass::kReduction},
    {"void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, true, false>(float*)",
     KernelClass::kReduction},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, "
     "FusedAdamMathFunctor<float> >(...)",
     KernelClass::kOptimizer},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u> >(...)",
     KernelClass::kCopy},
    {"LinearBackwardWeight(float const*, float*, int)", KernelClass::kGemm},
    {"void at::native::(anonymous namespace)::upsample_bilinear2d_out_frame<float, float>(int)",
     KernelClass::kElementwise},
    {"AdamStep(float*, float*, float*)", KernelClass::kOptimizer},
    {"TanhBackward(float*)", KernelClass::kElementwise},
    {"my_own_kernel(float*)", KernelClass::kOther},
    {"", KernelClass::kOther},
};

constexpr Named kOfPytorch[] = {
#include "collector/report/words.h"
#include "tests/collector/analysis/pytorch_kernels.inc"
};

TEST(KernelClass, IsToldFromTheName) {
  for (const Named& named : kNamed)
    EXPECT_EQ(report::Word(KernelClassOf(named.kernel)), report::Word(named.is)) << named.kernel;
}

TEST(KernelClass, IsToldOfPytorchsKernels) {
  for (const Named& named : kOfPytorch)
    EXPECT_EQ(report::Word(KernelClassOf(named.kernel)), report::Word(named.is)) << named.kernel;
}

TEST(KernelClass, WhatTorchCompileMadeIsTold) {
  EXPECT_TRUE(IsCompiledByInductor("triton_poi_fused_convolution_relu_0"));
  EXPECT_TRUE(IsCompiledByInductor("triton_tem_fused_mm_1"));
  EXPECT_FALSE(IsCompiledByInductor("my_triton_kernel")) << "written by hand, launched by hand";
}

TEST(KernelClass, FusedOptimizersAreToldFromThoseWithAKernelForEachOperation) {
  constexpr std::string_view kApply = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<";
  const auto applied = [&](std::string_view functor) {
    return IsFusedOptimizer(std::string(kApply).append(functor));
  };
  EXPECT_TRUE(applied("FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(...)"));
  EXPECT_TRUE(applied("FusedOptimizerTensorListMetadata<3>, FusedSgdMathFunctor<float, 3> >(...)"));
  EXPECT_TRUE(applied("TensorListMetadata<4>, AdamFunctor<float, float, int> >(...)")) << "Apex's";
  EXPECT_FALSE(
      applied("TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float> >(...)"));
  EXPECT_FALSE(IsFusedOptimizer("void layer_norm_fused(float*)"));
}

}  // namespace
}  // namespace gpuprobe::analysis
