#include "collector/recording/hub_attempts.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/comparison/comparison.h"
#include "collector/analysis/comparison/run_series.h"
#include "collector/analysis/finding_rules.h"
#include "collector/render/json_report.h"
#include "collector/report/json.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::recording {
namespace {

constexpr char kStepsFile[] = "steps.json";

std::string SeriesText(const analysis::RunSeries& series) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const analysis::Series& part : series.ranks.front().parts) parts.push_back(part);
  const nlohmann::ordered_json json = {{"block_steps", series.block_steps}, {"parts", std::move(parts)}};
  return json.dump() + "\n";
}

// Of an attempt that this hub, or one before it, has kept. nullopt: of this one it has not.
std::optional<analysis::RunSeries> ReadSeries(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/", kStepsFile));
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  try {
    analysis::RunSeries series;
    series.block_steps = std::max(json.at("block_steps").get<uint64_t>(), uint64_t{1});
    analysis::RankSeries& mean = series.ranks.emplace_back();
    mean.rank = 0;
    for (size_t i = 0; i < mean.parts.size(); ++i) {
      for (const nlohmann::json& value : json.at("parts").at(i))
        mean.parts[i].push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                : value.get<double>());
    }
    return series;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<analysis::Report> ReadReport(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/", render::kReportFile));
  absl::StatusOr<analysis::Report> report =
      report::FromJson(nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false));
  if (!report.ok()) return std::nullopt;
  for (const auto& [reason, records] : report->trust.lost) report->trust.lost_total += records;
  // Another release may have found what this one does not know.
  std::erase_if(report->findings, [](const analysis::Finding& finding) {
    const auto rules = analysis::FindingRules();
    return std::none_of(rules.begin(), rules.end(), [&](const auto& rule) { return finding.id == rule.id; });
  });
  return *std::move(report);
}

std::optional<http::ComparedAttempt> CompareWith(const LastAttempt& last, const analysis::Run& now) {
  std::optional<analysis::RunSeries> series = ReadSeries(last.directory);
  std::optional<analysis::Report> report = ReadReport(last.directory);
  if (!series.has_value() || !report.has_value()) return std::nullopt;
  const analysis::Comparison comparison =
      analysis::Compare({.report = *std::move(report), .series = *std::move(series)}, now);
  if (comparison.parts.empty()) return std::nullopt;
  http::ComparedAttempt compared{
      .before = last.number, .verdict = comparison.verdict, .changes = {}, .parts = {}};
  for (const analysis::Change& change : comparison.changes) compared.changes.push_back(change.statement);
  compared.changes.insert(compared.changes.end(), comparison.limits.begin(), comparison.limits.end());
  for (const analysis::ComparedCondition& condition : comparison.conditions)
    compared.changes.push_back(
        absl::StrCat("Not the same: ", condition.what, ": ", condition.a, " in A, ", condition.b, " in B."));
  // Of two steps each, an interval may have no end, which JSON cannot say.
  const auto finite = [](double ns) { return std::isfinite(ns) ? ns : 0; };
  for (const analysis::ComparedPart& part : comparison.parts) {
    compared.parts.push_back({.name = analysis::PartName(part.part),
                              .before_ns = part.a.mean,
                              .ns = part.b.mean,
                              .low_ns = part.test.has_value() ? finite(part.test->low) : 0,
                              .high_ns = part.test.has_value() ? finite(part.test->high) : 0,
                              .significant = part.significant});
  }
  return compared;
}

}  // namespace

std::shared_ptr<const http::ListedSteps> StepsOfAttempt(const model::JobModel& job,
                                                        const analysis::Report& report,
                                                        const store::Directory& directory,
                                                        const std::optional<LastAttempt>& last) {
  if (!report.steps.has_value()) return nullptr;
  auto steps = std::make_shared<http::ListedSteps>();
  steps->count = report.steps->count;
  steps->total_ns = report.steps->time_ns.mean;
  steps->compute_ns = report.steps->compute_ns.mean;
  steps->exposed_comm_ns = report.steps->exposed_comm_ns.mean;
  steps->copy_ns = report.steps->copy_ns.mean;
  steps->idle_ns = report.steps->idle_ns.mean;
  const analysis::Run now{.report = report, .series = analysis::MeanSeriesOf(job)};
  // Without it the next attempt is compared with none.
  directory.WriteFile(kStepsFile, SeriesText(now.series)).IgnoreError();
  if (last.has_value()) steps->compared = CompareWith(*last, now);
  return steps;
}

}  // namespace gpuprobe::recording
