// Which of several verdicts about the same hang is kept.
#include "collector/model/calls/hang_verdicts.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

v1::HangVerdict Verdict(const std::string& key, uint32_t not_heard, uint64_t seen_ns) {
  v1::HangVerdict verdict;
  verdict.set_key(key);
  verdict.set_not_heard(not_heard);
  verdict.set_seen_ns(seen_ns);
  return verdict;
}

TEST(HangVerdicts, TheLastOneOfEachHangIsKept) {
  HangVerdicts verdicts;
  verdicts.Apply(Verdict("a", 0, 1));
  verdicts.Apply(Verdict("b", 0, 2));
  verdicts.Apply(Verdict("a", 0, 3));
  ASSERT_EQ(verdicts.all().size(), 2U);
  EXPECT_EQ(verdicts.all().front().seen_ns(), 3U);
}

TEST(HangVerdicts, OfOneHostsAndThatOfAllHostsTheLatterIsKept) {
  for (const bool of_all_first : {true, false}) {
    HangVerdicts verdicts;
    const v1::HangVerdict of_all = Verdict("a", 0, 1);
    const v1::HangVerdict of_one = Verdict("a", 2, 2);
    verdicts.Apply(of_all_first ? of_all : of_one);
    verdicts.Apply(of_all_first ? of_one : of_all);
    ASSERT_EQ(verdicts.all().size(), 1U);
    EXPECT_EQ(verdicts.all().front().not_heard(), 0U);
  }
}

}  // namespace
}  // namespace gpuprobe::model
