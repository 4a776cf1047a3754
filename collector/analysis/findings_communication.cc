#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kBoundShare = 0.20;      // of the step
constexpr double kWorthSaying = 0.03;     // of the step
constexpr double kPoorEfficiency = 0.85;  // of overlap
constexpr double kSlowShare = 0.25;       // of the link's peak, at large sizes
constexpr uint64_t kLargeBytes = uint64_t{8} << 20;
constexpr uint64_t kSmallBucket = uint64_t{4} << 20;
constexpr double kManyBuckets = 32;  // a step
constexpr double kOneBucket = 0.5;   // of a step's bytes

// One cause, one finding: which of them explains the step's exposed transfers.
enum class Explains { kNothing, kPipeline, kSlowNetwork, kHugeBucket, kTinyBuckets, kBound, kOverlap };

double Exposed(const CommunicationReport& c) { return c.step_ns > 0 ? c.exposed_transfer_ns / c.step_ns : 0; }

// (compute + comm - total) / (compute + comm - max(compute, comm)), with the time in which neither ran left
// out; after formulas.md.
double OverlapEfficiency(const CommunicationReport& c) {
  const double possible = std::min(c.compute_ns, c.transfer_ns);
  return possible > 0 ? std::clamp((c.transfer_ns - c.exposed_transfer_ns) / possible, 0.0, 1.0) : 1;
}

// Best of the large sizes' bus bandwidth.
std::optional<double> BestBandwidth(const Report& report) {
  std::optional<double> best;
  for (const CollectiveReport& c : report.collectives) {
    if (c.size_bytes < kLargeBytes || !c.transfer_busbw.has_value() || c.fused) continue;
    best = std::max(best.value_or(0), *c.transfer_busbw);
  }
  return best;
}

Explains WhatExplains(const Report& report) {
  const CommunicationReport& c = report.communication;
  if (c.step_ns <= 0) return Explains::kNothing;
  if (c.pipeline.has_value()) {
    return c.pipeline->bubble >= 0.1 ? Explains::kPipeline : Explains::kNothing;
  }
  if (Exposed(c) < kWorthSaying) return Explains::kNothing;
  const std::optional<double> best = BestBandwidth(report);
  if (Exposed(c) >= 0.1 && best.has_value() && c.link_peak.has_value() && *best < kSlowShare * *c.link_peak)
    return Explains::kSlowNetwork;
  if (c.buckets.has_value()) {
    const Buckets& b = *c.buckets;
    const Buckets::Size& largest = b.sizes.front();
    const double share = static_cast<double>(largest.size_bytes) / b.bytes_per_step;
    if (Exposed(c) >= 0.1 && share >= kOneBucket && largest.size_bytes >= 16 * kLargeBytes)
      return Explains::kHugeBucket;
    if (b.calls_per_step >= kManyBuckets && b.bytes_per_step / b.calls_per_step <= kSmallBucket &&
        b.transfer_ns_per_step >= 0.5 * c.transfer_ns)
      return Explains::kTinyBuckets;
  }
  // What one late rank costs comes first: it stretches everything else.
  const bool late_rank =
      std::any_of(report.stragglers.begin(), report.stragglers.end(), [&](const Straggler& s) {
        return s.cause != Straggler::Cause::kUnknown && s.caused.per_step_ns >= c.exposed_transfer_ns;
      });
  if (late_rank) return Explains::kNothing;
  if (Exposed(c) >= kBoundShare) return Explains::kBound;
  return OverlapEfficiency(c) < kPoorEfficiency ? Explains::kOverlap : Explains::kNothing;
}

std::string Costs(const CommunicationReport& c) {
  return absl::StrFormat("%s of a step of %s is communication that nothing hides: %s.",
                         Percent(c.exposed_transfer_ns / c.step_ns), Duration(c.step_ns),
                         Duration(c.exposed_transfer_ns));
}

std::string Overlap(const CommunicationReport& c) {
  return absl::StrFormat(
      "A step has %s of transfers and %s of compute; overlap efficiency %.0f %% (100 %%: all that could be "
      "hidden "
      "is).",
      Duration(c.transfer_ns), Duration(c.compute_ns), OverlapEfficiency(c) * 100);
}

std::string BucketText(const Buckets& b) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < b.sizes.size() && i < 4; ++i)
    sizes.push_back(absl::StrFormat("%.0f of %s", b.sizes[i].calls_per_step, Bytes(b.sizes[i].size_bytes)));
  if (b.sizes.size() > 4) sizes.push_back(absl::StrCat(b.sizes.size() - 4, " more sizes"));
  return absl::StrCat(b.op, " calls a step: ", absl::StrJoin(sizes, ", "), ".");
}

}  // namespace

void CommunicationBound(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kBound) return;
  const CommunicationReport& c = report.communication;
  std::string evidence = Overlap(c);
  if (c.buckets.has_value()) absl::StrAppend(&evidence, " ", BucketText(*c.buckets));
  out.push_back(
      {.statement = Costs(c),
       .evidence = evidence,
       .advice = OverlapEfficiency(c) < 0.5
                     ? "Start reductions while backward still runs (DDP does; look for what turns it off), "
                       "or send less: accumulate gradients, compress, shard differently."
                     : "Send less (gradient accumulation, lower precision, another sharding), or use a "
                       "faster link.",
       .cost_ns_per_step = c.exposed_transfer_ns});
}

void PoorOverlap(const Report& report, std::vector<Finding>& out) {
  const Explains why = WhatExplains(report);
  const CommunicationReport& c = report.communication;
  const bool beside = why == Explains::kBound && OverlapEfficiency(c) < kPoorEfficiency;
  if (why != Explains::kOverlap && !beside) return;
  const double hidden_ideally = std::max(0.0, c.transfer_ns - c.compute_ns);
  std::string evidence = c.buckets.has_value() ? BucketText(*c.buckets) : Costs(c);
  out.push_back(
      {.statement = absl::StrFormat("Communication overlaps compute badly: efficiency %.0f %%; %s of %s of "
                                    "transfers a step are exposed.",
                                    OverlapEfficiency(c) * 100, Duration(c.exposed_transfer_ns),
                                    Duration(c.transfer_ns)),
       .evidence = evidence,
       .advice = "Smaller first bucket; check that gradients are ready in bucket order, and that nothing "
                 "synchronises in between.",
       // What remains when the overlap is perfect is the other finding's.
       .cost_ns_per_step = (c.exposed_transfer_ns - hidden_ideally) * (beside ? 0.99 : 1)});
}

void BucketTooLarge(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kHugeBucket) return;
  const CommunicationReport& c = report.communication;
  out.push_back(
      {.statement = absl::StrFormat(
           "One bucket of %s holds %s of what a step reduces: its transfer cannot overlap what fills it. %s",
           Bytes(c.buckets->sizes.front().size_bytes),
           Percent(static_cast<double>(c.buckets->sizes.front().size_bytes) / c.buckets->bytes_per_step),
           Costs(c)),
       .evidence = absl::StrCat(BucketText(*c.buckets), " ", Overlap(c)),
       .advice = "Set bucket_cap_mb (DDP) to 25-100 MiB, so that reductions start while backward runs.",
       .cost_ns_per_step = c.exposed_transfer_ns});
}

void BucketTooSmall(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kTinyBuckets) return;
  const CommunicationReport& c = report.communication;
  const Buckets& b = *c.buckets;
  out.push_back(
      {.statement = absl::StrFormat(
           "Gradients are reduced in %.0f pieces of %s a step; each pays the latency of a "
           "call. %s",
           b.calls_per_step, Bytes(static_cast<uint64_t>(b.bytes_per_step / b.calls_per_step)), Costs(c)),
       .evidence = absl::StrFormat("%s Together %s of transfers a step, %s.", BucketText(b),
                                   Duration(b.transfer_ns_per_step),
                                   Rate(b.bytes_per_step / std::max(b.transfer_ns_per_step, 1.0))),
       .advice = "Raise bucket_cap_mb (DDP) to 25 MiB or more.",
       .cost_ns_per_step = c.exposed_transfer_ns});
}

void SlowNetwork(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kSlowNetwork) return;
  const CommunicationReport& c = report.communication;
  const double best = *BestBandwidth(report);
  out.push_back(
      {.statement = absl::StrFormat(
           "The network is slow for all ranks: %s bus bandwidth at best, %s of %s (%s). %s", Rate(best),
           Percent(best / *c.link_peak), Rate(*c.link_peak), c.link_peak_source, Costs(c)),
       .evidence =
           absl::StrCat("Transfers of ", Bytes(kLargeBytes), " and more, without waiting. ", Overlap(c)),
       .advice =
           "See which path NCCL took (NCCL_DEBUG=INFO: NVLink, PCIe, sockets), and nvidia-smi topo -m and "
           "nvlink -s.",
       .cost_ns_per_step = c.exposed_transfer_ns});
}

void PipelineBubble(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kPipeline) return;
  const CommunicationReport& c = report.communication;
  const Pipeline& p = *c.pipeline;
  // What a slow stage costs, its own finding says.
  double cost_ns = p.bubble * c.step_ns;
  for (const Straggler& s : report.stragglers) cost_ns -= s.slow_stage ? s.cause_ns_per_step : 0;
  out.push_back({.statement = absl::StrFormat("Pipeline stages stand still for %s of the step of %s.",
                                              Percent(p.bubble), Duration(c.step_ns)),
                 .evidence = absl::StrFormat(
                     "%d stages, %d microbatches a step: one forward, one backward leaves (p-1)/(m+p-1) "
                     "= %s at least.",
                     p.stages, p.microbatches, Percent(p.least_bubble)),
                 .advice = p.bubble > 1.3 * p.least_bubble
                               ? "Balance the stages: the slowest one sets the pace."
                               : "More microbatches a step, or interleaved stages.",
                 .cost_ns_per_step = std::max(cost_ns, 0.0)});
}

}  // namespace gpuprobe::analysis
