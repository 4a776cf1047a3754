// Sentences and rows as a terminal shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "collector/analysis/units.h"
#include "collector/render/collective_table.h"
#include "collector/render/comparison.h"
#include "collector/render/text_layout.h"
#include "collector/render/text_report.h"
#include "collector/report/report.h"

namespace gpuprobe::render {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.pop_back();
  return lines;
}

TEST(Wrap, KeepsNumbersWithTheirUnit) {
  // The width is 118: "12.5" would be the last that fits.
  for (const std::string unit : {"ms", "%", "GiB.", "GB/s,", "x"}) {
    const std::string text = std::string(110, 'a') + " is 12.5 " + unit + " of it all";
    const auto lines = Lines(Layout().Wrap("", "", text));
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_THAT(lines[1], ::testing::StartsWith("12.5 " + unit));
  }
  const auto lines = Lines(Layout().Wrap("", "", std::string(112, 'a') + " 12.5 ranks of them"));
  EXPECT_EQ(lines[0], std::string(112, 'a') + " 12.5") << "ranks are no unit";
}

TEST(Lay, NamesOfAProgramCannotBreakATable) {
  const Table table{.id = "kernels",
                    .title = "Kernels",
                    .columns = {"kernel"},
                    .left = {true},
                    .rows = {{"evil\n\x1b[2Jname"}},
                    .note = ""};
  EXPECT_EQ(Layout().Lay(table), " kernel\n evil??[2Jname\n");
}

// Without what a terminal takes as a change of colour.
std::string WithoutColors(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

Table WideTable() {
  return {.id = "kernels",
          .title = "Kernels",
          .columns = {"kernel", "calls", "total", "mean"},
          .left = {true, false, false, false},
          .rows = {{"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "1,440", "1.70 s", "2.36 ms"},
                   {"AdamStep", "2,880", "124 ms", "43.0 us"}},
          .note = "means over all ranks"};
}

TEST(Lay, ContinuesBelowWithTheColumnsThatDoNotFit) {
  const Layout layout(Screen{.width = 44, .colors = false});
  EXPECT_THAT(Lines(layout.Lay(WideTable())),
              ElementsAre(" kernel                  calls   total", " ncclDevKer...2_RING_LL  1,440  1.70 s",
                          " AdamStep                2,880  124 ms", " kernel                     mean",
                          " ncclDevKer...2_RING_LL  2.36 ms", " AdamStep                43.0 us",
                          "   (means over all ranks)"));
}

TEST(Lay, ShortensTextThatDoesNotFitBesideTheFirstColumn) {
  Table table = WideTable();
  table.columns = {"what", "inferred from"};
  table.left = {true, true};
  table.rows = {{"weights", "as large as the gradients, 448 MiB in all"}};
  const Layout layout(Screen{.width = 40, .colors = false});
  EXPECT_THAT(Lines(layout.Lay(table)),
              ElementsAre(" what     inferred from", " weights  as large as th...48 MiB in all",
                          "   (means over all ranks)"));
}

TEST(Layout, ColoursAddNothingToTheText) {
  Table table = WideTable();
  table.marked = {1};
  for (const size_t width : {60, 100}) {
    const Layout plain(Screen{.width = width, .colors = false});
    const Layout colored(Screen{.width = width, .colors = true});
    EXPECT_EQ(WithoutColors(colored.Lay(table)), plain.Lay(table));
    EXPECT_THAT(colored.Lay(table), HasSubstr("\x1b[1m"));
    const std::string text = std::string(100, 'a') + " is wrapped";
    EXPECT_EQ(WithoutColors(colored.Wrap("1 ", "  ", text, Emphasis::kError)), plain.Wrap("1 ", "  ", text));
    EXPECT_THAT(plain.Wrap("1 ", "  ", text, Emphasis::kError), Not(HasSubstr("\x1b")));
  }
}

TEST(Layout, SentencesStayReadableOnAWideScreen) {
  const Layout layout(Screen{.width = 300, .colors = false});
  for (const std::string& line :
       Lines(layout.Wrap("", "", std::string(80, 'a') + " " + std::string(60, 'b') + " c")))
    EXPECT_LE(line.size(), Screen::kReadable);
}

TEST(Wrap, LeavesNoWordAloneOnTheLastLine) {
  const auto lines = Lines(Layout().Wrap("> ", "  ", std::string(100, 'a') + " before the last-word-of-it"));
  EXPECT_THAT(lines, ElementsAre("> " + std::string(100, 'a') + " before", "  the last-word-of-it"));
}

TEST(Wrap, ShortTextIsOneLineAndLongWordsStayWhole) {
  EXPECT_EQ(Layout().Wrap(" 1  ", "    ", "Nothing."), " 1  Nothing.\n");
  const std::string word(200, 'w');
  EXPECT_THAT(Lines(Layout().Wrap("", "", "a " + word)), ElementsAre("a", word));
}

TEST(Units, RoundUpToTheNextUnit) {
  EXPECT_EQ(analysis::Duration(999.4), "999 ns");
  EXPECT_EQ(analysis::Duration(999.6), "1.00 us");
  EXPECT_EQ(analysis::Duration(999'400), "999 us");
  EXPECT_EQ(analysis::Duration(999'900), "1.00 ms");
  EXPECT_EQ(analysis::Duration(999.9e6), "1.00 s");
  EXPECT_EQ(analysis::Bytes(1023), "1023 B");
  EXPECT_EQ(analysis::Bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(analysis::Bytes(999 << 10), "999 KiB");
}

TEST(Units, SpansAreInTheUnitThatPeopleCountThemIn) {
  EXPECT_EQ(analysis::Span(84.1e9), "84.1 s");
  EXPECT_EQ(analysis::Span(503e9), "8 min");
  EXPECT_EQ(analysis::Span(3 * 3600e9), "3.0 h");
  EXPECT_EQ(analysis::Span(49 * 3600e9), "2 days");
}

TEST(KernelNames, DifferWhereTheKernelsDo) {
  const std::string common = "void at::native::vectorized_elementwise_kernel<4, at::native::";
  const auto names =
      analysis::KernelNames({common + "CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
                             common + "GeluFunctor<float>, std::array<char*, 2ul> >(int)", "gemm(float*)"},
                            48);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_THAT(names[0], HasSubstr("CUDAFunctor_add"));
  EXPECT_THAT(names[1], HasSubstr("GeluFunctor"));
  for (const std::string& name : names) EXPECT_LE(name.size(), 48u);
  EXPECT_EQ(names[2], "gemm(float*)");
}

analysis::CollectiveReport Series(const std::string& comm, std::vector<uint32_t> members, double p50_us) {
  analysis::CollectiveReport c;
  c.op = "AllReduce";
  c.comm = comm;
  c.comm_ranks = 2;
  c.size_bytes = uint64_t{64} << 20;
  c.calls = 2560;
  c.time_ns.count = 2560;
  c.time_ns.p50 = p50_us * 1e3;
  c.time_ns.p95 = 205e3;
  c.busbw = 315;
  c.compared_plans = 2560;
  c.wait_ns = uint64_t{2560} * 886'000;
  c.transfer_mean_ns = 300e3;
  c.steady = {.has_steps = true,
              .compared = 2500,
              .plans_per_step = 64,
              .transfer_ns = 198e3,
              .transfer_std_ns = 1e3,
              .wait_ns = 5e3};
  c.members = std::move(members);
  return c;
}

TEST(CollectivesTable, CommunicatorsOfOneRoleAreOneRow) {
  analysis::Report r;
  r.steps.emplace();
  r.collectives = {Series("a1", {0, 1}, 198), Series("a2", {2, 3}, 230), Series("b1", {0, 2}, 198)};
  const Table t = CollectivesTable(r);
  ASSERT_EQ(t.rows.size(), 2u) << "b1's ranks are in a1 and a2, too: another kind of group";
  EXPECT_THAT(t.rows[0], ElementsAre("AllReduce", "x2", "2", "5,120", "64.0 MiB", "198-230 us", "205 us", "-",
                                     "315 GB/s", "198 us / 5.00 us"));
  EXPECT_EQ(t.rows[1][1], "b1");
}

TEST(CollectivesTable, WaitingInTheWarmUpIsLeftOutOrSaid) {
  analysis::Report r;
  r.steps.emplace();
  r.collectives = {Series("a1", {0, 1}, 198)};
  EXPECT_EQ(CollectivesTable(r).rows[0].back(), "198 us / 5.00 us");
  EXPECT_THAT(CollectivesTable(r).note, HasSubstr("after the warm-up"));
  r.collectives[0].steady = {};
  EXPECT_EQ(CollectivesTable(r).rows[0].back(), "300 us (start)");
}

analysis::Report WithWork(double mfu) {
  analysis::Report r;
  r.conditions.devices.push_back(
      {.host = "n1", .ordinal = 0, .name = "NVIDIA H100 80GB HBM3", .uuid = "", .memory_bytes = 0});
  r.steps.emplace();
  r.steps->count = 10;
  r.steps->time_ns.count = 10;
  r.steps->time_ns.mean = 0.2e9;
  r.utilisation = {.asked = true,
                   .flops_per_step = 98.3e12,
                   .formula = "6 x parameters x tokens",
                   .type = analysis::NumberFormat::kBf16,
                   .devices = 1,
                   .peak_flops = 989.4e12,
                   .peak_source = "NVIDIA's data sheet, dense",
                   .mfu = mfu,
                   .hfu = mfu * 8 / 6,
                   .missing = ""};
  return r;
}

TEST(TextReport, SaysTheUtilisationThatWasAskedForWhateverItIs) {
  const std::string text = TextReport(WithWork(0.49), "");
  EXPECT_THAT(
      text,
      HasSubstr("MFU 49.0 %: 98.3 TFLOP per step (6 x parameters x tokens) in 200 ms on 1 x 989.4 TFLOP/s"));
  EXPECT_THAT(text, HasSubstr("HFU, with recomputed activations, 65.3 %"));
  analysis::Report r = WithWork(0.49);
  r.utilisation.mfu.reset();
  r.utilisation.missing = "no steps were recognised";
  r.steps.reset();
  EXPECT_THAT(TextReport(r, ""), HasSubstr("MFU unknown: no steps were recognised."));
  r.utilisation.asked = false;
  EXPECT_THAT(TextReport(r, ""), Not(HasSubstr("MFU")));
}

TEST(TextReport, WhatIsMerelyWorthKnowingIsNotNumbered) {
  analysis::Report r;
  r.findings = {{.statement = "Nothing stands out.", .evidence = "", .advice = "", .id = "healthy"},
                {.statement = "Half of it is not steady.",
                 .evidence = "Two steps.",
                 .advice = "Fine.",
                 .id = "warmup-dominated"}};
  EXPECT_THAT(TextReport(r, ""), HasSubstr(" -  Nothing stands out.\n -  Half of it is not steady.\n"));
}

TEST(ComparisonText, WhatIsManyTimesAsMuchIsSaidSo) {
  analysis::Comparison c;
  c.per_step = true;
  analysis::ComparedPart part;
  part.part = model::StepPart::kExposedComm;
  part.a = {.count = 40, .mean = 1e5, .std = 1e3};
  part.b = {.count = 40, .mean = 12.8e6, .std = 1e4};
  part.test = analysis::Welch(part.a, part.b);
  part.significant = true;
  c.parts = {part};
  EXPECT_THAT(ComparisonText(c, "a", "b"), HasSubstr("128x"));
  EXPECT_THAT(ComparisonText(c, "a", "b"), Not(HasSubstr("12700")));
}

}  // namespace
}  // namespace gpuprobe::render
