#include "injector/ledgers/operator_name.h"

#include <gtest/gtest.h>

namespace gpuprobe::injector {
namespace {

TEST(OperatorNameTest, LosesTheNumbersThatPyTorchGivesIt) {
  EXPECT_EQ(OperatorName("aten::mm, seq = 3, op_id = 20"), "aten::mm");
  EXPECT_EQ(OperatorName("aten::empty, op_id = 2"), "aten::empty");
  EXPECT_EQ(OperatorName("aten::mm, seq = 3, op_id = 20, sizes = [[8, 4], [4, 2]], input_op_ids = [[1,0]]"),
            "aten::mm");
  EXPECT_EQ(OperatorName("autograd::engine::evaluate_function: MmBackward0, op_id = 7"),
            "autograd::engine::evaluate_function: MmBackward0");
}

TEST(OperatorNameTest, OtherNamesStay) {
  for (const char* name :
       {"", "step", "batch 7, seq = 3", "a, op_id = ", "a, op_id = x", "op_id = 3", "forward"})
    EXPECT_EQ(OperatorName(name), name);
  EXPECT_EQ(OperatorName("a, seq = x, op_id = 4"), "a, seq = x");
  EXPECT_EQ(OperatorName("a, seq = , op_id = 4"), "a, seq = ");
}

}  // namespace
}  // namespace gpuprobe::injector
