#include "collector/analysis/communication/collective_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/communication/exchanges.h"
#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"
#include "collector/model/statistics/whole_number.h"

namespace gpuprobe::analysis {
namespace {

// Sums that can be added over ranks before they become bandwidths.
struct Gathered {
  CollectiveReport report;
  model::Distribution time_ns;
  // Of the plans that bandwidths are computed from.
  uint64_t measured_ns = 0;
  double algorithm_bytes = 0;
  double bus_bytes = 0;
  uint64_t wait_ns = 0;
  uint64_t transfers = 0;
  uint64_t transfer_ns = 0;
  double transfer_bus_bytes = 0;
  model::SteadyTransfers::Sums steady;
  double plans_per_step = 0;  // of each rank, summed
};

void Add(const model::SteadyTransfers::Sums& from, model::SteadyTransfers::Sums& into) {
  into.calls += from.calls;
  into.transfer_ns += from.transfer_ns;
  into.transfer_squares += from.transfer_squares;
  into.waited_ns += from.waited_ns;
}

SteadyCalls ConcludeSteady(const model::SteadyTransfers::Sums& sums) {
  SteadyCalls s{.compared = sums.calls};
  if (sums.calls == 0) return s;
  const auto n = static_cast<double>(sums.calls);
  s.transfer_ns = static_cast<double>(sums.transfer_ns) / n;
  s.wait_ns = static_cast<double>(sums.waited_ns) / n;
  const double squares = static_cast<double>(sums.transfer_squares) - s.transfer_ns * s.transfer_ns * n;
  if (sums.calls > 1) s.transfer_std_ns = std::sqrt(std::max(squares, 0.0) / (n - 1));
  return s;
}

// What all plans of the series moved, by `bytes_of` a part.
template <typename BytesOf>
MovedBytes MovedBytesOfSeries(const model::ProcessModel& process, const model::CollectiveSeries& series,
                              int ranks, BytesOf bytes_of) {
  std::vector<PlanPart> plan;
  for (const model::CollectivePart& part : series.parts)
    plan.push_back({.op = process.String(part.op), .bytes = bytes_of(part)});
  // To every other rank and back, with or without what a rank has for itself. Of two ranks that is any
  // exchange, so there only a part for itself tells.
  const model::TransferShapes& shapes = series.shapes;
  const auto all = static_cast<uint32_t>(ranks);
  const bool to_all = shapes.with_itself ? shapes.peers >= all : all > 2 && shapes.mutual + 1 >= all;
  return MovedBytesOf(plan, ranks, to_all);
}

// The plans of a series without the first one, where there are others: their number, time and share of bytes.
// Plans of one series move the same, unless its sizes are mixed.
struct Measured {
  uint64_t plans = 0;
  uint64_t time_ns = 0;
  double share = 1;

  Measured(const model::CollectiveSeries& series, uint64_t all, uint64_t all_ns,
           const model::FirstPlan& first)
      : plans(all), time_ns(all_ns) {
    if (all < 2 || series.mixed_sizes) return;
    --plans;
    time_ns -= first.time_ns;
    share = static_cast<double>(plans) / static_cast<double>(all);
  }
};

Gathered Gather(const model::Member& member, const model::CollectiveSeries& series) {
  const model::ProcessModel& process = *member.process;
  Gathered g;
  CollectiveReport& r = g.report;
  const v1::Communicator* comm = process.FindCommunicator(series.comm);
  r.comm = comm != nullptr && comm->hash() != 0 ? CommName(comm->hash()) : "unknown";
  if (comm != nullptr && comm->name() != 0) r.comm_name = process.String(comm->name());
  r.comm_ranks = comm != nullptr ? comm->ranks() : 0;
  std::set<std::string> ops;
  for (const model::CollectivePart& part : series.parts) ops.emplace(process.String(part.op));
  r.op = absl::StrJoin(ops, "+");
  r.fused = series.calls_per_plan > 1;
  r.calls_per_plan = series.calls_per_plan;
  const int ranks = std::max(r.comm_ranks, 1);
  const double all_bytes =
      MovedBytesOfSeries(process, series, ranks, [](const auto& part) { return part.bytes; }).algorithm;
  const double plans = static_cast<double>(series.calls) / r.calls_per_plan;
  r.mixed_sizes = series.mixed_sizes;
  r.size_bytes = series.mixed_sizes || plans <= 0 ? 0 : model::WholeNumber(all_bytes / plans);
  r.calls = series.calls;
  r.failed_calls = series.failed_calls;
  r.untimed_calls = series.untimed_calls;
  r.unlaunched_calls = series.unlaunched_calls;
  r.bytes = series.bytes;
  r.element_bytes = series.mixed_elements ? 0 : series.element_bytes;
  const model::ComparedSeries& with_others = member.Compared(series);
  r.compared_plans = with_others.plans;
  for (const model::RanAs& how : series.ran_as)
    r.ran_as.push_back(
        {process.String(how.algorithm), process.String(how.protocol), how.channels, how.calls});
  g.time_ns = series.time_ns;
  const MovedBytes timed =
      MovedBytesOfSeries(process, series, ranks, [](const auto& part) { return part.timed_bytes; });
  const Measured measured(series, series.time_ns.count(), series.time_ns.total(), series.first);
  g.measured_ns = measured.time_ns;
  g.algorithm_bytes = timed.algorithm * measured.share;
  g.bus_bytes = timed.bus * measured.share;
  double timed_bytes = 0;
  for (const model::CollectivePart& part : series.parts) timed_bytes += static_cast<double>(part.timed_bytes);
  g.steady = with_others.steady.sums();
  g.plans_per_step = static_cast<double>(series.calls) / std::max(series.calls_per_plan, 1U) /
                     static_cast<double>(std::max<uint64_t>(member.steps().count(), 1));
  g.wait_ns = with_others.wait_ns;
  const Measured compared(series, with_others.plans, with_others.transfer_ns, with_others.first);
  g.transfers = compared.plans;
  g.transfer_ns = compared.time_ns;
  if (timed_bytes > 0)
    g.transfer_bus_bytes =
        static_cast<double>(with_others.transfer_bytes) * compared.share * (timed.bus / timed_bytes);
  return g;
}

CollectiveReport Conclude(const Gathered& g) {
  CollectiveReport r = g.report;
  std::stable_sort(r.ran_as.begin(), r.ran_as.end(),
                   [](const auto& a, const auto& b) { return a.calls > b.calls; });
  r.time_ns = g.time_ns.Summarize();
  // Without the number of ranks the factors are not known; 1e9 bytes per second is bytes per nanosecond.
  if (r.comm_ranks > 0 && g.measured_ns > 0) {
    r.algbw = g.algorithm_bytes / static_cast<double>(g.measured_ns);
    r.busbw = g.bus_bytes / static_cast<double>(g.measured_ns);
    if (g.transfer_ns > 0) r.transfer_busbw = g.transfer_bus_bytes / static_cast<double>(g.transfer_ns);
  }
  r.steady = ConcludeSteady(g.steady);
  r.steady.plans_per_step = g.plans_per_step;
  if (r.compared_plans > 0) {
    r.wait_ns = g.wait_ns;
    r.transfer_mean_ns = static_cast<double>(g.transfer_ns) / static_cast<double>(g.transfers);
  }
  return r;
}

void Absorb(Gathered& into, const Gathered& from) {
  CollectiveReport& r = into.report;
  r.calls += from.report.calls;
  r.failed_calls += from.report.failed_calls;
  r.untimed_calls += from.report.untimed_calls;
  r.unlaunched_calls += from.report.unlaunched_calls;
  r.bytes += from.report.bytes;
  if (from.report.element_bytes != r.element_bytes) r.element_bytes = 0;
  r.compared_plans += from.report.compared_plans;
  r.comm_ranks = std::max(r.comm_ranks, from.report.comm_ranks);
  for (const CollectiveReport::RanAs& how : from.report.ran_as) {
    const auto same =
        std::find_if(r.ran_as.begin(), r.ran_as.end(), [&](const CollectiveReport::RanAs& known) {
          return known.algorithm == how.algorithm && known.protocol == how.protocol &&
                 known.channels == how.channels;
        });
    if (same == r.ran_as.end()) {
      r.ran_as.push_back(how);
    } else {
      same->calls += how.calls;
    }
  }
  into.time_ns.Merge(from.time_ns);
  into.measured_ns += from.measured_ns;
  into.algorithm_bytes += from.algorithm_bytes;
  into.bus_bytes += from.bus_bytes;
  r.members.insert(r.members.end(), from.report.members.begin(), from.report.members.end());
  Add(from.steady, into.steady);
  into.plans_per_step += from.plans_per_step;
  into.wait_ns += from.wait_ns;
  into.transfers += from.transfers;
  into.transfer_ns += from.transfer_ns;
  into.transfer_bus_bytes += from.transfer_bus_bytes;
}

// Series that read alike are one entry (several local communicators may carry the same hash).
std::vector<CollectiveReport> Conclude(const std::map<CollectiveKey, Gathered>& gathered) {
  std::vector<CollectiveReport> out;
  out.reserve(gathered.size());
  for (const auto& [key, g] : gathered) out.push_back(Conclude(g));
  std::stable_sort(out.begin(), out.end(), [](const CollectiveReport& a, const CollectiveReport& b) {
    return a.time_ns.total > b.time_ns.total;
  });
  return out;
}

void GatherInto(std::map<CollectiveKey, Gathered>& all, const model::Member& member,
                const Exchanges* exchanges) {
  member.ForEachSeries([&](const model::CollectiveSeries& series) {
    Gathered g = Gather(member, series);
    if (exchanges != nullptr) g.report.transfers = exchanges->Of(*member.process, series);
    g.report.members = {member.index};
    const CollectiveKey key = KeyOf(g.report);
    const auto found = all.find(key);
    if (found == all.end()) {
      all.emplace(key, std::move(g));
    } else {
      Absorb(found->second, g);
    }
  });
}

// Sums over ranks become means, of those that have steps if any has.
void FillSteady(uint64_t steps, size_t ranks, std::vector<CollectiveReport>& collectives) {
  for (CollectiveReport& c : collectives) {
    c.steady.has_steps = steps > 0;
    c.steady.plans_per_step /= static_cast<double>(std::max<size_t>(ranks, 1));
  }
}

uint64_t SteadySteps(const model::Member& member) {
  return member.steps().count() - std::min(member.steps().warmup_count(), member.steps().count());
}

}  // namespace

CollectiveKey KeyOf(const CollectiveReport& collective) {
  return {collective.op, collective.comm, collective.mixed_sizes, collective.size_bytes,
          collective.calls_per_plan};
}

CollectiveKey KeyOf(const model::Member& member, const model::CollectiveSeries& series) {
  return KeyOf(Gather(member, series).report);
}

std::vector<CollectiveReport> CollectivesOf(const model::Member& member) {
  std::map<CollectiveKey, Gathered> all;
  GatherInto(all, member, nullptr);
  std::vector<CollectiveReport> out = Conclude(all);
  FillSteady(SteadySteps(member), 1, out);
  return out;
}

std::vector<CollectiveReport> CollectivesOf(const model::JobModel& job) {
  const Exchanges exchanges(job);
  std::map<CollectiveKey, Gathered> all;
  uint64_t steps = 0;
  size_t ranks = 0;
  for (const model::Member& member : job.ReportedMembers()) {
    GatherInto(all, member, &exchanges);
    steps = std::max(steps, SteadySteps(member));
    ranks += member.steps().count() > 0 ? 1 : 0;
  }
  std::vector<CollectiveReport> out = Conclude(all);
  FillSteady(steps, ranks == 0 ? job.processes().size() : ranks, out);
  for (CollectiveReport& c : out) {
    std::sort(c.members.begin(), c.members.end());
    c.members.erase(std::unique(c.members.begin(), c.members.end()), c.members.end());
    std::set<std::string> hosts;
    for (const uint32_t member : c.members) hosts.insert(job.processes()[member]->identity().host());
    c.hosts = static_cast<int>(hosts.size());
  }
  std::map<std::string, int> heard;
  for (const auto& [hash, comm] : job.issued().communicators())
    heard[CommName(hash)] = static_cast<int>(comm.heard);
  for (CollectiveReport& c : out) {
    const auto known = heard.find(c.comm);
    c.heard_ranks = known != heard.end() ? known->second : static_cast<int>(c.members.size());
  }
  return out;
}

}  // namespace gpuprobe::analysis
