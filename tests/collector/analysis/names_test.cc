#include "collector/analysis/names.h"

#include <gtest/gtest.h>

namespace gpuprobe::analysis {
namespace {

TEST(Names, OfCommunicatorsAreForPeopleUnlessAFrameworkMadeThemUp) {
  for (const char* telling : {"the whole job", "mesh_dp", "dp0", "feed", "decade of 7"})
    EXPECT_EQ(TellingName(telling), telling);
  EXPECT_EQ(TellingName(""), "");
  EXPECT_EQ(TellingName("0"), "") << "PyTorch's default group";
  EXPECT_EQ(TellingName("127"), "");
  EXPECT_EQ(TellingName("5f1c3a9e0b7d2c4e6f8091a2b3c4d5e6f7081920"), "") << "a dimension of its mesh";
}

}  // namespace
}  // namespace gpuprobe::analysis
