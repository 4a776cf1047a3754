#include "collector/render/rank_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collector/report/report.h"

namespace gpuprobe::render {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

analysis::Report ReportOf(int ranks) {
  analysis::Report report;
  for (int i = 0; i < ranks; ++i) {
    analysis::RankReport rank;
    rank.rank = i;
    rank.kernel_busy_ns = 1000 + static_cast<uint64_t>(i);
    report.ranks.push_back(rank);
  }
  return report;
}

TEST(RankChoice, ShowsAllOfAFew) {
  const RankChoice choice = ChooseRanks(ReportOf(32));
  EXPECT_THAT(choice.shown, SizeIs(32));
  EXPECT_EQ(choice.note, "");
}

TEST(RankChoice, OfManyShowsWhatStandsOutAndSaysHowManyAreLeftOut) {
  analysis::Report report = ReportOf(1024);
  report.ranks[77].cut_off = true;
  report.stragglers.emplace_back().rank = 500;
  report.ranks[300].device_memory.emplace_back().high_water_bytes = 1;
  const RankChoice choice = ChooseRanks(report);
  // Who is named; then the busiest, the least busy, and of equal memory the first.
  EXPECT_THAT(choice.shown, ElementsAre(77, 500, 0, 1, 2, 3, 300, 1020, 1021, 1022, 1023));
  EXPECT_THAT(choice.named, ElementsAre(77, 500));
  EXPECT_THAT(choice.note, HasSubstr("1,013 more ranks in report.json"));
}

TEST(RankChoice, WhoeverAHangWaitsForOrRanOutOfMemoryIsNamed) {
  analysis::Report report = ReportOf(8);
  report.ranks[6].out_of_memory.emplace_back();
  analysis::Hang& hang = report.hangs.emplace_back();
  hang.ranks.resize(2);
  hang.ranks[0].rank = 2;
  hang.ranks[0].state = analysis::HangRank::State::kWaiting;
  hang.ranks[1].rank = 3;
  hang.ranks[1].state = analysis::HangRank::State::kNotIssued;
  const RankChoice choice = ChooseRanks(report);
  EXPECT_THAT(choice.named, ElementsAre(3, 6));
  EXPECT_THAT(choice.shown, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << "a few stay in order";
}

}  // namespace
}  // namespace gpuprobe::render
