#include "collector/analysis/communication/network_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/communication/link_model.h"
#include "collector/analysis/comparison/run_series.h"
#include "collector/analysis/level_change.h"
#include "collector/analysis/median.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/statistics/whole_number.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

using Hosts = std::set<std::string>;

// NVIDIA's DGX systems (user guides): DGX-1 V100 4 x 100 Gbit/s, DGX A100 8 x 200, DGX H100, H200, and B200
// 8 x 400.
constexpr ReferenceNetwork kReferenceNetworks[] = {{"V100-SXM", 4, 12.5},     {"A100-SXM", 8, 25},
                                                   {"H100 80GB HBM3", 8, 50}, {"H100-SXM", 8, 50},
                                                   {"H200", 8, 50},           {"B200", 8, 50}};

// One kind of transfer on one communicator: between hosts, or in a job on one host, within it.
struct Link {
  std::string op;
  uint64_t size_bytes = 0;
  int ranks = 0;
  double bus_bytes = 0;
  double calls = 0;
  Hosts hosts;
  uint64_t hash = 0;
  TimedTransfers times;
  double level_ns = 0;  // at the end of the run
};

Hosts HostsOf(const model::JobModel& job, uint64_t hash) {
  Hosts hosts;
  for (const auto& process : job.processes()) {
    for (const auto& [id, comm] : process->communicators()) {
      if (comm.hash() == hash) hosts.insert(process->identity().host());
    }
  }
  return hosts;
}

std::vector<Link> LinksOf(const model::JobModel& job, size_t least_hosts) {
  std::map<uint64_t, Hosts> hosts;
  std::vector<Link> out;
  for (const model::RankComparison::Transfers& t : job.comparison().transfers()) {
    // A plan of several operations has a kernel of its own kind.
    if (t.bytes_of_op.size() != 1 || t.ranks < 2 || t.time_ns.count() == 0) continue;
    const auto [known, added] = hosts.try_emplace(t.hash);
    if (added) known->second = HostsOf(job, t.hash);
    if (known->second.size() < least_hosts) continue;
    const auto& [op, bytes] = *t.bytes_of_op.begin();
    const MovedBytes moved = MovedBytesOf(op, bytes, t.ranks);
    Link link{.op = op,
              .size_bytes = model::WholeNumber(moved.algorithm),
              .ranks = t.ranks,
              .bus_bytes = moved.bus,
              .calls = static_cast<double>(t.time_ns.count()),
              .hosts = known->second,
              .hash = t.hash,
              .times = TimedTransfersOf(job, t.blocks)};
    if (link.times.transfer_ns.empty() || link.bus_bytes <= 0) continue;
    out.push_back(std::move(link));
  }
  return out;
}

// By what a byte takes more: latency, which grows with ranks, says nothing about the rate.
double RateOf(const std::vector<const Link*>& links) {
  std::vector<TransferPoint> points;
  const Link* largest = links.front();
  const Link* smallest = links.front();
  for (const Link* link : links) {
    points.push_back({link->bus_bytes, UpperMedian(link->times.transfer_ns), link->calls});
    if (link->bus_bytes > largest->bus_bytes) largest = link;
    if (link->bus_bytes < smallest->bus_bytes) smallest = link;
  }
  constexpr double kApart = 4;  // sizes: closer ones say little about a slope
  if (largest->bus_bytes >= kApart * smallest->bus_bytes) {
    const AlphaBeta fit = FitAlphaBeta(points);
    if (fit.ns_per_byte > 0) return 1 / fit.ns_per_byte;
  }
  // With what a slow network's latency is at most, for each step of a ring.
  constexpr double kLatencyNs = 10'000;
  const double time_ns = UpperMedian(largest->times.transfer_ns);
  const double latency_ns = 2.0 * (largest->ranks - 1) * kLatencyNs;
  return time_ns > 2 * latency_ns ? largest->bus_bytes / (time_ns - latency_ns) : 0;
}

// A ring enters and leaves each host once for every rank that it has there, as far as there are adapters.
double ReferenceRate(const ReferenceNetwork& reference, const Link& link) {
  const auto hosts = static_cast<int>(link.hosts.size());
  const int of_host = (link.ranks + hosts - 1) / hosts;
  return reference.gbytes_per_s * std::clamp(of_host, 1, reference.adapters);
}

// The rate of the communicator that comes nearest to the reference design.
void FindRate(const std::vector<Link>& links, const Report& report, NetworkReport& out) {
  std::set<std::string> names;
  for (const DeviceCondition& d : report.conditions.devices) names.insert(d.name);
  std::optional<ReferenceNetwork> reference;
  if (names.size() == 1) reference = ReferenceNetworkOf(*names.begin());
  if (reference.has_value()) out.device = *names.begin();
  std::map<std::pair<uint64_t, std::string>, std::vector<const Link*>> by_operation;
  for (const Link& link : links) by_operation[{link.hash, link.op}].push_back(&link);
  double best = 0;
  for (const auto& [key, of] : by_operation) {
    const double rate = RateOf(of);
    const double peak = reference.has_value() ? ReferenceRate(*reference, *of.front()) : 1;
    if (rate / peak <= best) continue;
    best = rate / peak;
    out.gbytes_per_s = rate;
    if (reference.has_value()) out.reference_gbytes_per_s = peak;
  }
}

NetworkReport::Slow SlowOf(const Link& link, double usual_ns, double slow_ns) {
  NetworkReport::Slow slow;
  slow.op = link.op;
  slow.size_bytes = link.size_bytes;
  slow.comm_ranks = link.ranks;
  slow.usual_ns = usual_ns;
  slow.slow_ns = slow_ns;
  return slow;
}

// The step of a call, as its rank counts.
std::optional<uint64_t> StepAt(const model::JobModel& job, const model::CallBlocks::First& first) {
  if (first.end_ns == 0) return std::nullopt;
  return job.processes()[first.process]->steps().StepAt(first.end_ns - 1);
}

// Most of the time that all transfers take must change with it.
void FindChangeInTime(const model::JobModel& job, const std::vector<Link>& links, NetworkReport& out) {
  double changed_ns = 0;
  double all_ns = 0;
  const Link* most = nullptr;
  double most_ns = 0;
  LevelChange most_change;
  for (const Link& link : links) {
    const double time_ns = link.calls * link.level_ns;
    all_ns += time_ns;
    const std::optional<LevelChange> change = LevelChangeOf(link.times.transfer_ns, thresholds::kSlowedRatio);
    if (!change.has_value() || change->after < change->before) continue;
    changed_ns += time_ns;
    if (time_ns <= most_ns) continue;
    most = &link;
    most_ns = time_ns;
    most_change = *change;
  }
  if (most == nullptr || 2 * changed_ns < all_ns) return;
  out.slow = SlowOf(*most, most_change.before, most_change.after);
  out.slow->since_step = StepAt(job, most->times.first[most_change.place]);
}

// Among communicators that differ only in their hosts, compares the slow ones with the fastest.
void FindSlowHosts(const std::vector<Link>& links, NetworkReport& out) {
  std::map<std::tuple<std::string, uint64_t, int, size_t>, std::vector<const Link*>> alike;
  for (const Link& link : links)
    alike[{link.op, link.size_bytes, link.ranks, link.hosts.size()}].push_back(&link);
  std::optional<Hosts> suspects;
  Hosts fast_hosts;
  const Link* example = nullptr;
  double example_usual_ns = 0;
  double example_ns = 0;
  for (const auto& [key, of] : alike) {
    const auto least = [](const Link* x, const Link* y) { return x->level_ns < y->level_ns; };
    const double usual_ns = (*std::min_element(of.begin(), of.end(), least))->level_ns;
    const double most_ns = (*std::max_element(of.begin(), of.end(), least))->level_ns;
    if (most_ns < thresholds::kSlowedRatio * usual_ns) continue;  // distinguishes nobody
    for (const Link* link : of) {
      if (link->level_ns < thresholds::kSlowedRatio * usual_ns) {
        fast_hosts.insert(link->hosts.begin(), link->hosts.end());
        continue;
      }
      if (!suspects.has_value()) {
        suspects = link->hosts;
      } else {
        std::erase_if(*suspects, [&](const std::string& host) { return !link->hosts.contains(host); });
      }
      if (link->calls * link->level_ns <= example_ns) continue;
      example = link;
      example_ns = link->calls * link->level_ns;
      example_usual_ns = usual_ns;
    }
  }
  if (!suspects.has_value()) return;
  std::erase_if(*suspects, [&](const std::string& host) { return fast_hosts.contains(host); });
  if (suspects->empty()) return;
  if (!out.slow.has_value()) out.slow = SlowOf(*example, example_usual_ns, example->level_ns);
  out.slow->elsewhere_ns = example_usual_ns;
  out.slow->elsewhere_slow_ns = example->level_ns;
  out.slow->hosts.assign(suspects->begin(), suspects->end());
}

}  // namespace

std::optional<ReferenceNetwork> ReferenceNetworkOf(std::string_view device_name) {
  for (const ReferenceNetwork& reference : kReferenceNetworks) {
    if (device_name.find(reference.name) != std::string_view::npos) return reference;
  }
  return std::nullopt;
}

std::optional<NetworkReport> NetworkOf(const Report& report, const model::JobModel& job) {
  const bool one_host = report.conditions.hosts.size() < 2;
  std::vector<Link> links = LinksOf(job, one_host ? 1 : 2);
  if (links.empty()) return std::nullopt;
  for (Link& link : links) {
    const std::optional<LevelChange> change = LevelChangeOf(link.times.transfer_ns, thresholds::kSlowedRatio);
    link.level_ns = change.has_value() ? change->after : UpperMedian(link.times.transfer_ns);
  }
  NetworkReport out;
  out.hosts = static_cast<int>(report.conditions.hosts.size());
  FindChangeInTime(job, links, out);
  if (one_host) return out.slow.has_value() ? std::optional(out) : std::nullopt;
  FindRate(links, report, out);
  FindSlowHosts(links, out);
  return out;
}

}  // namespace gpuprobe::analysis
