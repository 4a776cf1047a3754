// The page of a simulated job: its grid, the steps that its timelines show, and that nothing in it can end a
// script.
#include "collector/page/page.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "collector/analysis/build_report.h"
#include "collector/page/assets.h"
#include "collector/page/chosen_steps.h"
#include "collector/page/packed_cells.h"
#include "collector/page/page_data.h"
#include "collector/page/slices.h"
#include "collector/page/step_grid.h"
#include "collector/simulate/scenarios.h"
#include "nlohmann/json.hpp"
#include "tests/collector/testing/simulated_run.h"

namespace gpuprobe::page {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 40;

class PageOfAStraggler : public ::testing::Test {
 protected:
  PageOfAStraggler() {
    training_ = simulate::FindScenario("straggler-kernels")->job;
    training_.ranks = kRanks;
    training_.steps = kSteps;
    training_.slow.rank = 2;
    job_ = testing::ModelOf(training_, 1);
    report_ = analysis::BuildReport(*job_, {});
  }

  simulate::TrainingJob training_;
  std::unique_ptr<model::JobModel> job_;
  analysis::Report report_;
};

TEST_F(PageOfAStraggler, GridHasEveryStepOfEveryRankAndBlamesTheSlowOne) {
  const StepGrid grid = StepGridOf(*job_);
  EXPECT_EQ(grid.steps_per_column, 1U);
  EXPECT_EQ(grid.columns, static_cast<size_t>(kSteps));
  ASSERT_EQ(grid.rows.size(), static_cast<size_t>(kRanks));
  size_t blamed = 0;
  for (size_t column = 5; column + 1 < grid.columns; ++column) {
    size_t most = 0;
    for (size_t row = 0; row < grid.rows.size(); ++row) {
      const StepCell& cell = grid.rows[row][column];
      EXPECT_LE(cell.compute_ns + cell.exposed_comm_ns + cell.copy_ns, cell.total_ns * 1.0001F);
      if (cell.caused_wait_ns > grid.rows[most][column].caused_wait_ns) most = row;
    }
    blamed += job_->processes()[most]->identity().rank() == 2 ? 1 : 0;
  }
  EXPECT_GE(blamed, grid.columns - 8);
}

TEST_F(PageOfAStraggler, TimelinesShowTheSlowestTheMedianAndTheFindings) {
  const StepGrid grid = StepGridOf(*job_);
  const std::vector<ChosenStep> chosen = ChooseSteps(*job_, report_, grid);
  ASSERT_FALSE(chosen.empty());
  size_t slowest = 0;
  size_t median = 0;
  std::set<size_t> findings;
  for (const ChosenStep& step : chosen) {
    slowest += step.slowest ? 1 : 0;
    median += step.median ? 1 : 0;
    findings.insert(step.findings.begin(), step.findings.end());
  }
  EXPECT_EQ(slowest, 1U);
  EXPECT_EQ(median, 1U);
  EXPECT_EQ(findings.size(), report_.findings.size());
}

TEST_F(PageOfAStraggler, DataAreTheModels) {
  const nlohmann::json data = nlohmann::json::parse(PageData(*job_, report_, {}));
  EXPECT_EQ(data["steps"]["rows"], kRanks);
  EXPECT_EQ(data["steps"]["columns"], kSteps);
  const StepGrid grid = StepGridOf(*job_);
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(data["steps"]["cells"]["total_ns"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), 2U * kRanks * kSteps);
  for (size_t row = 0; row < kRanks; ++row) {
    for (size_t column = 0; column < kSteps; ++column) {
      const size_t at = 2 * (row * kSteps + column);
      const auto cell = static_cast<uint16_t>(static_cast<unsigned char>(bytes[at]) |
                                              static_cast<unsigned char>(bytes[at + 1]) << 8);
      const StepCell& expected = grid.rows[row][column];
      if (expected.steps == 0) {
        EXPECT_EQ(cell, kNoCell);
      } else {
        EXPECT_NEAR(UnpackCell(cell) / expected.total_ns, 1, 0.0003);
      }
    }
  }
}

TEST_F(PageOfAStraggler, NothingInItEndsAScript) {
  report_.conditions.command_line = {"train.py", "</script><script>alert(1)</script>", "<!--"};
  const std::string page = Page(*job_, report_, {});
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<!--\""), std::string::npos);
  if (kProgram.empty()) GTEST_SKIP() << "built without the page's program";
  EXPECT_NE(page.find("\\u003c/script>\\u003cscript>alert(1)"), std::string::npos);
}

TEST(HostSlices, TheLongestStayInTheirOrder) {
  std::vector<HostSlice> slices;
  for (const uint64_t length : {5, 1, 9, 7, 2}) {
    const uint64_t start = 100 * slices.size();
    slices.push_back({.start_ns = start, .end_ns = start + length});
  }
  std::swap(slices[0], slices[3]);
  KeepLongest(3, slices);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].start_ns, 0U);
  EXPECT_EQ(slices[1].start_ns, 200U);
  EXPECT_EQ(slices[2].start_ns, 300U);
}

TEST(Page, OfAnEmptyJobHasNoSteps) {
  const model::JobModel job;
  const analysis::Report report = analysis::BuildReport(job, {});
  const nlohmann::json data = nlohmann::json::parse(PageData(job, report, {}));
  EXPECT_TRUE(data["steps"].is_null());
  EXPECT_TRUE(data["timelines"].empty());
}

}  // namespace
}  // namespace gpuprobe::page
