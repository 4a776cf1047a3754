#include "collector/render/rank_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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
  report.ranks[300].memory["device"].high_water_bytes = 1;
  const RankChoice choice = ChooseRanks(report);
  EXPECT_TRUE(std::is_sorted(choice.shown.begin(), choice.shown.end()));
  // The busiest, the least busy, and of equal memory the first.
  EXPECT_THAT(choice.shown, ElementsAre(0, 1, 2, 3, 77, 300, 500, 1020, 1021, 1022, 1023));
  EXPECT_THAT(choice.note, HasSubstr("1,013 more ranks in report.json"));
}

}  // namespace
}  // namespace gpuprobe::render
