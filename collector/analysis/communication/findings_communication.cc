#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/communication/parallelism.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/statistics/whole_number.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

// One cause, one finding: which of them explains the step's exposed transfers. Waiting between the stages of
// a pipeline is a finding of its own.
enum class Explains { kNothing, kRepeated, kSlowNetwork, kHugeBucket, kTinyBuckets, kBound, kOverlap };

// Per rank and step, without waiting for late ranks and for stages of a pipeline.
struct Exposure {
  double step_ns = 0;
  double compute_ns = 0;
  double transfer_ns = 0;
  double exposed_ns = 0;
  CommunicationRole role = CommunicationRole::kData;  // of the most exposed calls

  double hiding_ns = 0;  // compute that could hide them: of gradients, what runs in backward

  double share() const { return step_ns > 0 ? exposed_ns / step_ns : 0; }
  double hidden_share() const {
    const double possible = std::min(hiding_ns, transfer_ns);
    return possible > 0 ? std::clamp((transfer_ns - exposed_ns) / possible, 0.0, 1.0) : 1;
  }
  // (compute + comm - total) / (compute + comm - max(compute, comm)), with the time in which neither ran left
  // out; after formulas.md.
  double efficiency() const {
    const double possible = std::min(compute_ns, transfer_ns);
    return possible > 0 ? std::clamp((transfer_ns - exposed_ns) / possible, 0.0, 1.0) : 1;
  }
};

constexpr double kFewBuckets = 1.5;  // calls per step: one, and now and then another

CommunicationRole MostExposed(const std::vector<ExposedCalls>& calls) {
  std::map<CommunicationRole, double> exposed_ns;
  for (const ExposedCalls& c : calls) {
    if (c.role != CommunicationRole::kPipeline) exposed_ns[c.role] += c.exposed_transfer_ns_per_step;
  }
  const auto most = std::max_element(exposed_ns.begin(), exposed_ns.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == exposed_ns.end() ? CommunicationRole::kData : most->first;
}

// Gradients become ready in backward, so what runs before hides nothing.
double HidingNs(const Report& report, CommunicationRole role) {
  const double compute_ns = report.communication.compute_ns;
  if (role != CommunicationRole::kData || !report.steps.has_value()) return compute_ns;
  for (const StepsReport::Phase& phase : report.steps->phases) {
    const double busy_ns = phase.time_ns.mean - phase.idle_ns.mean;
    if (phase.name == model::StepPhase::kBackward && busy_ns > 0) return std::min(compute_ns, busy_ns);
  }
  return compute_ns;
}

Exposure ExposureOf(const Report& report) {
  const CommunicationReport& c = report.communication;
  Exposure e{.step_ns = c.step_ns,
             .compute_ns = c.compute_ns,
             .transfer_ns = c.transfer_ns,
             .exposed_ns = c.exposed_transfer_ns,
             .role = MostExposed(c.exposed)};
  if (c.pipeline.has_value()) {
    e.transfer_ns = c.pipeline->collective_ns;
    e.exposed_ns = c.pipeline->exposed_collective_ns;
  }
  e.hiding_ns = HidingNs(report, e.role);
  return e;
}

// Best bus bandwidth at large sizes; for communicators over several hosts, or within one, if asked for.
std::optional<double> BestBandwidth(const Report& report, std::optional<bool> over_hosts = std::nullopt) {
  std::optional<double> best;
  for (const CollectiveReport& c : report.collectives) {
    if (c.size_bytes < thresholds::kLargeMessageBytes || !c.transfer_busbw.has_value() || c.fused) continue;
    if (over_hosts.has_value() && *over_hosts != (c.hosts > 1)) continue;
    best = std::max(best.value_or(0), *c.transfer_busbw);
  }
  return best;
}

// The bandwidth to compare with the link's peak: between hosts, the network's.
std::optional<double> JudgedBandwidth(const Report& report) {
  const std::optional<double> over =
      report.conditions.hosts.size() > 1 ? BestBandwidth(report, true) : std::nullopt;
  return over.has_value() ? over : BestBandwidth(report);
}

// Evidence from the job's own transfers that the network is slow.
bool NetworkSlowed(const Report& report) {
  const std::optional<NetworkReport>& n = report.communication.network;
  return n.has_value() && n->slow.has_value();
}

// Nobody said what the network can do, and it does less than would be taken for slow on any host of this
// type.
bool BelowReference(const Report& report) {
  const std::optional<NetworkReport>& n = report.communication.network;
  return !report.communication.link_peak.has_value() && n.has_value() && n->gbytes_per_s.has_value() &&
         n->reference_gbytes_per_s.has_value() &&
         *n->gbytes_per_s < thresholds::kSlowReferenceShare * *n->reference_gbytes_per_s;
}

bool BelowPeak(const Report& report) {
  if (!report.conditions.shared_devices.empty()) return false;  // its kernels take turns, too
  const std::optional<double> best = JudgedBandwidth(report);
  const std::optional<double>& peak = report.communication.link_peak;
  return best.has_value() && peak.has_value() && *best < thresholds::kSlowLinkPeakShare * *peak;
}

// What reductions cost that no_sync would leave out: all but the last of a step.
double RepeatedNs(const CommunicationReport& c, const Exposure& e) {
  if (!c.buckets.has_value() || c.buckets->reductions_per_step < 2 || e.role != CommunicationRole::kData)
    return 0;
  // The exposed part of the gradients' calls, without waiting.
  const double exposed_ns = std::min(e.exposed_ns, c.buckets->transfer_ns_per_step);
  return exposed_ns * (1 - 1.0 / c.buckets->reductions_per_step);
}

// Hosts that get no CPU launch late what would hide transfers, in some steps: what all steps expose is the
// program's.
bool ExposedByBusyMachine(const Report& report) {
  return report.steps.has_value() && CpuWaitOfBusyMachine(HostLoadsOf(report)) > 0 &&
         static_cast<double>(report.steps->exposed_comm_ns.min) <
             thresholds::kExposedStepShare * report.communication.step_ns;
}

// Of gradients in buckets, the last can only start when backward is over. What a bucket of PyTorch's default
// size takes then is the price of buckets, and not of a mistake.
double LastBucketNs(const CommunicationReport& c, const Exposure& e) {
  if (!c.buckets.has_value() || !ReducesGradients(e.role) || c.buckets->calls_per_step < kFewBuckets)
    return 0;
  const auto last_bytes =
      static_cast<double>(std::min(c.buckets->sizes.front().size_bytes, thresholds::kUsualBucketBytes));
  return c.buckets->transfer_ns_per_step * last_bytes / c.buckets->bytes_per_step;
}

Explains WhatExplains(const Report& report) {
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  if (e.step_ns > 0 && RepeatedNs(c, e) >= thresholds::kRepeatedStepShare * e.step_ns)
    return Explains::kRepeated;
  if (e.step_ns <= 0 || e.share() < thresholds::kExposedStepShare) return Explains::kNothing;
  // Then transfers cannot be separated from waiting for others.
  if (c.unheard_share >= thresholds::kUnheardTimeShare) return Explains::kNothing;
  // Unlike a peak, a change is no guess; and as it costs nothing before it begins, its share of the whole run
  // is small.
  if (NetworkSlowed(report)) return Explains::kSlowNetwork;
  if (e.share() >= thresholds::kIndirectExposedStepShare && (BelowPeak(report) || BelowReference(report)))
    return Explains::kSlowNetwork;
  if (report.compute.only_communicates) return Explains::kNothing;  // nothing that could hide it
  if (ExposedByBusyMachine(report)) return Explains::kNothing;
  if (c.buckets.has_value() && ReducesGradients(e.role)) {
    const Buckets& b = *c.buckets;
    const Buckets::Size& largest = b.sizes.front();
    const double share = static_cast<double>(largest.size_bytes) / b.bytes_per_step;
    if (e.share() >= thresholds::kIndirectExposedStepShare && share >= thresholds::kHugeBucketBytesShare &&
        largest.size_bytes >= thresholds::kHugeBucketBytes)
      return Explains::kHugeBucket;
    if (b.calls_per_step >= thresholds::kTinyBucketCalls &&
        b.bytes_per_step / b.calls_per_step <= thresholds::kTinyBucketBytes &&
        b.transfer_ns_per_step >= thresholds::kTinyBucketTimeShare * e.transfer_ns)
      return Explains::kTinyBuckets;
  }
  // The cost of one late rank comes first: it stretches everything else.
  const bool late_rank =
      std::any_of(report.stragglers.begin(), report.stragglers.end(),
                  [&](const Straggler& s) { return s.caused.per_step_ns >= e.exposed_ns; });
  if (late_rank) return Explains::kNothing;
  if (e.share() >= thresholds::kBoundStepShare) return Explains::kBound;
  if (e.hidden_share() >= thresholds::kPoorOverlapShare) return Explains::kNothing;
  const bool usual = e.exposed_ns - LastBucketNs(c, e) < thresholds::kExposedStepShare * e.step_ns;
  return usual ? Explains::kNothing : Explains::kOverlap;
}

std::string Costs(const Exposure& e) {
  return absl::StrFormat("%s of the %s step is exposed communication (%s).", Percent(e.share()),
                         Duration(e.step_ns), Duration(e.exposed_ns));
}

std::string Overlap(const Exposure& e) {
  return absl::StrFormat(
      "A step has %s of transfers and %s of compute; overlap efficiency is %.0f %% (100 %%: compute hides "
      "all it could).",
      Duration(e.transfer_ns), Duration(e.compute_ns), e.efficiency() * 100);
}

std::string BucketText(const Buckets& b) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < b.sizes.size() && i < 4; ++i)
    sizes.push_back(absl::StrFormat("%.0f of %s", b.sizes[i].calls_per_step, Bytes(b.sizes[i].size_bytes)));
  if (b.sizes.size() > 4) sizes.push_back(absl::StrCat(b.sizes.size() - 4, " more sizes"));
  return absl::StrCat(b.op, " calls per step: ", absl::StrJoin(sizes, ", "), ".");
}

// The gain of the best size, where that is known, else `otherwise`.
std::string BucketAdviceText(const CommunicationReport& c, const Exposure& e, const std::string& otherwise) {
  if (!c.bucket_advice.has_value() || c.bucket_advice->exposed_ns >= e.exposed_ns) return otherwise;
  const BucketAdvice& advice = *c.bucket_advice;
  const double gain_ns = e.exposed_ns - advice.exposed_ns;
  return absl::StrFormat(
      "Set bucket_cap_mb (DDP) to %d: based on %s, exposed time could drop from %s to %s, shortening the "
      "step by up to %s (%s).",
      advice.bucket_bytes >> 20,
      advice.fitted ? "the latency and bandwidth of the job's own transfers" : "the bandwidth reached so far",
      Duration(e.exposed_ns), Duration(advice.exposed_ns), Duration(gain_ns), Percent(gain_ns / e.step_ns));
}

// The calls that are exposed most, of those that are not the reduction of gradients.
std::string ExposedText(const CommunicationReport& c) {
  constexpr size_t kMost = 3;
  std::vector<std::string> parts;
  for (const ExposedCalls& calls : c.exposed) {
    if (parts.size() == kMost || calls.role == CommunicationRole::kPipeline) continue;
    if (calls.exposed_ns_per_step < thresholds::kExposedStepShare * c.step_ns) continue;
    parts.push_back(absl::StrFormat("%.0f %s over %d ranks%s, %s exposed (waits included)",
                                    calls.calls_per_step, calls.op, calls.comm_ranks,
                                    calls.in_forward ? " inside layers (also in forward)" : "",
                                    Duration(calls.exposed_ns_per_step)));
  }
  return parts.empty() ? "" : absl::StrCat("Calls per step: ", absl::StrJoin(parts, "; "), ".");
}

std::string CallsText(const CommunicationReport& c, const Exposure& e) {
  if (e.role == CommunicationRole::kData && c.buckets.has_value()) return BucketText(*c.buckets);
  return ExposedText(c);
}

// Over several hosts no table says what the network between them can do.
std::string WithoutPeak(const Report& report) {
  if (report.communication.link_peak.has_value() || report.conditions.hosts.size() < 2) return "";
  const std::optional<double> over = BestBandwidth(report, true);
  if (!over.has_value()) return "";
  const std::optional<double> within = BestBandwidth(report, false);
  return absl::StrCat("Messages of ", Bytes(thresholds::kLargeMessageBytes), " and more reach at most ",
                      Rate(*over), " bus bandwidth between the ", report.conditions.hosts.size(), " hosts",
                      within.has_value() ? absl::StrCat(", ", Rate(*within), " within one") : "",
                      "; the peak of the network between them is unknown.");
}

std::string WithPeakAdvice(const Report& report, std::string advice) {
  if (WithoutPeak(report).empty()) return advice;
  return absl::StrCat(
      "Pass the network's peak with --link-peak GB/s, and the report says whether it is slow. ", advice);
}

std::string InLayersAdvice(CommunicationRole role) {
  switch (role) {
    case CommunicationRole::kTensor:
      return "Sequence parallelism and asynchronous tensor parallelism hide these calls behind the layers' "
             "matrix products; fewer tensor-parallel ranks, all within one host's NVLink, send less.";
    case CommunicationRole::kTensorSequence:
      return "Asynchronous tensor parallelism gathers and scatters in chunks behind the layers' matrix "
             "products; fewer tensor-parallel ranks, all within one host's NVLink, send less.";
    case CommunicationRole::kSharded:
      return "Prefetch the next layer's weights (FSDP: forward_prefetch, backward_prefetch, larger units), "
             "or "
             "gather less: keep weights between forward and backward, shard within a host.";
    case CommunicationRole::kSharedState:
      return "Reduce gradients while backward still runs (DeepSpeed: overlap_comm; Megatron: "
             "--overlap-grad-reduce), and gather weights behind the next forward (--overlap-param-gather).";
    case CommunicationRole::kExpert:
      return "Exchange tokens in chunks while dense layers compute; keep experts that exchange tokens on one "
             "host.";
    case CommunicationRole::kRing:
      return "Send the next block while attention works on this one (two buffers, a stream of its own); "
             "larger blocks, and rings within one host, leave more to hide behind.";
    default:
      return "";
  }
}

void CommunicationBound(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kBound) return;
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  std::string evidence = Overlap(e);
  for (const std::string& more : {CallsText(c, e), WithoutPeak(report)}) {
    if (!more.empty()) absl::StrAppend(&evidence, " ", more);
  }
  std::string advice = InLayersAdvice(e.role);
  if (advice.empty()) {
    advice =
        e.efficiency() < 0.5
            ? "Start reductions while backward still runs (DDP does by default; check what disables it), or "
              "send less: accumulate gradients, compress, shard differently."
            : "Send less (gradient accumulation, lower precision, different sharding), or use a faster link.";
  }
  out.push_back({.statement = Costs(e),
                 .evidence = evidence,
                 .advice = WithPeakAdvice(report, advice),
                 .cost_ns_per_step = e.exposed_ns});
}

// What could be hidden depends on what is exposed: buckets of gradients, calls inside layers, or others.
std::string OverlapAdvice(const CommunicationReport& c, const Exposure& e) {
  std::string in_layers = InLayersAdvice(e.role);
  if (!in_layers.empty()) return in_layers;
  if (e.role != CommunicationRole::kData)
    return "Issue these calls earlier, on a stream of their own, and wait for them as late as possible.";
  if (c.buckets.has_value() && c.buckets->calls_per_step < kFewBuckets &&
      c.buckets->bytes_per_step < thresholds::kTinyBucketBytes)
    return "The gradients are so small that their one call takes latency, which buckets would not hide: "
           "accumulate gradients over more batches, and use fewer hosts.";
  if (c.buckets.has_value() && c.buckets->calls_per_step < kFewBuckets)
    return "Gradients are reduced in one call, which can only start when all are ready: split them into "
           "buckets (DDP: bucket_cap_mb), and reduce each while backward goes on.";
  return "Use a smaller first bucket; check that gradients become ready in bucket order and that nothing "
         "synchronises in between.";
}

void PoorOverlap(const Report& report, std::vector<Finding>& out) {
  const Explains why = WhatExplains(report);
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  const std::string in_layers = InLayersAdvice(e.role);
  // Calls inside the layers have one remedy, and the other finding names it.
  const bool beside =
      why == Explains::kBound && e.hidden_share() < thresholds::kPoorOverlapShare && in_layers.empty();
  if (why != Explains::kOverlap && !beside) return;
  const double hidden_ideally = std::max(0.0, e.transfer_ns - e.hiding_ns);
  const std::string calls = CallsText(c, e);
  out.push_back(
      {.statement = absl::StrFormat("Communication overlaps poorly with compute (efficiency %.0f %%): %s of "
                                    "%s of transfers per step are exposed.",
                                    e.efficiency() * 100, Duration(e.exposed_ns), Duration(e.transfer_ns)),
       .evidence = calls.empty() ? Costs(e) : calls,
       .advice = OverlapAdvice(c, e),
       // The part that remains with perfect overlap is the other finding's, which comes first if both cost
       // the same.
       .cost_ns_per_step = e.exposed_ns - hidden_ideally});
}

void RepeatedReduction(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kRepeated) return;
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  const Buckets& b = *c.buckets;
  const double cost_ns = RepeatedNs(c, e);
  out.push_back(
      {.statement = absl::StrFormat(
           "Each micro-batch reduces the gradients, %d times per optimizer step; one reduction would do. The "
           "others lengthen the step by %s (%s).",
           b.reductions_per_step, Duration(cost_ns), Percent(cost_ns / e.step_ns)),
       .evidence = absl::StrFormat(
           "A step goes forward and backward %d times before the optimizer, and each time makes the same %s "
           "calls on communicator %s, %s in all.",
           b.reductions_per_step, b.op, ShortComm(b.comm),
           Bytes(model::WholeNumber(b.bytes_per_step / b.reductions_per_step))),
       .advice =
           "Wrap all but the last micro-batch in model.no_sync() (DDP), or let the framework count them: "
           "accelerator.accumulate(model), gradient_accumulation_steps.",
       .cost_ns_per_step = cost_ns});
}

void BucketTooLarge(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kHugeBucket) return;
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  out.push_back(
      {.statement = absl::StrFormat(
           "One bucket of %s holds %s of the bytes reduced per step; its transfer cannot overlap the "
           "backward pass that fills it. %s",
           Bytes(c.buckets->sizes.front().size_bytes),
           Percent(static_cast<double>(c.buckets->sizes.front().size_bytes) / c.buckets->bytes_per_step),
           Costs(e)),
       .evidence = absl::StrCat(BucketText(*c.buckets), " ", Overlap(e)),
       .advice = BucketAdviceText(
           c, e, "Set bucket_cap_mb (DDP) to 25-100 MiB so that reductions start while backward runs."),
       .cost_ns_per_step = e.exposed_ns});
}

void BucketTooSmall(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kTinyBuckets) return;
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  const Buckets& b = *c.buckets;
  out.push_back(
      {.statement = absl::StrFormat(
           "Gradients are reduced in %.0f calls of %s per step, and each pays the latency of a call. %s",
           b.calls_per_step, Bytes(model::WholeNumber(b.bytes_per_step / b.calls_per_step)), Costs(e)),
       .evidence = absl::StrFormat("%s Together they transfer for %s per step, at %s.", BucketText(b),
                                   Duration(b.transfer_ns_per_step),
                                   Rate(b.bytes_per_step / std::max(b.transfer_ns_per_step, 1.0))),
       .advice = BucketAdviceText(c, e, "Raise bucket_cap_mb (DDP) to 25 MiB or more."),
       .cost_ns_per_step = e.exposed_ns});
}

std::string SlowTransfer(const NetworkReport::Slow& slow) {
  return absl::StrFormat("%s of %s over %d ranks", slow.op, Bytes(slow.size_bytes), slow.comm_ranks);
}

// Some hosts, or since some step, or both.
void SlowedNetwork(const Report& report, const NetworkReport::Slow& slow, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  const bool hosts = !slow.hosts.empty();
  constexpr size_t kMostHosts = 4;
  std::vector<std::string> named(
      slow.hosts.begin(),
      slow.hosts.begin() + static_cast<ptrdiff_t>(std::min(kMostHosts, slow.hosts.size())));
  if (slow.hosts.size() > kMostHosts) named.push_back(absl::StrCat(slow.hosts.size() - kMostHosts, " more"));
  const bool one_host = c.network->hosts < 2;
  const std::string where = !hosts ? "between the hosts"
                            : slow.hosts.size() == 1
                                ? absl::StrCat("of host ", named.front())
                                : absl::StrCat("of one or more of the hosts ", absl::StrJoin(named, ", "));
  const std::string since =
      slow.since_step.has_value() ? absl::StrCat(" been slow since step ", *slow.since_step) : "";
  std::string statement = one_host ? "The links between the GPUs" : absl::StrCat("The network ", where);
  absl::StrAppend(&statement,
                  since.empty() ? (one_host ? " are slow" : " is slow") : (one_host ? " have" : " has"),
                  since, ": ");
  const double before_ns = hosts ? slow.elsewhere_ns : slow.usual_ns;
  const double after_ns = hosts ? slow.elsewhere_slow_ns : slow.slow_ns;
  absl::StrAppendFormat(&statement, "%s takes %s %s, %s %s (%.1fx). %s", SlowTransfer(slow),
                        Duration(after_ns),
                        !hosts                   ? "since then"
                        : slow.hosts.size() == 1 ? "when it takes part"
                                                 : "when they take part",
                        Duration(before_ns), hosts ? "on the same number of other hosts" : "before",
                        after_ns / before_ns, Costs(e));
  std::string evidence = absl::StrCat("Transfer times exclude waiting for late ranks. ", Overlap(e));
  if (!hosts && !one_host)
    absl::StrAppend(&evidence,
                    " Every transfer between hosts involves the same hosts, so this run cannot show which "
                    "one is at fault.");
  const std::string advice =
      hosts      ? absl::StrCat("Check the adapters of ", absl::StrJoin(named, ", "),
                                ": link state and rate (ibstat, ethtool), error counters, and the switch port.")
      : one_host ? "Find out what changed then: another job on these GPUs, or a link that fell back "
                   "(nvidia-smi nvlink -s and -e; PCIe generation and width in nvidia-smi -q)."
                 : "Check the switches and each host's adapters (ibstat, ethtool, error counters); run "
                   "nccl-tests between pairs of hosts to find the slow one.";
  out.push_back(
      {.statement = statement, .evidence = evidence, .advice = advice, .cost_ns_per_step = e.exposed_ns});
}

void NetworkBelowReference(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  const NetworkReport& n = *c.network;
  const Exposure e = ExposureOf(report);
  out.push_back(
      {.statement =
           absl::StrFormat("The network between the %d hosts is slow for all ranks: %s bus bandwidth. %s",
                           n.hosts, Rate(*n.gbytes_per_s), Costs(e)),
       .evidence = absl::StrFormat(
           "Bandwidth is based on the time per byte, excluding latency. The network's peak is unknown; the "
           "reference design for hosts with %s carries %s, and this is %s of it. %s",
           n.device, Rate(*n.reference_gbytes_per_s), Percent(*n.gbytes_per_s / *n.reference_gbytes_per_s),
           Overlap(e)),
       .advice =
           "If your hosts have slower adapters, pass their rate with --link-peak GB/s. Otherwise check which "
           "path NCCL took (NCCL_DEBUG=INFO: InfiniBand or sockets, which adapters, GPUDirect RDMA).",
       .cost_ns_per_step = e.exposed_ns});
}

void SlowNetwork(const Report& report, std::vector<Finding>& out) {
  if (WhatExplains(report) != Explains::kSlowNetwork) return;
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  if (NetworkSlowed(report)) return SlowedNetwork(report, *c.network->slow, out);
  if (!BelowPeak(report)) return NetworkBelowReference(report, out);
  const double best = *JudgedBandwidth(report);
  out.push_back(
      {.statement = absl::StrFormat(
           "The network is slow for all ranks: at most %s bus bandwidth, %s of %s (%s). %s", Rate(best),
           Percent(best / *c.link_peak), Rate(*c.link_peak), c.link_peak_source, Costs(e)),
       .evidence = absl::StrCat("Measured on transfers of ", Bytes(thresholds::kLargeMessageBytes),
                                " and more, excluding waits. ", Overlap(e)),
       .advice = "Check which path NCCL took (NCCL_DEBUG=INFO: NVLink, PCIe, sockets) and the links "
                 "(nvidia-smi topo -m, nvidia-smi nvlink -s).",
       .cost_ns_per_step = e.exposed_ns});
}

void CommunicationUnheard(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  const Exposure e = ExposureOf(report);
  if (c.unheard_share < thresholds::kUnheardTimeShare || e.step_ns <= 0 ||
      e.share() < thresholds::kIndirectExposedStepShare)
    return;
  std::vector<std::string> parts;
  std::set<std::string> told;
  for (const CollectiveReport& call : report.collectives) {
    if (call.heard_ranks >= call.comm_ranks || !told.insert(call.comm).second || parts.size() == 3) continue;
    parts.push_back(absl::StrFormat("%d of %d in communicator %s", call.heard_ranks, call.comm_ranks,
                                    ShortComm(call.comm)));
  }
  const std::string calls = CallsText(c, e);
  out.push_back({.statement = absl::StrCat(
                     Costs(e), " The share spent waiting for ranks that are not recorded here is unknown."),
                 .evidence = absl::StrCat("Recorded ranks: ", absl::StrJoin(parts, ", "), ".",
                                          calls.empty() ? "" : " ", calls),
                 .advice = absl::StrCat("Analyse all ranks together: ", kTogether),
                 .cost_ns_per_step = e.exposed_ns});
}

// To within what balancing layers can reach.
bool StagesComputeAlike(const Report& report) {
  double least_ns = 0;
  double most_ns = 0;
  for (const RankReport& r : report.ranks) {
    if (r.step_means.steps == 0) continue;
    const double ns = r.step_means.compute_ns;
    least_ns = most_ns == 0 ? ns : std::min(least_ns, ns);
    most_ns = std::max(most_ns, ns);
  }
  return most_ns > 0 && most_ns - least_ns < thresholds::kSlowStageStepShare * most_ns;
}

// What of the bubble is left if the slow stages, which have findings of their own, took as long as the
// others: the step is shorter, and these stages compute for less of it.
struct BalancedBubble {
  double idle_ns = 0;
  double step_ns = 0;
  bool has_slow_stage = false;

  double share() const { return step_ns > 0 ? idle_ns / step_ns : 0; }
};

BalancedBubble BalancedBubbleOf(const Report& report) {
  const CommunicationReport& c = report.communication;
  BalancedBubble balanced{.idle_ns = c.pipeline->bubble * c.step_ns, .step_ns = c.step_ns};
  const auto ranks = static_cast<double>(std::max<size_t>(report.ranks.size(), 1));
  for (const Straggler& s : report.stragglers) {
    if (!s.slow_stage) continue;
    balanced.has_slow_stage = true;
    balanced.step_ns -= s.lost_ns_per_step;
    balanced.idle_ns -= s.lost_ns_per_step - s.cause_ns_per_step / ranks;
  }
  return balanced;
}

void PipelineBubble(const Report& report, std::vector<Finding>& out) {
  const CommunicationReport& c = report.communication;
  if (!c.pipeline.has_value() || c.pipeline->bubble < thresholds::kBubbleStepShare) return;
  const Pipeline& p = *c.pipeline;
  const BalancedBubble balanced = BalancedBubbleOf(report);
  if (balanced.share() < thresholds::kBubbleStepShare) return;
  // No schedule beats the bound: the steps, and so the microbatches in them, were not recognised.
  const bool counted = p.bubble >= p.least_bubble;
  std::string evidence =
      counted
          ? absl::StrFormat(
                "%d stages, %d microbatches per step: a 1F1B schedule leaves at least (p-1)/(m+p-1) = %s.",
                p.stages, p.microbatches, Percent(p.least_bubble))
          : absl::StrFormat(
                "%d stages. The number of microbatches per step is unknown (--step-marker may help), so the "
                "least possible bubble is, too.",
                p.stages);
  const bool even = StagesComputeAlike(report);
  if (even) absl::StrAppend(&evidence, " All stages compute equally long.");
  if (p.exposed_collective_ns >= thresholds::kExposedStepShare * c.step_ns) {
    absl::StrAppend(&evidence, " Exposed communication within stages, ", Duration(p.exposed_collective_ns),
                    " per step, is not included.");
  }
  std::string statement = absl::StrFormat("Pipeline bubble: stages wait for each other for %s of the %s step",
                                          Percent(p.bubble), Duration(c.step_ns));
  if (balanced.has_slow_stage)
    absl::StrAppendFormat(&statement, "; with the slow stage as fast as the others, it would be %s of %s",
                          Percent(balanced.share()), Duration(balanced.step_ns));
  const bool uneven =
      !even && !balanced.has_slow_stage && p.bubble > thresholds::kUnevenBubbleRatio * p.least_bubble;
  out.push_back({.statement = statement + ".",
                 .evidence = evidence,
                 .advice = uneven ? "Balance the stages: the slowest one sets the pace."
                                  : "Use more microbatches per step, or interleave stages.",
                 .cost_ns_per_step = balanced.idle_ns});
}

Moment WhenSlowed(const Report& report) {
  const std::optional<NetworkReport>& network = report.communication.network;
  if (!network.has_value() || !network->slow.has_value()) return {};
  return {.step = network->slow->since_step};
}

}  // namespace

std::vector<FindingRule> CommunicationRules() {
  return {
      {"slow-network", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and the same transfers became %s slower at "
                       "some step or, across hosts, are %s slower where certain hosts take part; or %s of "
                       "the step is, and large messages reach less than %s of the link's peak or, across "
                       "hosts and without --link-peak, less than %s of the reference design for these GPUs",
                       condition::Share(thresholds::kExposedStepShare),
                       condition::Ratio(thresholds::kSlowedRatio), condition::Ratio(thresholds::kSlowedRatio),
                       condition::Share(thresholds::kIndirectExposedStepShare),
                       condition::Share(thresholds::kSlowLinkPeakShare),
                       condition::Share(thresholds::kSlowReferenceShare)),
       SlowNetwork, "network", WhenSlowed},
      {"reduced-each-micro-batch", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat("every micro-batch of a step reduces the same gradients, and all reductions but one "
                       "expose communication for %s of the step",
                       condition::Share(thresholds::kRepeatedStepShare)),
       RepeatedReduction, "buckets"},
      {"bucket-too-large", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and one bucket of %s or more holds %s of "
                       "the bytes reduced per step",
                       condition::Share(thresholds::kIndirectExposedStepShare),
                       condition::Mib(thresholds::kHugeBucketBytes),
                       condition::Share(thresholds::kHugeBucketBytesShare)),
       BucketTooLarge, "buckets"},
      {"bucket-too-small", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and gradients are reduced in %g or more "
                       "calls per step that average %s or less and take %s of the transfer time",
                       condition::Share(thresholds::kExposedStepShare), thresholds::kTinyBucketCalls,
                       condition::Mib(thresholds::kTinyBucketBytes),
                       condition::Share(thresholds::kTinyBucketTimeShare)),
       BucketTooSmall, "buckets"},
      {"communication-unheard", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat("%s of the step is exposed communication, and %s of the time in calls is spent with "
                       "ranks that are not recorded here; slow transfers cannot be distinguished from "
                       "waiting, so this replaces the other findings about communication",
                       condition::Share(thresholds::kIndirectExposedStepShare),
                       condition::Share(thresholds::kUnheardTimeShare)),
       CommunicationUnheard, "exposed"},
      {"pipeline-bubble", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrCat("pipeline stages wait for each other for ",
                    condition::Share(thresholds::kBubbleStepShare),
                    " of the step, and still would if a stage that holds up the others were as fast as they "
                    "are"),
       PipelineBubble, "bubble"},
      {"communication-bound", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrCat(condition::Share(thresholds::kBoundStepShare),
                    " of the step is exposed communication, excluding waits for late ranks"),
       CommunicationBound, "exposed"},
      {"poor-overlap", FindingTopic::kCommunication, Severity::kWarning,
       absl::StrFormat(
           "%s of the step is exposed communication, without what the last bucket of gradients takes "
           "(%d MiB of it at most), and less than %s of what compute could hide (of gradients: "
           "compute in backward) is hidden",
           condition::Share(thresholds::kExposedStepShare), thresholds::kUsualBucketBytes >> 20,
           condition::Share(thresholds::kPoorOverlapShare)),
       PoorOverlap, "exposed"},
  };
}

}  // namespace gpuprobe::analysis
