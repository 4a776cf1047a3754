#include "collector/analysis/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

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
  std::vector<ComparedPart*> order;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].test.has_value()) order.push_back(&parts[i]);
  }
  std::sort(order.begin(), order.end(),
            [](const ComparedPart* x, const ComparedPart* y) { return x->test->p_value < y->test->p_value; });
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->test->p_value >= kSignificance / static_cast<double>(order.size() - i)) break;
    order[i]->significant = true;
  }
  return parts;
}

struct Work {
  double calls = 0;
  double total_ns = 0;
};
using WorkByName = std::map<std::string, Work>;

WorkByName KernelsOf(const Report& report) {
  WorkByName out;
  for (const KernelReport& k : report.top_kernels) {
    Work& work = out[k.name];
    work.calls += static_cast<double>(k.time_ns.count);
    work.total_ns += static_cast<double>(k.time_ns.total);
  }
  return out;
}

// Communicators get new hashes with every run: their size stands for them.
WorkByName CollectivesOf(const Report& report) {
  WorkByName out;
  for (const CollectiveReport& c : report.collectives) {
    Work& work = out[absl::StrCat(c.op, " ", c.size_bytes == 0 ? "of mixed sizes" : Bytes(c.size_bytes), ", ",
                                  c.comm_ranks, " ranks")];
    work.calls += static_cast<double>(c.time_ns.count);
    work.total_ns += static_cast<double>(c.time_ns.total);
  }
  return out;
}

double StepsOf(const Report& report) {
  return report.steps.has_value() ? static_cast<double>(report.steps->count) : 1;
}

// `step_ns`: what a change must be compared with, 0 if there are no steps.
std::vector<ComparedWork> WorkOf(const Report& a, const Report& b, const WorkByName& of_a,
                                 const WorkByName& of_b, bool per_step, double step_ns) {
  const double ranks_a = static_cast<double>(std::max<size_t>(a.ranks.size(), 1));
  const double ranks_b = static_cast<double>(std::max<size_t>(b.ranks.size(), 1));
  const double steps_a = per_step ? StepsOf(a) : 1;
  const double steps_b = per_step ? StepsOf(b) : 1;
  std::set<std::string> names;
  for (const auto& [name, work] : of_a) names.insert(name);
  for (const auto& [name, work] : of_b) names.insert(name);
  std::vector<ComparedWork> out;
  for (const std::string& name : names) {
    const auto in_a = of_a.find(name);
    const auto in_b = of_b.find(name);
    const Work x = in_a == of_a.end() ? Work{} : in_a->second;
    const Work y = in_b == of_b.end() ? Work{} : in_b->second;
    ComparedWork w;
    w.name = name;
    w.calls_per_step_a = x.calls / steps_a;
    w.calls_per_step_b = y.calls / steps_b;
    w.mean_ns_a = x.calls > 0 ? x.total_ns / x.calls : 0;
    w.mean_ns_b = y.calls > 0 ? y.total_ns / y.calls : 0;
    const double cost_a = x.total_ns / steps_a / ranks_a;
    const double cost_b = y.total_ns / steps_b / ranks_b;
    w.change_ns_per_step = cost_b - cost_a;
    const double change = std::abs(w.change_ns_per_step);
    if (change <= kLeastOwnChange * std::max(cost_a, cost_b)) continue;
    if (step_ns > 0 && change < kLeastStepChange * step_ns) continue;
    out.push_back(std::move(w));
  }
  std::stable_sort(out.begin(), out.end(), [](const ComparedWork& x, const ComparedWork& y) {
    return std::abs(x.change_ns_per_step) > std::abs(y.change_ns_per_step);
  });
  return out;
}

std::string DevicesText(const Conditions& c) {
  std::map<std::string, int> devices;
  for (const DeviceCondition& d : c.devices) ++devices[d.name.empty() ? "unknown" : d.name];
  std::vector<std::string> parts;
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
  const auto percent = [&](double ns) { return absl::StrFormat("%+.1f", ns / total.a.mean * 100); };
  const std::string interval = absl::StrCat("95 % interval ", percent(w.low), " to ", percent(w.high), " %");
  const std::string p = w.p_value < 0.001 ? "p < 0.001" : absl::StrFormat("p = %.3f", w.p_value);
  const std::string change = absl::StrCat(Duration(total.a.mean), " -> ", Duration(total.b.mean), ", ",
                                          percent(w.difference), " % (", interval, ", ", p);
  if (!total.significant) return absl::StrCat("No significant difference in step time: ", change, ").");
  return absl::StrCat("B is ", w.difference < 0 ? "faster" : "slower", ": step time ", change,
                      absl::StrFormat(", effect size %.1f, ", w.effect_size), EffectName(w.effect_size),
                      ").");
}

}  // namespace

Comparison Compare(const Report& a, const Report& b) {
  Comparison c;
  c.per_step = a.steps.has_value() && b.steps.has_value();
  if (c.per_step) c.parts = PartsOf(*a.steps, *b.steps);
  const double step_ns = c.per_step ? std::max(a.steps->time_ns.mean, b.steps->time_ns.mean) : 0;
  c.kernels = WorkOf(a, b, KernelsOf(a), KernelsOf(b), c.per_step, step_ns);
  c.collectives = WorkOf(a, b, CollectivesOf(a), CollectivesOf(b), c.per_step, step_ns);
  c.conditions = ConditionsOf(a.conditions, b.conditions);
  c.verdict = VerdictOf(c);
  return c;
}

}  // namespace gpuprobe::analysis
