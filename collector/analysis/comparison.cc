#include "collector/analysis/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

struct Part {
  const char* name;
  model::Summary StepsReport::*summary;
};

constexpr Part kParts[] = {
    {"total", &StepsReport::time_ns},
    {"compute", &StepsReport::compute_ns},
    {"exposed comm", &StepsReport::exposed_comm_ns},
    {"overlapped comm", &StepsReport::overlapped_comm_ns},
    {"copy", &StepsReport::copy_ns},
    {"idle", &StepsReport::idle_ns},
    {"idle: host-bound", &StepsReport::host_bound_ns},
    {"idle: input", &StepsReport::input_ns},
    {"idle: sync", &StepsReport::sync_ns},
    {"idle: launch gaps", &StepsReport::launch_gap_ns},
};

Sample SampleOf(const StepsReport& steps, const model::Summary& summary) {
  const uint64_t counted = steps.count - std::min(steps.warmup_count, steps.count);
  return {.count = std::min(summary.count, counted), .mean = summary.mean, .std = summary.std};
}

// Of many comparisons at once, those whose chance is below this are significant (Holm).
double HolmLimit(std::vector<double> chances) {
  std::sort(chances.begin(), chances.end());
  for (size_t i = 0; i < chances.size(); ++i) {
    const double limit = kSignificance / static_cast<double>(chances.size() - i);
    if (chances[i] >= limit) return chances[i];
  }
  return kSignificance;
}

std::vector<ComparedPart> PartsOf(const StepsReport& a, const StepsReport& b) {
  std::vector<ComparedPart> parts;
  for (const Part& part : kParts) {
    ComparedPart p;
    p.name = part.name;
    p.a = SampleOf(a, a.*part.summary);
    p.b = SampleOf(b, b.*part.summary);
    p.test = Welch(p.a, p.b);
    parts.push_back(std::move(p));
  }
  if (parts.front().test.has_value()) parts.front().significant = parts.front().test->p_value < kSignificance;
  // The total is the question; its parts are many, so each must be the less likely to be chance.
  std::vector<double> chances;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].test.has_value()) chances.push_back(parts[i].test->p_value);
  }
  const double limit = HolmLimit(std::move(chances));
  for (size_t i = 1; i < parts.size(); ++i)
    parts[i].significant = parts[i].test.has_value() && parts[i].test->p_value < limit;
  return parts;
}

using Side = ComparedWork::Side;
using SideByName = std::map<std::string, Side>;

// Sums become means of a rank.
double RanksOf(const Report& report) { return static_cast<double>(std::max<size_t>(report.ranks.size(), 1)); }

// What communicates is compared as collectives.
SideByName KernelsOf(const Report& report, bool per_step) {
  SideByName out;
  for (const KernelReport& k : report.top_kernels) {
    if (absl::StrContains(k.name, "nccl")) continue;
    Side side;
    if (!per_step) {
      side.calls = static_cast<double>(k.time_ns.count) / RanksOf(report);
      side.mean_ns = k.time_ns.mean;
      side.sample = {.count = k.time_ns.count, .mean = k.time_ns.mean, .std = k.time_ns.std};
    } else if (k.steady.has_value()) {
      side.calls = k.steady->calls;
      side.mean_ns = k.steady->calls > 0 ? k.steady->time_ns / k.steady->calls : 0;
      side.sample = {.count = k.steady->steps, .mean = k.steady->time_ns, .std = k.steady->std_ns};
    }
    out[k.name] = side;
  }
  return out;
}

// Communicators get new hashes with every run: operation, size and number of ranks stand for them.
SideByName CollectivesOf(const Report& report, bool per_step) {
  struct Sum {
    double plans = 0;
    uint64_t compared = 0;
    uint64_t steps = 0;
    double transfer_ns = 0;
    double wait_ns = 0;
    double variance = 0;  // within each communicator
  };
  std::map<std::string, Sum> sums;
  for (const CollectiveReport& c : report.collectives) {
    if (c.steady.compared == 0) continue;
    Sum& sum = sums[absl::StrCat(c.op, " ", c.size_bytes == 0 ? "of mixed sizes" : Bytes(c.size_bytes), ", ",
                                 c.comm_ranks, " ranks",
                                 c.fused ? absl::StrCat(", ", c.calls_per_plan, " in one") : "")];
    const auto weight = static_cast<double>(c.steady.compared);
    sum.plans += per_step ? c.steady.plans_per_step
                          : static_cast<double>(c.calls) / std::max(c.calls_per_plan, 1U) / RanksOf(report);
    sum.compared += c.steady.compared;
    sum.steps = std::max(sum.steps, c.steady.steps);
    sum.transfer_ns += weight * c.steady.transfer_ns;
    sum.wait_ns += weight * c.steady.wait_ns;
    sum.variance += weight * c.steady.transfer_std_ns * c.steady.transfer_std_ns;
  }
  SideByName out;
  for (const auto& [name, sum] : sums) {
    const auto weight = static_cast<double>(sum.compared);
    Side& side = out[name];
    side.calls = sum.plans;
    side.mean_ns = sum.transfer_ns / weight;
    side.wait_ns = sum.wait_ns / weight;
    // Calls of one step share its luck: not more of them are independent than there are steps.
    side.sample = {.count = per_step ? std::min(sum.compared, sum.steps) : sum.compared,
                   .mean = side.mean_ns,
                   .std = std::sqrt(sum.variance / weight)};
  }
  return out;
}

// Chance that calls which come at random, as often in both runs, differ by as much. What comes in every step
// is more regular: for it this is an upper bound.
double CountChance(const Side& a, const Side& b, double steps_a, double steps_b) {
  const double variance = a.calls / steps_a + b.calls / steps_b;
  return variance <= 0 ? 1 : std::erfc(std::abs(a.calls - b.calls) / std::sqrt(2 * variance));
}

// A kernel's time in each step holds both how often it was called and how long it took; a transfer does not.
double ChanceOf(const Side& a, const Side& b, double steps_a, double steps_b, bool times_of_steps) {
  const bool both = a.calls > 0 && b.calls > 0;
  double p = 1;
  if (both || times_of_steps) {
    if (const auto test = Welch(a.sample, b.sample); test.has_value()) p = test->p_value;
  }
  if (times_of_steps) return p;
  // The less likely of two (C. E. Bonferroni, 1936).
  return std::min(1.0, 2 * std::min(p, CountChance(a, b, steps_a, steps_b)));
}

// `step_ns`: what a change must be compared with, 0 if there are no steps.
std::vector<ComparedWork> WorkOf(const SideByName& of_a, const SideByName& of_b, const Report& a,
                                 const Report& b, double step_ns, bool times_of_steps) {
  const auto steps_of = [&](const Report& report) {
    if (step_ns <= 0) return 1.0;
    return static_cast<double>(std::max<uint64_t>(report.steps->count - report.steps->warmup_count, 1));
  };
  std::set<std::string> names;
  for (const auto& [name, side] : of_a) names.insert(name);
  for (const auto& [name, side] : of_b) names.insert(name);
  std::vector<ComparedWork> all;
  for (const std::string& name : names) {
    const auto in_a = of_a.find(name);
    const auto in_b = of_b.find(name);
    ComparedWork w{.name = name, .a = {}, .b = {}};
    if (in_a != of_a.end()) w.a = in_a->second;
    if (in_b != of_b.end()) w.b = in_b->second;
    // In a run without it, every step has none of it.
    if (times_of_steps && in_a == of_a.end()) w.a.sample.count = static_cast<uint64_t>(steps_of(a));
    if (times_of_steps && in_b == of_b.end()) w.b.sample.count = static_cast<uint64_t>(steps_of(b));
    w.p_value = ChanceOf(w.a, w.b, steps_of(a), steps_of(b), times_of_steps);
    w.change_ns = w.b.calls * w.b.mean_ns - w.a.calls * w.a.mean_ns;
    all.push_back(std::move(w));
  }
  std::vector<double> chances;
  chances.reserve(all.size());
  for (const ComparedWork& w : all) chances.push_back(w.p_value);
  const double limit = HolmLimit(std::move(chances));
  std::erase_if(all, [&](const ComparedWork& w) {
    const double change = std::abs(w.change_ns);
    const double cost = std::max(w.a.calls * w.a.mean_ns, w.b.calls * w.b.mean_ns);
    return w.p_value >= limit || change <= kLeastOwnChange * cost ||
           (step_ns > 0 && change < kLeastStepChange * step_ns);
  });
  std::stable_sort(all.begin(), all.end(), [](const ComparedWork& x, const ComparedWork& y) {
    return std::abs(x.change_ns) > std::abs(y.change_ns);
  });
  return all;
}

std::string DevicesText(const Conditions& c) {
  std::map<std::string, int> devices;
  for (const DeviceCondition& d : c.devices) ++devices[d.name.empty() ? "unknown" : d.name];
  std::vector<std::string> parts;
  parts.reserve(devices.size());
  for (const auto& [name, count] : devices) parts.push_back(absl::StrCat(count, " x ", name));
  return absl::StrJoin(parts, ", ");
}

std::vector<ComparedCondition> ConditionsOf(const Conditions& a, const Conditions& b) {
  std::vector<ComparedCondition> out;
  const auto compare = [&](const char* what, const std::string& x, const std::string& y) {
    if (x != y) out.push_back({what, x.empty() ? "not known" : x, y.empty() ? "not known" : y});
  };
  compare("ranks", absl::StrCat(a.ranks_heard), absl::StrCat(b.ranks_heard));
  compare("hosts", absl::StrJoin(a.hosts, ", "), absl::StrJoin(b.hosts, ", "));
  compare("devices", DevicesText(a), DevicesText(b));
  compare("CUDA driver", a.cuda_driver, b.cuda_driver);
  compare("CUDA runtime", a.cuda_runtime, b.cuda_runtime);
  compare("CUPTI", a.cupti, b.cupti);
  compare("NCCL", a.nccl, b.nccl);
  compare("probe", a.probe_version, b.probe_version);
  compare("command", absl::StrJoin(a.command_line, " "), absl::StrJoin(b.command_line, " "));
  return out;
}

std::string EffectName(double effect_size) {
  // J. Cohen, Statistical Power Analysis for the Behavioral Sciences (1988).
  const double d = std::abs(effect_size);
  return d < 0.2 ? "negligible" : d < 0.5 ? "small" : d < 0.8 ? "medium" : "large";
}

std::string VerdictOf(const Comparison& c) {
  if (!c.per_step)
    return "Not every run has steps, so step times cannot be compared; what follows is about whole runs.";
  const ComparedPart& total = c.parts.front();
  if (!total.test.has_value())
    return "Too few steps to tell chance from change: at least two after the warm-up are needed in each run.";
  const WelchResult& w = *total.test;
  const bool small = std::abs(w.difference) < kSmallChange * total.a.mean;
  const auto percent = [&](double ns) {
    return absl::StrFormat("%+.*f", small ? 2 : 1, ns / total.a.mean * 100);
  };
  const std::string interval = absl::StrCat("95 % interval ", percent(w.low), " to ", percent(w.high), " %");
  const std::string p = w.p_value < 0.001 ? "p < 0.001" : absl::StrFormat("p = %.3f", w.p_value);
  const auto [before, after] = Durations(total.a.mean, total.b.mean);
  const std::string change =
      absl::StrCat(before, " -> ", after, ", ", percent(w.difference), " % (", interval, ", ", p);
  if (!total.significant) return absl::StrCat("No significant difference in step time: ", change, ").");
  // As regular as the steps of some jobs are, any difference is large for their spread.
  const char* const direction = w.difference < 0 ? "faster" : "slower";
  if (small)
    return absl::StrCat("B is ", direction, " beyond chance, but only by ",
                        absl::StrFormat("%.2g %%", std::abs(w.difference) / total.a.mean * 100),
                        ": step time ", change, ").");
  return absl::StrCat("B is ", direction, ": step time ", change,
                      absl::StrFormat(", effect size %.1f, ", w.effect_size), EffectName(w.effect_size),
                      ").");
}

// Before the numbers, what speaks against them.
std::string DoubtText(const char* run, const std::vector<std::string>& doubts) {
  if (doubts.empty()) return "";
  return absl::StrCat(run, " ", absl::StrJoin(doubts, ", "), ". ");
}

}  // namespace

Comparison Compare(const Report& a, const Report& b) {
  Comparison c;
  c.per_step = a.steps.has_value() && b.steps.has_value();
  if (c.per_step) c.parts = PartsOf(*a.steps, *b.steps);
  const double step_ns = c.per_step ? std::max(a.steps->time_ns.mean, b.steps->time_ns.mean) : 0;
  c.kernels = WorkOf(KernelsOf(a, c.per_step), KernelsOf(b, c.per_step), a, b, step_ns, c.per_step);
  c.collectives = WorkOf(CollectivesOf(a, c.per_step), CollectivesOf(b, c.per_step), a, b, step_ns,
                         /*times_of_steps=*/false);
  c.conditions = ConditionsOf(a.conditions, b.conditions);
  c.doubts_a = DoubtsOf(a);
  c.doubts_b = DoubtsOf(b);
  c.findings = FindingsOfOne(a, b);
  c.verdict =
      absl::StrCat(DoubtText("A", c.doubts_a), DoubtText("B", c.doubts_b),
                   c.doubts_a.empty() && c.doubts_b.empty() ? "" : "Of what was recorded: ", VerdictOf(c));
  return c;
}

}  // namespace gpuprobe::analysis
