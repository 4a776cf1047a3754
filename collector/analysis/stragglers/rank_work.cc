#include "collector/analysis/stragglers/rank_work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/model/job/member.h"
#include "collector/model/process/process_model.h"
#include "collector/model/statistics/median_of_others.h"
#include "collector/records/collective_kernels.h"

namespace gpuprobe::analysis {
namespace {

using Change = WorkDifference::Change;
using Kernel = WorkDifference::Kernel;

// Counts and threads that differ by less are the same launches.
constexpr double kSameLaunches = 0.01;

double MeanNs(const KernelWork& work) { return work.calls > 0 ? work.time_ns / work.calls : 0; }

double ThreadsOf(const model::LaunchGeometry& geometry) {
  double threads = 1;
  for (const uint32_t extent : geometry.grid) threads *= std::max(extent, 1u);
  for (const uint32_t extent : geometry.block) threads *= std::max(extent, 1u);
  return threads;
}

// One kernel on all ranks, 0 where it does not run.
struct KernelField {
  std::vector<KernelWork> ranks;
  model::MedianOfOthers<double> calls;
  model::MedianOfOthers<double> mean_ns;
  model::MedianOfOthers<double> threads;
  std::array<double, 2> most_calls{};  // the most, and the second most

  explicit KernelField(std::vector<KernelWork> all)
      : ranks(std::move(all)),
        calls(Each([](const KernelWork& w) { return w.calls; })),
        mean_ns(Each(MeanNs)),
        threads(Each([](const KernelWork& w) { return w.threads; })) {
    for (const KernelWork& w : ranks) {
      if (w.calls > most_calls[0]) {
        most_calls = {w.calls, most_calls[0]};
      } else {
        most_calls[1] = std::max(most_calls[1], w.calls);
      }
    }
  }
  template <typename Get>
  std::vector<double> Each(Get get) const {
    std::vector<double> values;
    values.reserve(ranks.size());
    for (const KernelWork& w : ranks) values.push_back(get(w));
    return values;
  }
};

// What one kernel adds to a rank's step.
struct Part {
  std::string_view name;  // mangled; the caller's
  KernelClass kernel_class = KernelClass{};
  Kernel kernel;
  double usual_ns = 0;   // of these calls elsewhere; 0: they are not the same launches
  double more_ns = 0;    // by calls and threads
  double slower_ns = 0;  // in the same launches
};

Part PartOf(std::string_view name, const KernelField& field, size_t rank) {
  const KernelWork& own = field.ranks[rank];
  Part part;
  part.name = name;
  Kernel& k = part.kernel;
  k.calls = own.calls;
  k.mean_ns = MeanNs(own);
  k.usual_calls = field.calls(own.calls);
  k.usual_mean_ns = field.mean_ns(k.mean_ns);
  k.only_here = (own.calls >= field.most_calls[0] ? field.most_calls[1] : field.most_calls[0]) == 0;
  const double pace_ns = k.usual_mean_ns > 0 ? k.usual_mean_ns : k.mean_ns;
  if (std::abs(own.calls - k.usual_calls) > kSameLaunches * k.usual_calls) {
    k.change = Change::kCalls;
    part.more_ns = (own.calls - k.usual_calls) * (own.calls > k.usual_calls ? k.mean_ns : pace_ns);
    return part;
  }
  if (own.calls <= 0 || k.usual_mean_ns <= 0) return part;
  const double extra_ns = own.calls * (k.mean_ns - k.usual_mean_ns);
  const double usual_threads = field.threads(own.threads);
  k.thread_ratio = usual_threads > 0 ? own.threads / usual_threads : 1;
  if (std::abs(k.thread_ratio - 1) > kSameLaunches) {
    k.change = Change::kThreads;
    // Time grows at most as fast as the threads.
    const double explained_ns = own.calls * k.usual_mean_ns * (k.thread_ratio - 1);
    part.more_ns = extra_ns > 0
                       ? std::clamp(extra_ns, std::min(explained_ns, 0.0), std::max(explained_ns, 0.0))
                       : extra_ns;
    part.slower_ns = extra_ns - part.more_ns;
    return part;
  }
  k.change = Change::kTime;
  part.usual_ns = own.calls * k.usual_mean_ns;
  part.slower_ns = extra_ns;
  return part;
}

// Whether the same launches take longer for all kernels alike, as on a slow GPU. Sets the kernel that shows
// that they do not.
enum class Evenness { kEven, kUneven, kEither };
Evenness EvennessOf(const std::vector<Part>& parts, double slowdown, WorkDifference& out) {
  double all_ns = 0;
  double fast_ns = 0;
  std::array<double, kKernelClasses> fast_of{};
  std::array<bool, kKernelClasses> grown{};
  const Part* fastest = nullptr;
  for (const Part& p : parts) {
    if (p.usual_ns <= 0) continue;
    all_ns += p.usual_ns;
    const auto of = static_cast<size_t>(p.kernel_class);
    if (p.slower_ns >= thresholds::kAsFastShare * (slowdown - 1) * p.usual_ns) {
      grown[of] = grown[of] || p.slower_ns >= (slowdown - 1) * p.usual_ns;
      continue;
    }
    fast_ns += p.usual_ns;
    fast_of[of] += p.usual_ns;
    if (fastest == nullptr || p.usual_ns > fastest->usual_ns) fastest = &p;
  }
  if (fast_ns < thresholds::kAsFastTimeShare * all_ns) return Evenness::kEven;
  out.as_fast = Demangle(fastest->name);
  if (fast_ns >= thresholds::kMostTimeShare * all_ns) return Evenness::kUneven;
  for (size_t i = 0; i < kKernelClasses; ++i) {
    if (grown[i] && fast_of[i] >= thresholds::kAsFastTimeShare * all_ns) return Evenness::kUneven;
  }
  return Evenness::kEither;
}

void Settle(std::vector<Part>& parts, WorkDifference& out) {
  double usual_ns = 0;
  double same_usual_ns = 0;
  double same_slower_ns = 0;
  for (const Part& p : parts) {
    usual_ns += p.kernel.usual_calls * p.kernel.usual_mean_ns;
    same_usual_ns += p.usual_ns;
    same_slower_ns += p.usual_ns > 0 ? p.slower_ns : 0;
  }
  if (usual_ns <= 0) return;
  out.known = true;
  if (same_usual_ns > 0) out.slowdown = 1 + same_slower_ns / same_usual_ns;
  if (out.slowdown > 1) {
    const Evenness even = EvennessOf(parts, out.slowdown, out);
    out.either = even == Evenness::kEither;
    for (Part& p : parts) {
      if (even != Evenness::kUneven || p.usual_ns <= 0) continue;
      p.more_ns += std::exchange(p.slower_ns, 0);
    }
  }
  const Part* most_more = nullptr;
  const Part* most_slower = nullptr;
  for (const Part& p : parts) {
    out.more_ns += p.more_ns;
    out.slower_ns += p.slower_ns;
    if (most_more == nullptr || p.more_ns > most_more->more_ns) most_more = &p;
    if (most_slower == nullptr || p.slower_ns > most_slower->slower_ns) most_slower = &p;
  }
  out.ratio = 1 + out.more_ns / usual_ns;
  const Part* most = out.IsMore() ? most_more : most_slower;
  out.kernel = most->kernel;
  out.kernel.extra_ns = out.IsMore() ? most->more_ns : most->slower_ns;
  if (out.kernel.extra_ns > 0) out.kernel.name = Demangle(most->name);
}

}  // namespace

RankWork KernelWorkOf(const model::Member& member) {
  struct Launched {
    double threads = 0;
    double calls = 0;
  };
  std::map<uint32_t, Launched> sites;  // by name
  member.ForEachSite(
      [&](const model::KernelTotals& kernel, const model::LaunchGeometry& geometry, uint64_t calls) {
        if (model::Communicates(kernel.nature)) return;
        Launched& launched = sites[kernel.name];
        launched.threads += ThreadsOf(geometry) * static_cast<double>(calls);
        launched.calls += static_cast<double>(calls);
      });
  const model::ProcessModel& process = *member.process;
  const model::StepWork& work = member.steps().work();
  RankWork out;
  // Where some kernels have other kernels' names, the same name need not be the same kernel.
  if (work.steps() == 0 || process.misnamed_kernels() > 0) return out;
  const auto steps = static_cast<double>(work.steps());
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    const model::StepWork::Sum sum = work.Of(kernel.token);
    if (sum.calls == 0) return;
    const auto launched = sites.find(kernel.name);
    KernelWork& of = out[std::string(process.String(kernel.name))];
    of.calls += static_cast<double>(sum.calls) / steps;
    of.time_ns += static_cast<double>(sum.time_ns) / steps;
    if (launched != sites.end() && launched->second.calls > 0)
      of.threads = launched->second.threads / launched->second.calls;
  });
  return out;
}

std::vector<WorkDifference> WorkDifferencesOf(const std::vector<RankWork>& ranks) {
  std::vector<WorkDifference> out(ranks.size());
  if (ranks.size() < 2) return out;
  std::map<std::string, std::vector<KernelWork>> all;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& [name, work] : ranks[i]) {
      std::vector<KernelWork>& of = all[name];
      of.resize(ranks.size());
      of[i] = work;
    }
  }
  std::vector<std::vector<Part>> parts(ranks.size());
  for (auto& [name, work] : all) {
    const KernelClass kernel_class = KernelClassOf(Demangle(name));
    const KernelField field(std::move(work));
    for (size_t i = 0; i < ranks.size(); ++i) {
      Part part = PartOf(name, field, i);
      part.kernel_class = kernel_class;
      if (part.kernel.calls > 0 || part.kernel.usual_calls > 0) parts[i].push_back(std::move(part));
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) Settle(parts[i], out[i]);
  return out;
}

}  // namespace gpuprobe::analysis
