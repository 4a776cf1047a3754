#include "collector/analysis/communication_report.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"

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

bool IsReduction(const std::string& op) { return op == "AllReduce" || op == "ReduceScatter"; }

// Of calls that reduce gradients: those of the operation and communicator that move most.
void FindBuckets(const Report& report, double steps, CommunicationReport& out) {
  std::map<std::pair<std::string, std::string>, double> moved;
  for (const CollectiveReport& c : report.collectives) {
    if (!c.fused && IsReduction(c.op) && c.comm_ranks > 1)
      moved[{c.op, c.comm}] += static_cast<double>(c.bytes);
  }
  if (moved.empty()) return;
  const auto most = std::max_element(moved.begin(), moved.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  Buckets b;
  std::tie(b.op, b.comm) = most->first;
  for (const CollectiveReport& c : report.collectives) {
    if (c.fused || c.op != b.op || c.comm != b.comm || c.size_bytes == 0) continue;
    // What is called less than once in two steps is no gradient: a loss, a norm, a start.
    const double calls = static_cast<double>(c.calls) / c.comm_ranks / steps;
    if (calls < 0.5) continue;
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

void FindPattern(const Report& report, CommunicationReport& out) {
  std::map<std::string, double> time_of;  // by operation
  std::map<std::string, std::set<std::string>> comms;
  double all = 0;
  for (const CollectiveReport& c : report.collectives) {
    if (c.comm_ranks < 2) continue;
    const bool sends = absl::StrContains(c.op, "Send") || absl::StrContains(c.op, "Recv");
    const std::string op = sends ? "SendRecv" : c.op;
    time_of[op] += static_cast<double>(c.bytes);
    comms[op].insert(c.comm);
    all += static_cast<double>(c.bytes);
  }
  if (all <= 0) return;
  for (const auto& [op, bytes] : time_of) out.bytes_share[op] = bytes / all;
  if (time_of.contains("AllGather") && time_of.contains("ReduceScatter") &&
      out.bytes_share["ReduceScatter"] > 0.05)
    out.pattern.emplace_back("sharded data parallel (FSDP, ZeRO)");
  if (time_of.contains("SendRecv")) out.pattern.emplace_back("pipeline");
  if (comms["AllReduce"].size() > 1) {
    out.pattern.emplace_back("tensor or grouped data parallel");
  } else if (time_of.contains("AllReduce") && out.pattern.empty()) {
    out.pattern.emplace_back("data parallel (DDP)");
  }
}

// Stages are the ranks that send to each other; a first or last stage sends once for each microbatch.
void FindPipeline(const Report& report, double step_ns, CommunicationReport& out) {
  int stages = 0;
  double least = 0;
  double busy = 0;
  size_t ranks = 0;
  for (const RankReport& r : report.ranks) {
    double sends = 0;
    for (const CollectiveReport& c : r.collectives) {
      if (!absl::StrContains(c.op, "Send")) continue;
      // In a plan of sends and receives half are sends.
      sends += static_cast<double>(c.calls) / (absl::StrContains(c.op, "Recv") ? 2 : 1);
      stages = std::max(stages, c.comm_ranks);
    }
    if (sends == 0 || r.step_means.steps == 0) continue;
    const double per_step = sends / static_cast<double>(r.step_means.steps);
    least = ranks == 0 ? per_step : std::min(least, per_step);
    busy += r.step_means.compute_ns;
    ++ranks;
  }
  if (ranks < 2 || stages < 2 || least < 1) return;
  Pipeline p;
  p.stages = stages;
  p.microbatches = static_cast<int>(least + 0.5);
  p.bubble = 1 - busy / static_cast<double>(ranks) / step_ns;
  p.least_bubble = static_cast<double>(p.stages - 1) / (p.microbatches + p.stages - 1);
  out.pipeline = p;
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

CommunicationReport CommunicationOf(const Report& report, const model::StepSpread& spread,
                                    std::optional<double> link_peak) {
  CommunicationReport out;
  double steps = 0;
  double weight = 0;
  for (const RankReport& r : report.ranks) {
    const StepMeans& m = r.step_means;
    if (m.steps == 0) continue;
    steps = std::max(steps, static_cast<double>(m.steps));
    out.step_ns += m.total_ns;
    out.compute_ns += m.compute_ns;
    out.comm_ns += m.comm_ns;
    out.exposed_ns += m.exposed_comm_ns;
    out.waited_ns += r.caused.per_step_ns;
    const bool first = weight == 0;
    out.transfer_ns = first ? m.comm_ns : std::min(out.transfer_ns, m.comm_ns);
    out.exposed_transfer_ns =
        first ? m.exposed_comm_ns : std::min(out.exposed_transfer_ns, m.exposed_comm_ns);
    weight += 1;
  }
  if (weight > 0) {
    for (double* sum : {&out.step_ns, &out.compute_ns, &out.comm_ns, &out.exposed_ns}) *sum /= weight;
    // Each call's waiting was put down to one rank, as the mean over the others.
    out.waited_ns *= (weight - 1) / weight;
  }
  // Who waits least may change from step to step.
  if (const model::StepSpread::Means least = spread.Summarize(); least.steps > 0) {
    out.transfer_ns = std::min(out.transfer_ns, least.least_comm_ns);
    out.exposed_transfer_ns = std::min(out.exposed_transfer_ns, least.least_exposed_ns);
  }
  if (link_peak.has_value()) {
    out.link_peak = link_peak;
    out.link_peak_source = "--link-peak";
  } else if (report.conditions.hosts.size() == 1) {
    std::set<std::string> names;
    for (const DeviceCondition& d : report.conditions.devices) names.insert(d.name);
    if (names.size() == 1) out.link_peak = KnownLinkPeak(*names.begin());
    if (out.link_peak.has_value()) out.link_peak_source = "NVLink of " + *names.begin();
  }
  FindPattern(report, out);
  if (steps > 0) {
    FindBuckets(report, steps, out);
    FindPipeline(report, out.step_ns, out);
  }
  return out;
}

}  // namespace gpuprobe::analysis
