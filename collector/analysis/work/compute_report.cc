#include "collector/analysis/work/compute_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/names.h"
#include "collector/analysis/work/device_peaks.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

// Sums over ranks; a rank without the kernel counts, too.
struct SteadySum {
  double calls = 0;
  double time_ns = 0;
  double std_ns = 0;
};

void AddSteady(const model::StepWork& work, uint32_t token, SteadySum& into) {
  const model::StepWork::Sum sum = work.Of(token);
  const auto steps = static_cast<double>(work.steps());
  const double mean = static_cast<double>(sum.time_ns) / steps;
  into.calls += static_cast<double>(sum.calls) / steps;
  into.time_ns += mean;
  if (work.steps() < 2) return;
  const double squares = static_cast<double>(sum.squares) - mean * mean * steps;
  into.std_ns += std::sqrt(std::max(squares, 0.0) / (steps - 1));
}

struct Geometry {
  model::LaunchGeometry geometry;
  uint64_t calls = 0;
};

// Geometries, with their calls, of each of the wanted kernels (mangled).
std::map<std::string, std::vector<Geometry>> GeometriesOf(const model::Members& members,
                                                          const std::set<std::string>& wanted) {
  std::map<std::string, std::vector<Geometry>> out;
  for (const model::Member& member : members) {
    member.ForEachSite([&](const model::KernelTotals& kernel, const model::LaunchGeometry& geometry,
                           uint64_t calls) {
      const std::string text = KernelName(*member.process, kernel);
      if (!wanted.contains(text) || geometry == model::LaunchGeometry{}) return;
      std::vector<Geometry>& known = out[text];
      const auto same =
          std::find_if(known.begin(), known.end(), [&](const Geometry& g) { return g.geometry == geometry; });
      if (same != known.end()) {
        same->calls += calls;
      } else {
        known.push_back({geometry, calls});
      }
    });
  }
  return out;
}

void AddPageable(v1::CopyDirection direction, const model::PageableTotals& totals, bool add_totals,
                 const model::StepWork::Sum& in_steps, uint64_t steps, ComputeReport& c) {
  if (totals.count == 0) return;
  PageableReport& p = c.pageable[direction];
  if (add_totals) {
    p.count += totals.count;
    p.bytes += totals.bytes;
    p.duration_ns += totals.duration_ns;
  }
  if (steps == 0) return;
  p.copies_per_step += static_cast<double>(in_steps.calls) / static_cast<double>(steps);
  p.ns_per_step += static_cast<double>(in_steps.time_ns) / static_cast<double>(steps);
}

void FillPageable(const model::JobModel& job, ComputeReport& c) {
  double ranks = 0;  // that have steps
  for (const model::Member& member : job.ReportedMembers()) {
    const model::StepWork& work = member.steps().work();
    const model::ProcessTotals& totals = member.process->totals();
    ranks += work.steps() > 0 ? 1 : 0;
    // The totals are the process's.
    const bool once = member.place == 0;
    AddPageable(v1::COPY_DIRECTION_H2D, totals.pageable_h2d, once, work.pageable_to_device(), work.steps(),
                c);
    AddPageable(v1::COPY_DIRECTION_D2H, totals.pageable_d2h, once, work.pageable_from_device(), work.steps(),
                c);
  }
  for (auto& [direction, p] : c.pageable) {
    p.copies_per_step /= std::max(ranks, 1.0);
    p.ns_per_step /= std::max(ranks, 1.0);
    uint64_t bytes = 0;
    uint64_t duration_ns = 0;
    const auto index = static_cast<size_t>(direction);
    for (const auto& process : job.processes()) {
      bytes += process->totals().copies[index].bytes;
      duration_ns += process->totals().copies[index].duration_ns;
    }
    if (bytes > 0) p.share = static_cast<double>(p.bytes) / static_cast<double>(bytes);
    if (p.duration_ns > 0) p.gbytes_per_s = static_cast<double>(p.bytes) / static_cast<double>(p.duration_ns);
    if (bytes > p.bytes && duration_ns > p.duration_ns) {
      p.pinned_gbytes_per_s =
          static_cast<double>(bytes - p.bytes) / static_cast<double>(duration_ns - p.duration_ns);
    }
  }
}

// The host link's peak of all devices, if they agree.
std::optional<double> HostPeak(const model::JobModel& job) {
  std::optional<double> peak;
  for (const auto& process : job.processes()) {
    for (const auto& [ordinal, device] : process->devices()) {
      const std::optional<DevicePeaks> known = PeaksOf(device.info.name());
      if (!known.has_value() || (peak.has_value() && *peak != known->host_gbytes_per_s)) return std::nullopt;
      peak = known->host_gbytes_per_s;
    }
  }
  return peak;
}

// nccl-tests launch a few kernels for each size, which fill and check the buffers, and 40 calls or more. A
// stage of a pipeline launches one for two transfers, however much it fuses, and computes for longer than
// that.
bool OnlyCommunicates(const model::JobModel& job, const std::vector<KernelClassReport>& classes) {
  constexpr double kHardlyAny = 0.05;  // kernels for each call
  constexpr double kFew = 0.5;
  constexpr double kShortTime = 0.1;  // of the communication
  double calls = 0;                   // fused ones are one
  for (const model::Member& member : job.ReportedMembers()) {
    member.ForEachSeries([&](const model::CollectiveSeries& series) {
      calls += static_cast<double>(series.calls) / std::max(series.calls_per_plan, 1U);
    });
  }
  double kernels = 0;
  double compute_ns = 0;
  double communication_ns = 0;
  for (const KernelClassReport& c : classes) {
    const bool communicates = c.kernel_class == KernelClass::kCollective;
    kernels += communicates ? 0 : static_cast<double>(c.calls);
    (communicates ? communication_ns : compute_ns) += static_cast<double>(c.total_ns);
  }
  // Where kernels are not recorded, or those in graphs are not, it is not known.
  const bool all = communication_ns > 0 &&
                   std::all_of(job.processes().begin(), job.processes().end(), [](const auto& process) {
                     return process->totals().self.detail_level() == v1::DETAIL_LEVEL_FULL;
                   });
  if (!all) return false;
  return kernels < kHardlyAny * calls ||
         (kernels < kFew * calls && compute_ns < kShortTime * communication_ns);
}

}  // namespace

std::vector<KernelReport> TopKernelsOf(const model::Members& members, size_t limit) {
  struct Named {
    model::Distribution time_ns;
    KernelClass kernel_class = KernelClass::kOther;
  };
  std::map<std::string, Named> by_name;
  std::map<std::string, SteadySum> steady;
  uint64_t steps = 0;  // of the rank with most
  double ranks = 0;    // that have any
  double all = 0;
  for (const model::Member& member : members) {
    const model::StepWork& work = member.steps().work();
    steps = std::max(steps, work.steps());
    ranks += work.steps() > 0 ? 1 : 0;
    member.ForEachKernel([&](const model::KernelTotals& kernel) {
      if (kernel.time_ns.count() == 0) return;
      const std::string name = KernelName(*member.process, kernel);
      const auto [known, added] = by_name.try_emplace(name);
      if (added) known->second.kernel_class = KernelClassOf(kernel, Demangle(name));
      known->second.time_ns.Merge(kernel.time_ns);
      all += static_cast<double>(kernel.time_ns.total());
      if (work.steps() > 0) AddSteady(work, kernel.token, steady[name]);
    });
  }
  std::vector<std::pair<uint64_t, const std::string*>> order;
  order.reserve(by_name.size());
  for (const auto& [name, named] : by_name) order.emplace_back(named.time_ns.total(), &name);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (order.size() > limit) order.resize(limit);
  std::set<std::string> wanted;
  for (const auto& [total, name] : order) wanted.insert(*name);
  const auto geometries = GeometriesOf(members, wanted);
  std::vector<KernelReport> out;
  out.reserve(order.size());
  for (const auto& [total, name] : order) {
    KernelReport k;
    k.name = Demangle(*name);
    const Named& named = by_name.at(*name);
    k.kernel_class = named.kernel_class;
    k.share = all > 0 ? static_cast<double>(total) / all : 0;
    k.time_ns = named.time_ns.Summarize();
    const SteadySum& sum = steady[*name];
    // Kernels of collectives are counted per step as what they carry (collectives[].steady).
    if (ranks > 0 && (sum.calls > 0 || named.kernel_class != KernelClass::kCollective)) {
      k.steady = {.steps = steps,
                  .calls = sum.calls / ranks,
                  .time_ns = sum.time_ns / ranks,
                  .std_ns = sum.std_ns / ranks};
    }
    if (const auto known = geometries.find(*name); known != geometries.end()) {
      k.geometries = static_cast<uint32_t>(known->second.size());
      k.geometry = std::max_element(known->second.begin(), known->second.end(),
                                    [](const Geometry& a, const Geometry& b) { return a.calls < b.calls; })
                       ->geometry;
    }
    out.push_back(std::move(k));
  }
  return out;
}

ComputeReport ComputeOf(const model::JobModel& job) {
  ComputeReport c;
  struct Named {
    KernelClass kernel_class;
    bool compiled;
  };
  std::map<std::string, Named> names;  // mangled: ranks share their kernels
  std::array<KernelClassReport, kKernelClasses> sums;
  double ranks = 0;  // that have steps
  c.short_below_ns = model::ProcessModel::kShortKernelNs;
  for (const auto& process : job.processes()) {
    c.short_kernels += process->totals().short_kernels;
    c.short_kernel_ns += process->totals().short_kernel_ns;
    for (const auto& [number, graph] : process->collectives().replays().graphs()) {
      c.graphs += graph.launches > 0 ? 1 : 0;
      c.graph_launches += graph.launches;
    }
  }
  for (const model::Member& member : job.ReportedMembers()) {
    const model::StepWork& work = member.steps().work();
    ranks += work.steps() > 0 ? 1 : 0;
    member.ForEachKernel([&](const model::KernelTotals& kernel) {
      if (kernel.time_ns.count() == 0) return;
      const auto [known, added] = names.try_emplace(KernelName(*member.process, kernel));
      if (added) {
        const std::string name = Demangle(known->first);
        known->second = {KernelClassOf(kernel, name), IsCompiledByInductor(name)};
        c.fused_optimizer |= !kernel.misnamed && IsFusedOptimizer(name);
      }
      KernelClassReport& sum = sums[static_cast<size_t>(known->second.kernel_class)];
      if (known->second.compiled) c.compiled_kernels += kernel.time_ns.count();
      sum.calls += kernel.time_ns.count();
      sum.total_ns += kernel.time_ns.total();
      c.kernels += kernel.time_ns.count();
      if (work.steps() > 0) {
        const model::StepWork::Sum steady = work.Of(kernel.token);
        c.calls_per_step += static_cast<double>(steady.calls) / static_cast<double>(work.steps());
        c.ns_per_step += static_cast<double>(steady.time_ns) / static_cast<double>(work.steps());
      }
      c.total_ns += kernel.time_ns.total();
    });
  }
  c.calls_per_step /= std::max(ranks, 1.0);
  c.ns_per_step /= std::max(ranks, 1.0);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].calls == 0) continue;
    sums[i].kernel_class = static_cast<KernelClass>(i);
    sums[i].share =
        c.total_ns == 0 ? 0 : static_cast<double>(sums[i].total_ns) / static_cast<double>(c.total_ns);
    c.classes.push_back(sums[i]);
  }
  std::stable_sort(
      c.classes.begin(), c.classes.end(),
      [](const KernelClassReport& a, const KernelClassReport& b) { return a.total_ns > b.total_ns; });
  c.only_communicates = OnlyCommunicates(job, c.classes);
  FillPageable(job, c);
  c.host_peak_gbytes_per_s = HostPeak(job);
  return c;
}

std::optional<OptimizerTraffic> OptimizerTrafficOf(const Report& report) {
  const auto kernels =
      std::find_if(report.compute.classes.begin(), report.compute.classes.end(),
                   [](const KernelClassReport& c) { return c.kernel_class == KernelClass::kOptimizer; });
  if (kernels == report.compute.classes.end() || !report.steps.has_value()) return std::nullopt;
  double steps = 0;
  const std::vector<MemoryLifetimesReport::Holding>* held = nullptr;
  for (const RankReport& r : report.ranks) {
    if (r.steps.has_value()) steps += static_cast<double>(r.steps->count);
    for (const PytorchMemoryReport& p : r.pytorch_memory) {
      if (held == nullptr && p.lifetimes.has_value()) held = &p.lifetimes->holdings;
    }
    for (const DeviceMemoryReport& d : r.device_memory) {
      if (held == nullptr && d.lifetimes.has_value()) held = &d.lifetimes->holdings;
    }
  }
  if (held == nullptr || steps == 0) return std::nullopt;
  const auto bytes = [&](std::string_view what) {
    uint64_t sum = 0;
    for (const MemoryLifetimesReport::Holding& h : *held) sum += h.what.rfind(what, 0) == 0 ? h.bytes : 0;
    return sum;
  };
  const uint64_t weights = bytes("weights");
  const uint64_t gradients = bytes("gradients");
  const uint64_t state = bytes("optimizer state");
  if (weights == 0 || gradients == 0 || state == 0) return std::nullopt;
  OptimizerTraffic traffic{.bytes_per_step = gradients + 2 * (weights + state),
                           .time_ns_per_step = static_cast<double>(kernels->total_ns) / steps,
                           .gbytes_per_s = 0,
                           .peak_gbytes_per_s = std::nullopt};
  if (traffic.time_ns_per_step <= 0) return std::nullopt;
  traffic.gbytes_per_s = static_cast<double>(traffic.bytes_per_step) / traffic.time_ns_per_step;
  const std::vector<DeviceCondition>& devices = report.conditions.devices;
  if (!devices.empty() && devices.front().memory_gbytes_per_s > 0)
    traffic.peak_gbytes_per_s = devices.front().memory_gbytes_per_s;
  return traffic;
}

UtilisationReport UtilisationOf(const ModelWork& work, const Conditions& conditions, double step_seconds) {
  UtilisationReport u;
  u.type = work.type;
  u.devices = static_cast<uint32_t>(conditions.devices.size());
  if (work.flops_per_step > 0) {
    u.flops_per_step = work.flops_per_step;
    u.formula = "as given";
  } else if (work.parameters > 0 && work.tokens_per_step > 0) {
    u.flops_per_step = 6 * work.parameters * work.tokens_per_step;
    u.formula = "6 x parameters x tokens (forward 2, backward 4; attention's own products excluded)";
  } else {
    return u;
  }
  u.asked = true;
  if (work.peak_tflops > 0) {
    u.peak_flops = work.peak_tflops * 1e12;
    u.peak_source = "as given";
  } else if (!conditions.devices.empty()) {
    // With different devices the slowest bounds a step that all of them take part in; say the first's and
    // let the finding about mixed hardware say the rest.
    u.peak_flops = PeakFlops(conditions.devices.front().name, work.type);
    if (u.peak_flops.has_value()) u.peak_source = "NVIDIA's data sheet, dense";
  }
  if (u.devices == 0) {
    u.missing = "no GPU was reported";
  } else if (!u.peak_flops.has_value()) {
    u.missing = absl::StrCat("the ", report::Word(work.type), " peak of ", conditions.devices.front().name,
                             " is unknown; pass it with --peak-tflops");
  } else if (step_seconds <= 0) {
    u.missing = "no steps were recognised";
  } else {
    u.mfu = u.flops_per_step / (step_seconds * u.devices * *u.peak_flops);
    // Recomputing activations runs the forward pass once more: 2 of 6 parts.
    if (work.recompute.has_value()) u.hfu = *work.recompute ? *u.mfu * 8 / 6 : *u.mfu;
  }
  return u;
}

}  // namespace gpuprobe::analysis
