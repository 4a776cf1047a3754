#include "collector/model/steps/work_roles.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {
namespace {

// As PyTorch's library registers them.
constexpr std::string_view kList = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernel";

TEST(WorkRoles, OfPytorchsFunctionsForListsOfTensorsOptimizersAreThoseThatCalculate) {
  EXPECT_EQ(RolesOfKernel(std::string(kList) + "FusedAdamMathFunctorIfLi4EL"), kRoleOptimizer | kRolePyTorch);
  for (const char* functor :
       {"BinaryOpScalarFunctorIfLi2ELi1ELi1EEE", "TernaryOpScalarFunctorIfLi3ELi3ELi0EEE"})
    EXPECT_EQ(RolesOfKernel(std::string(kList) + functor), kRoleOptimizer | kRoleForeach | kRolePyTorch)
        << functor;
  for (const char* functor : {"LpNormFunctorIfL", "BinaryOpScalarTensorFunctorIfLi1ELi1ELi0EEE"})
    EXPECT_EQ(RolesOfKernel(std::string(kList) + functor), kRoleForeach | kRoleNorm | kRolePyTorch)
        << functor;
  for (const char* functor :
       {"CopyFunctorIffLi2ELi1ELi1EEE", "ZeroFunctorIfLi1ELi1ELi0EEE",
        "INS1_14UnaryOpFunctorIN3c108BFloat16ELi2ELi1ELi1EEEJNS0_4CopyIS7_S7_EEEEEvT_T0_DpT1_"})
    EXPECT_EQ(RolesOfKernel(std::string(kList) + functor), kRolePyTorch) << functor;
}

TEST(WorkRoles, RangesThatPyTorchOpensAroundOperators) {
  for (const char* name : {"aten::mm", "autograd::engine::evaluate_function: MmBackward0", "MmBackward0",
                           "ViewBackward1", "torch::autograd::AccumulateGrad", "Optimizer.step#AdamW.step",
                           "DeepSpeedEngine.backward", "DeepSpeedZeroOptimizer_Stage3.partition_grads"}) {
    EXPECT_TRUE(IsOperatorRange(name)) << name;
  }
  for (const char* name :
       {"backward", "Backward", "my Backward0", "forward", "Optimizer.step", "step 3", "17", ""})
    EXPECT_FALSE(IsOperatorRange(name)) << name;
}

TEST(WorkRoles, AKernelThatFillsDoesWhatAMemsetDoes) {
  EXPECT_EQ(RolesOfKernel("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_T1_"),
            kRoleMemset | kRolePyTorch);
}

TEST(WorkRoles, LossesAndBackwardAreKnownByName) {
  EXPECT_EQ(RolesOfKernel("void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)"),
            kRoleForwardName | kRoleLossName | kRolePyTorch);
  EXPECT_EQ(RolesOfKernel("void softmax_warp_backward<float>(float*)"), kRoleBackwardName);
  EXPECT_EQ(RolesOfKernel("void at::native::vectorized_gather_kernel<16>(char*)"), kRolePyTorch);
}

}  // namespace
}  // namespace gpuprobe::model
