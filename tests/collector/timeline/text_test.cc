#include <gtest/gtest.h>

#include "collector/timeline/collective_words.h"
#include "collector/timeline/utf8.h"

namespace gpuprobe::timeline {
namespace {

TEST(Utf8, ValidTextStaysAsItIs) {
  for (const char* text : {"", "step", "Schritt \xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_EQ(ToUtf8(text), text);
}

TEST(Utf8, EachWrongByteIsReplaced) {
  const std::string wrong = "\xef\xbf\xbd";
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a" + wrong + "b");
  EXPECT_EQ(ToUtf8("\xc3"), wrong);                          // cut off
  EXPECT_EQ(ToUtf8("\xc0\x80"), wrong + wrong);              // longer than need be
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), wrong + wrong + wrong);  // half of a pair
  EXPECT_EQ(ToUtf8("\xe2\x82"
                   "a"),
            wrong + wrong + "a");
}

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
