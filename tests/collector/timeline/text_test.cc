#include <gtest/gtest.h>

#include "collector/timeline/collective_words.h"

namespace gpuprobe::timeline {
namespace {

TEST(CollectiveWords, AreThoseOfPyTorch) {
  EXPECT_EQ(CollectiveName("AllReduce"), "allreduce");
  EXPECT_EQ(CollectiveName("AllGather"), "_allgather_base");
  EXPECT_EQ(CollectiveName("ReduceScatter"), "_reduce_scatter_base");
  EXPECT_EQ(CollectiveName("Novelty"), "Novelty");
  EXPECT_EQ(DataTypeWord("bfloat16"), "BFloat16");
  EXPECT_EQ(DataTypeWord("novel"), "novel");
  EXPECT_TRUE(GivesToEach("AllGather"));
  EXPECT_FALSE(TakesFromEach("AllGather"));
  EXPECT_TRUE(TakesFromEach("ReduceScatter"));
}

}  // namespace
}  // namespace gpuprobe::timeline
