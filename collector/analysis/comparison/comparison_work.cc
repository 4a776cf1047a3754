#include "collector/analysis/comparison/comparison_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "collector/analysis/work/kernel_class.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

using Side = ComparedWork::Side;

// Chance that calls which come at random, as often in both runs, differ by as much. What comes in every step
// is more regular: for it this is an upper bound.
double CountChance(const Side& a, const Side& b, double steps_a, double steps_b) {
  const double variance = a.calls / steps_a + b.calls / steps_b;
  return variance <= 0 ? 1 : std::erfc(std::abs(a.calls - b.calls) / std::sqrt(2 * variance));
}

double StepsOf(const Report& report, bool per_step) {
  if (!per_step) return 1;
  return static_cast<double>(std::max<uint64_t>(report.steps->count - report.steps->warmup_count, 1));
}

// Sums become means of a rank.
double RanksOf(const Report& report) { return static_cast<double>(std::max<size_t>(report.ranks.size(), 1)); }

// A rank without the kernel has none of it in any step.
Series KernelSeries(const RunSeries& run, const std::string& name) {
  std::vector<const Series*> all;
  size_t blocks = 0;
  for (const RankSeries& rank : run.ranks) {
    for (const auto& [kernel, series] : rank.kernels) blocks = std::max(blocks, series.size());
    if (const auto known = rank.kernels.find(name); known != rank.kernels.end())
      all.push_back(&known->second);
  }
  if (all.empty()) return Series(blocks, 0);
  Series mean = MeanOf(all);
  const double share = static_cast<double>(all.size()) / static_cast<double>(run.ranks.size());
  for (double& v : mean) v *= share;
  return mean;
}

void SetKernelSide(const Run& run, const std::string& name, Side& side) {
  const auto calls = run.series.kernel_calls.find(name);
  side.calls = calls == run.series.kernel_calls.end() ? 0 : calls->second;
  side.mean_ns = side.calls > 0 ? side.sample.mean / side.calls : 0;
}

// Kernels over the whole run.
std::map<std::string, Side> WholeKernels(const Report& report) {
  std::map<std::string, Side> out;
  for (const KernelReport& k : report.top_kernels) {
    if (k.kernel_class == KernelClass::kCollective) continue;
    Side& side = out[k.name];
    side.calls = static_cast<double>(k.time_ns.count) / RanksOf(report);
    side.mean_ns = k.time_ns.mean;
    side.sample = {.count = k.time_ns.count, .mean = k.time_ns.mean, .std = k.time_ns.std};
  }
  return out;
}

// Time and number of calls: the less likely of two (C. E. Bonferroni, 1936).
void TestCalls(const SeriesTest& t, double steps_a, double steps_b, ComparedWork& w) {
  double p = 1;
  w.change_ns = w.b.calls * w.b.mean_ns - w.a.calls * w.a.mean_ns;
  w.low_ns = w.high_ns = w.change_ns;
  if (w.a.calls > 0 && w.b.calls > 0 && t.test.has_value()) {
    p = t.test->p_value;
    const double calls = (w.a.calls + w.b.calls) / 2;
    w.low_ns += (t.test->low - t.test->difference) * calls;
    w.high_ns += (t.test->high - t.test->difference) * calls;
  }
  w.p_value = std::min(1.0, 2 * std::min(p, CountChance(w.a, w.b, steps_a, steps_b)));
}

std::vector<ComparedWork> WholeKernelsCompared(const Run& a, const Run& b) {
  std::map<std::string, ComparedWork> all;
  for (const auto& [name, side] : WholeKernels(a.report)) all[name].a = side;
  for (const auto& [name, side] : WholeKernels(b.report)) all[name].b = side;
  std::vector<ComparedWork> out;
  for (auto& [name, w] : all) {
    w.name = name;
    TestCalls({.a = w.a.sample, .b = w.b.sample, .test = Welch(w.a.sample, w.b.sample)}, 1, 1, w);
    out.push_back(std::move(w));
  }
  return out;
}

// A kind of collective of one run, on one communicator or all of them: block by block the mean.
struct Calls {
  double calls = 0;
  double wait_ns = 0;
  std::vector<const Series*> series;

  void Add(const CollectiveSeries& c) {
    const double all = calls + c.calls_per_step;
    wait_ns = all > 0 ? (wait_ns * calls + c.wait_ns * c.calls_per_step) / all : 0;
    calls = all;
    series.push_back(&c.transfer_ns);
  }
};
using CallKey = std::pair<std::string, std::vector<int>>;  // name, members; none: of all communicators

std::map<CallKey, Calls> CallsOf(const Run& run, bool by_members) {
  std::map<std::string, int> communicators;
  for (const CollectiveSeries& c : run.series.collectives) ++communicators[c.name];
  std::map<CallKey, Calls> out;
  for (const CollectiveSeries& c : run.series.collectives) {
    out[{c.name, {}}].Add(c);
    if (!by_members || communicators[c.name] == 1 || c.members.empty()) continue;
    Calls& single = out[{c.name, c.members}];
    single.Add(c);
    // Per member instead of per rank of the job.
    single.calls *= RanksOf(run.report) / static_cast<double>(c.members.size());
  }
  return out;
}

bool IsWorthNaming(const ComparedWork& w, double step_ns) {
  const double change = std::abs(w.change_ns);
  const double cost = std::max(w.a.calls * w.a.mean_ns, w.b.calls * w.b.mean_ns);
  return w.adjusted_p < kSignificance && change > kLeastOwnChange * cost &&
         (step_ns <= 0 || change >= kLeastStepChange * step_ns);
}

}  // namespace

SeriesTest TestOf(const Series& a, const Series& b, bool paired) {
  SeriesTest t{.a = SampleOf(ValuesOf(a)), .b = SampleOf(ValuesOf(b)), .test = std::nullopt};
  if (!paired) {
    t.test = Welch(t.a, t.b);
    return t;
  }
  Series differences;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) differences.push_back(b[i] - a[i]);
  t.test = Paired(SampleOf(ValuesOf(differences)), t.a, t.b);
  return t;
}

std::vector<ComparedWork> KernelsCompared(const Run& a, const Run& b, bool per_step, bool paired) {
  if (!per_step) return WholeKernelsCompared(a, b);
  std::set<std::string> names;
  for (const RunSeries* run : {&a.series, &b.series}) {
    for (const RankSeries& rank : run->ranks) {
      for (const auto& [name, series] : rank.kernels) names.insert(name);
    }
  }
  std::vector<ComparedWork> out;
  for (const std::string& name : names) {
    ComparedWork& w = out.emplace_back();
    w.name = name;
    const SeriesTest t = TestOf(KernelSeries(a.series, name), KernelSeries(b.series, name), paired);
    w.a.sample = t.a;
    w.b.sample = t.b;
    SetKernelSide(a, name, w.a);
    SetKernelSide(b, name, w.b);
    // A kernel's time in each step holds both how often it was called and how long it took.
    w.change_ns = t.b.mean - t.a.mean;
    w.low_ns = w.high_ns = w.change_ns;
    if (!t.test.has_value()) continue;
    w.p_value = t.test->p_value;
    w.change_ns = t.test->difference;
    w.low_ns = t.test->low;
    w.high_ns = t.test->high;
  }
  return out;
}

std::vector<ComparedWork> CollectivesCompared(const Run& a, const Run& b, bool per_step, bool ranks) {
  const std::map<CallKey, Calls> of_a = CallsOf(a, ranks);
  const std::map<CallKey, Calls> of_b = CallsOf(b, ranks);
  std::set<CallKey> keys;
  for (const auto* calls : {&of_a, &of_b}) {
    for (const auto& [key, of] : *calls) keys.insert(key);
  }
  std::vector<ComparedWork> out;
  for (const CallKey& key : keys) {
    ComparedWork& w = out.emplace_back();
    std::tie(w.name, w.members) = key;
    Series series[2];
    const auto set = [&](const std::map<CallKey, Calls>& calls, Side& side, Series& means) {
      const auto known = calls.find(key);
      if (known == calls.end()) return;
      means = MeanOf(known->second.series);
      side.calls = known->second.calls;
      side.wait_ns = known->second.wait_ns;
      side.sample = SampleOf(means);
      side.mean_ns = side.sample.mean;
    };
    set(of_a, w.a, series[0]);
    set(of_b, w.b, series[1]);
    TestCalls(TestOf(series[0], series[1], false), StepsOf(a.report, per_step), StepsOf(b.report, per_step),
              w);
  }
  return out;
}

void KeepChanged(double step_ns, std::vector<ComparedWork>& work) {
  // By name: communicators, and of them those that changed.
  std::map<std::string, std::pair<size_t, size_t>> changed;
  for (const ComparedWork& w : work) {
    if (w.members.empty()) continue;
    ++changed[w.name].first;
    changed[w.name].second += IsWorthNaming(w, step_ns) ? 1 : 0;
  }
  std::erase_if(work, [&](const ComparedWork& w) {
    if (!IsWorthNaming(w, step_ns)) return true;
    const auto known = changed.find(w.name);
    const bool single =
        known != changed.end() && known->second.second > 0 && 2 * known->second.second < known->second.first;
    return single ? w.members.empty() : !w.members.empty();
  });
  std::stable_sort(work.begin(), work.end(), [](const ComparedWork& x, const ComparedWork& y) {
    return std::abs(x.change_ns) > std::abs(y.change_ns);
  });
}

}  // namespace gpuprobe::analysis
