#include "collector/analysis/comparison/run_series.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/analysis/work/kernel_class.h"
#include "collector/model/statistics/whole_number.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

int RankOrMinusOne(const model::ProcessModel& process) {
  const v1::Identity& id = process.identity();
  return HasRank(id) ? id.rank() : -1;
}

// `behind`: blocks by which this rank's numbers are too small.
Series MeansOf(const std::vector<uint64_t>& sums, const std::vector<uint64_t>& counts, size_t behind) {
  Series out(behind + counts.size(), kNone);
  for (size_t i = 0; i < counts.size(); ++i) {
    const double sum = i < sums.size() ? static_cast<double>(sums[i]) : 0;
    if (counts[i] > 0) out[behind + i] = sum / static_cast<double>(counts[i]);
  }
  return out;
}

size_t BehindOf(const model::JobModel& job, const model::Member& member, uint32_t shift) {
  const std::deque<model::StepRecord>& steps = member.steps().steps();
  const int64_t behind =
      steps.empty() ? 0 : job.comparison().alignment().Behind(member.number, steps.back().index);
  return behind > 0 ? static_cast<size_t>(behind) >> shift : 0;
}

void FillParts(const model::StepBlocks& blocks, uint32_t shift, size_t behind, RankSeries& rank) {
  const std::vector<uint64_t> counts = blocks.steps().At(shift);
  for (size_t i = 0; i < model::kStepParts; ++i)
    rank.parts[i] = MeansOf(blocks.Of(static_cast<model::StepPart>(i)).At(shift), counts, behind);
}

// Blocks of kernels hold the warm-up, too: those in which there is any are left out.
void FillKernels(const model::Member& member, uint32_t shift, size_t behind, RankSeries& rank) {
  const model::StepWork& work = member.steps().work();
  const uint64_t warmup = member.steps().warmup_count();
  std::vector<uint64_t> counts = work.step_blocks().At(shift);
  const uint64_t drop = (warmup + (uint64_t{1} << shift) - 1) >> shift;
  std::fill_n(counts.begin(), std::min<size_t>(drop, counts.size()), 0);
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    const model::StepWork::Blocks* blocks = work.BlocksOf(kernel.token);
    // Communication is compared as collectives.
    if (blocks == nullptr || model::Communicates(kernel.nature)) return;
    const std::string name = Demangle(KernelName(*member.process, kernel));
    Series series = MeansOf(blocks->At(std::max(shift, blocks->shift())), counts, behind);
    const auto [known, added] = rank.kernels.try_emplace(name, std::move(series));
    // Two tokens may read alike.
    for (size_t i = 0; !added && i < known->second.size(); ++i) known->second[i] += series[i];
  });
}

void FillCalls(const Report& report, RunSeries& run) {
  for (const KernelReport& k : report.top_kernels) {
    if (k.steady.has_value() && k.kernel_class != KernelClass::kCollective)
      run.kernel_calls[k.name] += k.steady->calls;
  }
}

// The report's figures for the same calls. Point-to-point pairs appear there as sends and receives.
void FillFromReport(const model::JobModel& job, const Report& report, const std::string& comm,
                    const std::string& op, uint64_t size, CollectiveSeries& out) {
  double entries = 0;
  for (const CollectiveReport& c : report.collectives) {
    const bool pair = nccl::OperationOf(op) == nccl::Operation::kSendRecv && nccl::IsTransfer(c.op);
    if (c.comm != comm || c.size_bytes != size || (c.op != op && !pair) || c.steady.compared == 0) continue;
    entries += 1;
    out.wait_ns += c.steady.wait_ns;
    out.calls_per_step += c.steady.plans_per_step;
    for (const uint32_t member : c.members) {
      if (const int rank = RankOrMinusOne(*job.processes()[member]); rank >= 0) out.members.push_back(rank);
    }
  }
  if (entries > 0) out.wait_ns /= entries;
  std::sort(out.members.begin(), out.members.end());
  out.members.erase(std::unique(out.members.begin(), out.members.end()), out.members.end());
}

// Communicators get new hashes with every run: operation, size, and members stand for them.
void FillCollectives(const model::JobModel& job, const Report& report, RunSeries& run) {
  for (const model::RankComparison::Transfers& t : job.comparison().transfers()) {
    std::vector<std::string> ops;
    std::vector<PlanPart> plan;
    for (const auto& [op, bytes] : t.bytes_of_op) {
      ops.push_back(op);
      plan.push_back({.op = op, .bytes = bytes});
    }
    const double size = MovedBytesOf(plan, std::max(t.ranks, 1), false).algorithm;
    CollectiveSeries c;
    const std::string op = absl::StrJoin(ops, "+");
    FillFromReport(job, report, CommName(t.hash), op, model::WholeNumber(size), c);
    c.transfer_ns = TimedTransfersOf(job, t.blocks).transfer_ns;
    if (c.transfer_ns.empty() || c.calls_per_step <= 0) continue;
    c.name = absl::StrCat(op, " ", Bytes(model::WholeNumber(size)), ", ", t.ranks, " ranks",
                          t.calls_per_plan > 1 ? absl::StrCat(", ", t.calls_per_plan, " in one") : "");
    run.collectives.push_back(std::move(c));
  }
  std::sort(run.collectives.begin(), run.collectives.end(), [](const auto& x, const auto& y) {
    return std::tie(x.name, x.members) < std::tie(y.name, y.members);
  });
}

}  // namespace

TimedTransfers TimedTransfersOf(const model::JobModel& job, const model::CallBlocks& blocks) {
  const uint32_t shift = blocks.transfer_ns().shift();
  const std::vector<uint64_t> sums = blocks.transfer_ns().At(shift);
  TimedTransfers out;
  for (size_t i = 0; i < sums.size(); ++i) {
    const model::CallBlocks::First& first = blocks.first()[i];
    if (first.process >= job.processes().size()) continue;
    const auto from_ns = job.processes()[first.process]->steps().steady_runs().from_ns();
    if (from_ns.has_value() && first.end_ns <= *from_ns) continue;
    const uint64_t calls = std::min(uint64_t{1} << shift, blocks.calls() - (uint64_t{i} << shift));
    // The last block may hold a single call: it would weigh as much as a full one.
    if (2 * calls < (uint64_t{1} << shift)) continue;
    out.transfer_ns.push_back(static_cast<double>(sums[i]) / static_cast<double>(calls));
    out.first.push_back(first);
  }
  return out;
}

Series ValuesOf(const Series& series) {
  Series out;
  std::copy_if(series.begin(), series.end(), std::back_inserter(out),
               [](double v) { return !std::isnan(v); });
  return out;
}

Series MeanOf(const std::vector<const Series*>& all) {
  size_t blocks = 0;
  double level = 0;  // mean of the series' own means
  double counted = 0;
  std::vector<double> means;
  for (const Series* s : all) {
    const Series values = ValuesOf(*s);
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    means.push_back(values.empty() ? 0 : sum / static_cast<double>(values.size()));
    level += means.back();
    counted += values.empty() ? 0 : 1;
    blocks = std::max(blocks, s->size());
  }
  Series out(blocks, kNone);
  for (size_t i = 0; i < blocks; ++i) {
    double off = 0;
    double count = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      if (i >= all[k]->size() || std::isnan((*all[k])[i])) continue;
      off += (*all[k])[i] - means[k];
      count += 1;
    }
    if (count > 0) out[i] = level / counted + off / count;
  }
  return out;
}

RunSeries MeanSeriesOf(const model::JobModel& job) {
  const model::Members members = job.ReportedMembers();
  uint32_t shift = 0;
  for (const model::Member& member : members)
    shift = std::max(shift, member.steps().blocks().steps().shift());
  RunSeries run;
  run.block_steps = uint64_t{1} << shift;
  RankSeries& mean = run.ranks.emplace_back();
  mean.rank = 0;
  for (size_t i = 0; i < model::kStepParts; ++i) {
    std::vector<Series> all;
    for (const model::Member& member : members) {
      if (member.steps().count() == 0) continue;
      const model::StepBlocks& blocks = member.steps().blocks();
      all.push_back(MeansOf(blocks.Of(static_cast<model::StepPart>(i)).At(shift), blocks.steps().At(shift),
                            BehindOf(job, member, shift)));
    }
    std::vector<const Series*> each;
    each.reserve(all.size());
    for (const Series& series : all) each.push_back(&series);
    mean.parts[i] = MeanOf(each);
  }
  return run;
}

RunSeries SeriesOf(const model::JobModel& job, const Report& report) {
  RunSeries run;
  uint32_t shift = 0;
  uint32_t kernel_shift = 0;
  const model::Members members = job.ReportedMembers();
  for (const model::Member& member : members) {
    shift = std::max(shift, member.steps().blocks().steps().shift());
    kernel_shift = std::max(kernel_shift, member.steps().work().step_blocks().shift());
  }
  run.block_steps = uint64_t{1} << shift;
  run.kernel_block_steps = uint64_t{1} << kernel_shift;
  for (const model::Member& member : members) {
    if (member.steps().count() == 0) continue;
    RankSeries& rank = run.ranks.emplace_back();
    rank.rank = RankOrMinusOne(*member.process);
    rank.device = member.device();
    FillParts(member.steps().blocks(), shift, BehindOf(job, member, shift), rank);
    FillKernels(member, kernel_shift, BehindOf(job, member, kernel_shift), rank);
  }
  std::sort(run.ranks.begin(), run.ranks.end(), [](const RankSeries& x, const RankSeries& y) {
    return std::tie(x.rank, x.device) < std::tie(y.rank, y.device);
  });
  run.by_gpu = job.processes().size() == 1 &&
               std::all_of(run.ranks.begin(), run.ranks.end(),
                           [](const RankSeries& r) { return r.rank < 0 && r.device.has_value(); });
  for (RankSeries& rank : run.ranks) rank.rank = run.by_gpu ? static_cast<int>(*rank.device) : rank.rank;
  FillCalls(report, run);
  FillCollectives(job, report, run);
  return run;
}

}  // namespace gpuprobe::analysis
