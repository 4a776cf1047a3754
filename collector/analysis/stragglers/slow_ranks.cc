#include "collector/analysis/stragglers/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "collector/analysis/median.h"
#include "collector/analysis/members.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/job/job_model.h"
#include "collector/report/collectives.h"

namespace gpuprobe::analysis {
namespace {

struct KernelTime {
  uint64_t count = 0;
  uint64_t total_ns = 0;
  double mean() const { return static_cast<double>(total_ns) / static_cast<double>(count); }
};

struct RankKernels {
  const RankReport* rank = nullptr;
  std::map<std::string, KernelTime> by_name;  // mangled
  uint64_t total_ns = 0;
};

struct Pace {
  double expected_ns = 0;
  double actual_ns = 0;
  double slowdown() const { return expected_ns > 0 ? actual_ns / expected_ns : 0; }
};

std::vector<RankKernels> CollectKernels(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  std::vector<RankKernels> out;
  for (const model::Member& member : job.ReportedMembers()) {
    RankKernels kernels;
    kernels.rank = RankReportOf(ranks, member);
    if (kernels.rank != nullptr && !kernels.rank->IsCompared()) kernels.rank = nullptr;
    // Where some kernels have other kernels' names, the same name need not be the same kernel.
    if (member.process->misnamed_kernels() > 0) continue;
    member.ForEachKernel([&](const model::KernelTotals& kernel) {
      // What communicates waits for others.
      if (kernel.time_ns.count() == 0 || model::Communicates(kernel.nature)) return;
      const std::string& name = member.process->String(kernel.name);
      KernelTime& time = kernels.by_name[name];
      time.count += kernel.time_ns.count();
      time.total_ns += kernel.time_ns.total();
      kernels.total_ns += kernel.time_ns.total();
    });
    if (kernels.rank != nullptr && kernels.total_ns > 0) out.push_back(std::move(kernels));
  }
  return out;
}

// Mean over ranks' pace of each kernel that all of them launched equally often.
std::map<std::string, double> CommonPace(const std::vector<RankKernels>& ranks) {
  std::map<std::string, double> pace;
  for (const auto& [name, first] : ranks.front().by_name) {
    std::vector<double> means;
    for (const RankKernels& rank : ranks) {
      const auto found = rank.by_name.find(name);
      if (found == rank.by_name.end() || found->second.count != first.count) break;
      means.push_back(found->second.mean());
    }
    if (means.size() == ranks.size()) pace[name] = Median(means);
  }
  return pace;
}

Pace PaceOf(const RankKernels& rank, const std::map<std::string, double>& common) {
  Pace pace;
  for (const auto& [name, mean_ns] : common) {
    const KernelTime& own = rank.by_name.at(name);
    pace.expected_ns += mean_ns * static_cast<double>(own.count);
    pace.actual_ns += static_cast<double>(own.total_ns);
  }
  return pace;
}

double WaitOf(const RankReport& rank) {
  double wait_ns = 0;
  for (const CollectiveReport& c : rank.collectives) wait_ns += static_cast<double>(c.wait_ns.value_or(0));
  return wait_ns;
}

Straggler Describe(const RankKernels& slow, const Pace& pace, const std::map<std::string, double>& common,
                   const std::vector<RankKernels>& ranks) {
  Straggler s;
  s.IdentifyAs(*slow.rank);
  s.slowdown = pace.slowdown();
  s.extra_ns = pace.actual_ns - pace.expected_ns;
  double most = 0;
  for (const auto& [name, mean_ns] : common) {
    const KernelTime& own = slow.by_name.at(name);
    const double extra = static_cast<double>(own.total_ns) - mean_ns * static_cast<double>(own.count);
    if (extra <= most) continue;
    most = extra;
    s.kernel = Demangle(name);
    s.kernel_mean_ns = own.mean();
    s.kernel_elsewhere_ns = mean_ns;
  }
  s.wait_ns = WaitOf(*slow.rank);
  double others = 0;
  for (const RankKernels& rank : ranks) others += rank.rank == slow.rank ? 0 : WaitOf(*rank.rank);
  s.others_wait_mean_ns = others / static_cast<double>(ranks.size() - 1);
  return s;
}

}  // namespace

std::vector<Straggler> SlowRanksOf(const model::JobModel& job, const std::vector<RankReport>& ranks) {
  const std::vector<RankKernels> compared = CollectKernels(job, ranks);
  if (compared.size() < thresholds::kComparedRanks) return {};
  const std::map<std::string, double> common = CommonPace(compared);
  std::vector<double> slowdowns;
  slowdowns.reserve(compared.size());
  for (const RankKernels& rank : compared) slowdowns.push_back(PaceOf(rank, common).slowdown());
  const double middle = Median(slowdowns);
  std::vector<double> deviations;
  deviations.reserve(slowdowns.size());
  for (const double s : slowdowns) deviations.push_back(std::abs(s - middle));
  const double spread = std::max(kMadToSigma * Median(deviations), thresholds::kNoiseFloorShare * middle);
  std::vector<Straggler> out;
  for (const RankKernels& rank : compared) {
    const Pace pace = PaceOf(rank, common);
    if (pace.actual_ns < thresholds::kComparedKernelTimeShare * static_cast<double>(rank.total_ns)) continue;
    if (pace.slowdown() < thresholds::kSlowKernelRatio * middle) continue;
    if ((pace.slowdown() - middle) / spread < thresholds::kRobustZScore) continue;
    out.push_back(Describe(rank, pace, common, compared));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Straggler& a, const Straggler& b) { return a.extra_ns > b.extra_ns; });
  return out;
}

}  // namespace gpuprobe::analysis
