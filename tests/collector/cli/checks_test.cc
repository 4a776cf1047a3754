#include "collector/cli/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/cli/near_word.h"

namespace gpuprobe::cli {
namespace {

using ::testing::HasSubstr;

std::string SizeOf(std::string text, uint64_t least = 0) {
  const std::string refused = Size(least, UINT64_MAX)(text);
  return refused.empty() ? text : refused;
}

TEST(Checks, SizesWithAndWithoutUnits) {
  EXPECT_EQ(SizeOf("4096"), "4096");
  EXPECT_EQ(SizeOf("512MiB"), "536870912");
  EXPECT_EQ(SizeOf("512m"), "536870912");
  EXPECT_EQ(SizeOf("1.5G"), "1610612736");
  EXPECT_EQ(SizeOf("18446744073709551615"), "18446744073709551615");
  for (const char* bad : {"", "-5GiB", "GiB", "5XB", "5GiBs", "abc", "1e400E", "16E", "0x10", "5 5"})
    EXPECT_THAT(SizeOf(bad), HasSubstr(std::string("got \"") + bad + "\"")) << bad;
  EXPECT_THAT(SizeOf("15MiB", 16 << 20), HasSubstr("of at least 16.0 MiB"));
}

TEST(Checks, NumbersSayTheirRange) {
  std::string value = "7";
  EXPECT_EQ(WholeNumber(1, 10)(value), "");
  for (const char* bad : {"0", "11", "-1", "1.5", "abc", "", " 7", "99999999999999999999999"}) {
    value = bad;
    EXPECT_THAT(WholeNumber(1, 10)(value), HasSubstr("must be a whole number from 1 to 10")) << bad;
  }
  for (const char* bad : {"0", "-2", "nan", "inf", "abc", ""}) {
    value = bad;
    EXPECT_THAT(AboveZero()(value), HasSubstr("must be a positive number")) << bad;
  }
}

TEST(NearWord, TypingErrorsAreForgivenAndOtherWordsAreNot) {
  const std::vector<std::string> words = {"run", "collect", "report", "diff", "top", "export", "simulate"};
  EXPECT_EQ(NearWord("reprot", words), "report");
  EXPECT_EQ(NearWord("REPORT", words), "report");
  EXPECT_EQ(NearWord("colect", words), "collect");
  EXPECT_EQ(NearWord("sim", words), "simulate") << "its beginning";
  EXPECT_EQ(NearWord("tpo", words), "top");
  for (const char* other : {"frobnicate", "trace", "x", "", "python", "help"})
    EXPECT_EQ(NearWord(other, words), "") << other;
  EXPECT_EQ(DidYouMean("--hang-afer", {"--keep", "--hang-after"}), "; did you mean --hang-after?");
}

}  // namespace
}  // namespace gpuprobe::cli
