#include "collector/analysis/communication/communication_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "collector/analysis/communication/call_timing.h"
#include "collector/analysis/communication/exchanges.h"
#include "collector/analysis/communication/network_report.h"
#include "collector/analysis/communication/parallelism.h"
#include "collector/analysis/stragglers/pipeline_report.h"
#include "collector/report/report.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

struct LinkPeak {
  std::string_view name;
  double gbytes_per_s;
};
// NVLink, one direction, half of the published sum of both. Sources: data sheets of V100 (300 GB/s), A100
// (600 GB/s), H100 SXM and H200 (900 GB/s), B200 (1.8 TB/s).
constexpr LinkPeak kLinkPeaks[] = {{"V100-SXM", 150}, {"A100-SXM", 300}, {"H100 80GB HBM3", 450},
                                   {"H100-SXM", 450}, {"H200", 450},     {"B200", 900}};

// Buckets are the calls that reduce gradients: those of the operation and communicator that move most.
void FindBuckets(const Report& report, double steps, const std::set<CallSize>& in_forward,
                 CommunicationReport& out) {
  const auto reduces = [&](const CollectiveReport& c) {
    const auto role = out.roles.find(c.comm);
    return !c.fused && nccl::ReducesForAll(c.op) && role != out.roles.end() &&
           ReducesGradients(role->second) && c.heard_ranks > 0 &&
           !in_forward.contains({c.op, c.comm, c.size_bytes});
  };
  std::map<std::pair<std::string, std::string>, double> moved;
  for (const CollectiveReport& c : report.collectives) {
    if (reduces(c)) moved[{c.op, c.comm}] += static_cast<double>(c.bytes);
  }
  if (moved.empty()) return;
  const auto most = std::max_element(moved.begin(), moved.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  Buckets b;
  std::tie(b.op, b.comm) = most->first;
  constexpr uint64_t kLeastBytes = 1024;  // less is a loss, or a norm
  for (const CollectiveReport& c : report.collectives) {
    if (!reduces(c) || c.op != b.op || c.comm != b.comm || c.mixed_sizes || c.size_bytes == 0) continue;
    // A call made less than once in two steps does not carry gradients: a metric, a start.
    const double calls = static_cast<double>(c.calls) / c.heard_ranks / steps;
    if (calls < 0.5 || c.size_bytes < kLeastBytes) continue;
    b.sizes.push_back({.size_bytes = c.size_bytes,
                       .calls_per_step = calls,
                       .transfer_ns = c.transfer_mean_ns.value_or(c.time_ns.min),
                       .busbw = c.transfer_busbw});
    b.calls_per_step += calls;
    b.bytes_per_step += calls * static_cast<double>(c.size_bytes);
    b.transfer_ns_per_step += calls * b.sizes.back().transfer_ns;
  }
  std::sort(b.sizes.begin(), b.sizes.end(),
            [](const auto& x, const auto& y) { return x.size_bytes > y.size_bytes; });
  if (!b.sizes.empty()) out.buckets = std::move(b);
}

// The transfers of the calls, from the arrival of the last rank. Where calls could not be compared, a rank
// transfers for no longer than the one that communicates least.
void LimitTransfers(const model::JobModel& job, const Exchanges& exchanges, CommunicationReport& out) {
  CollectiveTime sum;
  double ranks = 0;
  for (const model::Member& member : job.ReportedMembers()) {
    if (member.steps().communication().steps() == 0) continue;
    const CollectiveTime time = CollectiveTimeOf(member, exchanges);
    sum.all_transfer_ns_per_step += time.all_transfer_ns_per_step;
    sum.all_exposed_transfer_ns_per_step += time.all_exposed_transfer_ns_per_step;
    ++ranks;
  }
  if (ranks > 0) {
    out.transfer_ns = std::min(out.transfer_ns, sum.all_transfer_ns_per_step / ranks);
    out.exposed_transfer_ns = std::min(out.exposed_transfer_ns, sum.all_exposed_transfer_ns_per_step / ranks);
  }
  // The rank that waits least may change from step to step.
  const model::StepSpread::Means least = job.comparison().spread().Summarize();
  if (least.steps > 0) {
    out.transfer_ns = std::min(out.transfer_ns, least.least_comm_ns);
    out.exposed_transfer_ns = std::min(out.exposed_transfer_ns, least.least_exposed_ns);
  }
}

// Share of all calls' time on communicators with ranks that do not record here.
double UnheardShare(const Report& report) {
  double total_ns = 0;
  double unheard_ns = 0;
  for (const CollectiveReport& c : report.collectives) {
    const auto time_ns = static_cast<double>(c.time_ns.total);
    total_ns += time_ns;
    if (c.heard_ranks < c.comm_ranks) unheard_ns += time_ns;
  }
  return total_ns > 0 ? unheard_ns / total_ns : 0;
}

}  // namespace

std::optional<double> KnownLinkPeak(std::string_view device_name) {
  for (const LinkPeak& peak : kLinkPeaks) {
    if (device_name.find(peak.name) != std::string_view::npos) return peak.gbytes_per_s;
  }
  return std::nullopt;
}

void SetPeakShares(Report& report) {
  if (!report.communication.link_peak.has_value()) return;
  const double peak = *report.communication.link_peak;
  const auto set = [peak](std::vector<CollectiveReport>& collectives) {
    for (CollectiveReport& c : collectives) {
      const std::optional<double> rate = c.transfer_busbw.has_value() ? c.transfer_busbw : c.busbw;
      if (rate.has_value() && peak > 0) c.peak_share = *rate / peak;
    }
  };
  set(report.collectives);
  for (RankReport& rank : report.ranks) set(rank.collectives);
}

CommunicationReport CommunicationOf(const Report& report, const model::JobModel& job,
                                    const Exchanges& exchanges, std::optional<double> link_peak) {
  CommunicationReport out;
  double steps = 0;  // of the rank with most, with the warm-up
  double weight = 0;
  double exposed_ns = 0;
  for (const RankReport& r : report.ranks) {
    const StepMeans& m = r.step_means;
    if (m.steps == 0) continue;
    if (r.steps.has_value()) steps = std::max(steps, static_cast<double>(r.steps->count));
    out.step_ns += m.total_ns;
    out.compute_ns += m.compute_ns;
    out.comm_ns += m.comm_ns;
    exposed_ns += m.exposed_comm_ns;
    out.waited_ns += r.caused.per_step_ns;
    const bool first = weight == 0;
    out.transfer_ns = first ? m.comm_ns : std::min(out.transfer_ns, m.comm_ns);
    out.exposed_transfer_ns =
        first ? m.exposed_comm_ns : std::min(out.exposed_transfer_ns, m.exposed_comm_ns);
    weight += 1;
  }
  if (weight > 0) {
    for (double* sum : {&out.step_ns, &out.compute_ns, &out.comm_ns, &exposed_ns}) *sum /= weight;
    // Each call's waiting was put down to one rank, as the mean over the others.
    out.waited_ns *= (weight - 1) / weight;
  }
  LimitTransfers(job, exchanges, out);
  if (out.step_ns > 0) out.exposed_wait_ns = exposed_ns - out.exposed_transfer_ns;
  if (link_peak.has_value()) {
    out.link_peak = link_peak;
    out.link_peak_source = kLinkPeakOption;
  } else if (report.conditions.hosts.size() == 1) {
    std::set<std::string> names;
    for (const DeviceCondition& d : report.conditions.devices) names.insert(d.name);
    if (names.size() == 1) out.link_peak = KnownLinkPeak(*names.begin());
    if (out.link_peak.has_value()) out.link_peak_source = "NVLink of " + *names.begin();
  }
  out.network = NetworkOf(report, job);
  const bool trains = !report.compute.only_communicates;
  const Parallelism parallelism = trains ? Parallelism(job, exchanges) : Parallelism();
  out.roles = parallelism.roles();
  out.pattern = parallelism.Pattern();
  if (steps > 0) FindBuckets(report, steps, SizesInForward(job), out);
  if (out.buckets.has_value()) {
    out.buckets->reductions_per_step = ReductionsPerStep(job, out.buckets->op, out.buckets->comm);
    out.buckets->order = CallTimingsOf(job, out.buckets->op, out.buckets->comm);
  }
  out.forward = ForwardCommunicationOf(job);
  out.exposed = ExposedCallsOf(job, exchanges, parallelism);
  if (trains) out.pipeline = PipelineOf(job, exchanges);
  out.unheard_share = UnheardShare(report);
  out.bytes_share = BytesShareOf(report.collectives);
  return out;
}

}  // namespace gpuprobe::analysis
