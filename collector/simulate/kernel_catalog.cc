#include "collector/simulate/kernel_catalog.h"

#include <cstddef>
#include <iterator>

namespace gpuprobe::simulate {
namespace {

// In the order of Kernel.
constexpr KernelInfo kKernels[] = {
    {"nvjet_tst_192x192_64x4_1x2_h_bz_coopA_TNT", {132, 1, 1}, {384, 1, 1}, 168, 213264},
    {"nvjet_tst_128x256_64x4_1x2_h_bz_coopB_NNT", {132, 1, 1}, {384, 1, 1}, 168, 213264},
    {"nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NTT", {132, 1, 1}, {384, 1, 1}, 168, 213264},
    {"_ZN5flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass10bfloat16_"
     "tE19Flash_kernel_traitsILi128ELi128ELi64ELi4ES3_EELb0ELb1ELb0ELb0ELb0ELb1ELb0ELb0EEEvNS_16Flash_fwd_"
     "paramsE",
     {16, 8, 16},
     {128, 1, 1},
     255,
     65536},
    {"_ZN5flash44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelI23Flash_bwd_kernel_"
     "traitsILi128ELi64ELi128ELi8ELi2ELi4ELi2ELb0ELb0EN7cutlass10bfloat16_tE19Flash_kernel_"
     "traitsILi128ELi64ELi128ELi8ES3_EELb0ELb1ELb0ELb0ELb0ELb1ELb0EEEvNS_16Flash_bwd_paramsE",
     {16, 8, 16},
     {256, 1, 1},
     255,
     147456},
    {"_ZN2at6native12_GLOBAL__N_128vectorized_layer_norm_kernelIN3c108BFloat16EfLb0EEEviT0_PKT_S8_S8_PS5_S9_"
     "PS6_",
     {8192, 1, 1},
     {32, 4, 1},
     32,
     24},
    {"_ZN2at6native12_GLOBAL__N_139layer_norm_grad_input_kernel_vectorizedIN3c108BFloat16EfLb0EEEvPKT_S7_"
     "PKT0_"
     "SA_S7_PS5_i",
     {8192, 1, 1},
     {128, 1, 1},
     40,
     512},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
     "18GeluCUDAKernelImplIN3c108BFloat16EEESt5arrayIPcLm2"
     "EEEEviT0_T1_",
     {65536, 1, 1},
     {128, 1, 1},
     24,
     0},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_12_GLOBAL__N_"
     "119GeluBackwardFunctorIN3c108BFloat16EEE"
     "St5arrayIPcLm3EEEEviT0_T1_",
     {65536, 1, 1},
     {128, 1, 1},
     28,
     0},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
     "addIN3c108BFloat16EEESt5arrayIPcLm3EEEE"
     "viT0_T1_",
     {16384, 1, 1},
     {128, 1, 1},
     20,
     0},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
     {4096, 1, 1},
     {128, 1, 1},
     16,
     0},
    {"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_11sum_functorIfEEEEEEvT1_",
     {1, 64, 1},
     {32, 16, 1},
     32,
     16},
    {"_ZN2at6native19cunn_SoftMaxForwardILi8EN3c108BFloat16EffNS0_25LogSoftMaxForwardEpilogueEEEvPT2_PKT0_i",
     {8192, 1, 1},
     {1024, 1, 1},
     32,
     4096},
    {"_ZN2at6native20cunn_SoftMaxBackwardILi8EN3c108BFloat16EffNS0_26LogSoftMaxBackwardEpilogueEEEvPT0_PKT2_"
     "S9_"
     "i",
     {8192, 1, 1},
     {1024, 1, 1},
     32,
     4096},
    {"_ZN2at6native21indexSelectLargeIndexIN3c108BFloat16EEEvPT_PKS4_PKli", {1024, 1, 1}, {128, 1, 1}, 24, 0},
    {"_ZN2at6native33embedding_backward_feature_kernelIN3c108BFloat16ElEEvPKT0_PKT_PS7_ii",
     {256, 1, 1},
     {32, 32, 1},
     32,
     0},
    {"sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
     "warpsize2x2x1_"
     "g1_tensor16x8x16_execute_kernel__5x_cudnn",
     {392, 1, 1},
     {128, 1, 1},
     234,
     98304},
    {"sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
     "warpsize2x2x1_"
     "g1_tensor16x8x16_execute_kernel__5x_cudnn",
     {392, 1, 1},
     {128, 1, 1},
     234,
     98304},
    {"sm80_xmma_wgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_"
     "warpsize2x2x1_"
     "g1_tensor16x8x16_execute_kernel__5x_cudnn",
     {72, 1, 1},
     {128, 1, 1},
     234,
     98304},
    {"_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_"
     "32FusedOptimizerTensorListMetadataILi4EEENS1_"
     "20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS9_EEEvT_T0_DpT1_",
     {320, 1, 1},
     {512, 1, 1},
     64,
     0},
    {"_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_"
     "14UnaryOpFunctorIfLi1ELi1ELi0EEEJfEEEvT_T0_DpT1_",
     {320, 1, 1},
     {512, 1, 1},
     32,
     0},
    {"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     {24, 1, 1},
     {512, 1, 1},
     96,
     82240},
    {"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     {24, 1, 1},
     {512, 1, 1},
     96,
     82240},
    {"_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     {24, 1, 1},
     {512, 1, 1},
     96,
     82240},
    {"_Z31ncclDevKernel_Broadcast_RING_LL24ncclDevKernelArgsStorageILm4096EE",
     {24, 1, 1},
     {512, 1, 1},
     96,
     82240},
    {"_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE", {16, 1, 1}, {512, 1, 1}, 96, 82240},
};
static_assert(std::size(kKernels) == static_cast<size_t>(Kernel::kCount));

}  // namespace

const KernelInfo& InfoOf(Kernel kernel) { return kKernels[static_cast<size_t>(kernel)]; }

}  // namespace gpuprobe::simulate
