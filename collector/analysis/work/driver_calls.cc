#include "collector/analysis/work/driver_calls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

// When the process's first step after the warm-up began.
std::optional<uint64_t> FirstSteadyNs(const model::ProcessModel& process) {
  const uint64_t from_ns = process.steps().steady_runs().from_ns().value_or(0);
  return from_ns == 0 ? std::nullopt : std::optional(from_ns);
}

struct DriverPart {
  const DriverCallReport* function;
  uint64_t calls;
  uint64_t total_ns;
};

constexpr size_t kNamedFunctions = 3;  // functions

// "cuModuleLoadData 212 x 2.41 s, cuMemAlloc_v2 9 x 12.0 ms and 4 more functions": means of the ranks.
std::string DriverWords(std::vector<DriverPart> parts, size_t ranks) {
  std::erase_if(parts, [](const DriverPart& part) { return part.calls == 0; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const DriverPart& a, const DriverPart& b) { return a.total_ns > b.total_ns; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(parts.size(), kNamedFunctions); ++i) {
    const uint64_t calls = std::max<uint64_t>((parts[i].calls + ranks / 2) / ranks, 1);
    names.push_back(
        absl::StrCat(parts[i].function->function, " ", Count(calls), " x ",
                     Duration(static_cast<double>(parts[i].total_ns) / static_cast<double>(ranks))));
  }
  const size_t more = parts.size() - names.size();
  if (more > 0) absl::StrAppend(&names.back(), " and ", more, " more function", more == 1 ? "" : "s");
  return absl::StrJoin(names, ", ");
}

double DriverTotalNs(const std::vector<DriverPart>& parts) {
  double total_ns = 0;
  for (const DriverPart& part : parts) total_ns += static_cast<double>(part.total_ns);
  return total_ns;
}

}  // namespace

std::vector<DriverCallReport> DriverCallsOf(const model::JobModel& job) {
  std::map<std::string, DriverCallReport> functions;
  for (const auto& process : job.processes()) {
    const std::optional<uint64_t> steady_ns = FirstSteadyNs(*process);
    const model::DriverCalls::Sums before =
        steady_ns.has_value() ? process->driver_calls().SumsBefore(*steady_ns) : model::DriverCalls::Sums{};
    for (const auto& [function, sum] : process->driver_calls().sums()) {
      DriverCallReport& out = functions[process->String(function)];
      out.calls += sum.calls;
      out.total_ns += sum.total_ns;
      out.failed += sum.failed;
      out.nccl_ns += sum.nccl_ns;
      if (sum.longest_ns > out.longest_ns) {
        out.longest_ns = sum.longest_ns;
        out.longest_start_ns = process->Realtime(sum.longest_start_ns);
      }
      if (!steady_ns.has_value()) continue;
      if (!out.startup.has_value()) out.startup = DriverCallReport::Startup();
      DriverCallReport::Startup& startup = *out.startup;
      const auto found = before.find(function);
      if (found == before.end()) continue;
      startup.calls += found->second.calls;
      startup.total_ns += found->second.total_ns;
    }
  }
  std::vector<DriverCallReport> out;
  for (auto& [name, function] : functions) {
    function.function = name;
    out.push_back(std::move(function));
  }
  std::stable_sort(out.begin(), out.end(), [](const DriverCallReport& a, const DriverCallReport& b) {
    return a.total_ns > b.total_ns;
  });
  return out;
}

std::string DriverCallsSentence(const Report& report) {
  if (!report.steps.has_value() || report.ranks.empty()) return "";
  std::vector<DriverPart> before;
  std::vector<DriverPart> since;
  for (const DriverCallReport& f : report.driver_calls) {
    if (!f.startup.has_value()) continue;
    before.push_back({.function = &f, .calls = f.startup->calls, .total_ns = f.startup->total_ns});
    since.push_back(
        {.function = &f, .calls = f.calls - f.startup->calls, .total_ns = f.total_ns - f.startup->total_ns});
  }
  const size_t ranks = report.ranks.size();
  const double before_ns = DriverTotalNs(before) / static_cast<double>(ranks);
  const double since_ns = DriverTotalNs(since) / static_cast<double>(ranks);
  const StepsReport& steps = *report.steps;
  const uint64_t steady = steps.count - std::min(steps.warmup_count, steps.count);
  const double steps_ns = steps.time_ns.mean * static_cast<double>(steady);
  const bool costly_steps = steps_ns > 0 && since_ns >= thresholds::kDriverStepShare * steps_ns;
  constexpr char kFirst[] = "the first step after the warm-up ";
  std::vector<std::string> parts;
  if (before_ns >= thresholds::kDriverStartupNs)
    parts.push_back(
        absl::StrCat("before ", kFirst, Duration(before_ns), " (", DriverWords(before, ranks), ")"));
  if (costly_steps)
    parts.push_back(absl::StrCat("since ", parts.empty() ? kFirst : "then ", Duration(since_ns), ", ",
                                 Percent(since_ns / steps_ns), " of the steps' time (",
                                 DriverWords(since, ranks), ")"));
  if (parts.empty()) return "";
  return absl::StrCat("Slow driver calls", ranks == 1 ? "" : " of a rank, on average", ": ",
                      absl::StrJoin(parts, "; "), ".");
}

}  // namespace gpuprobe::analysis
