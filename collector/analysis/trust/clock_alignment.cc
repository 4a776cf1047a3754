#include "collector/analysis/trust/clock_alignment.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "collector/analysis/median.h"
#include "collector/analysis/names.h"
#include "collector/analysis/root_of_squares.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/model/statistics/whole_number.h"

namespace gpuprobe::analysis {
namespace {

// Fewer points give no slope.
constexpr size_t kLeastWindows = 4;

struct Reached {
  uint32_t process = 0;
  ClockLine line;
  bool drift_known = true;
  uint64_t samples = 0;
};

}  // namespace

ClockLine FitClock(const std::vector<model::ClockLink::Window>& windows, uint64_t origin_ns) {
  const auto time = [&](const model::ClockLink::Window& w) {
    return static_cast<double>(static_cast<int64_t>(w.time_ns - origin_ns));
  };
  ClockLine line;
  if (windows.size() >= kLeastWindows) {
    std::vector<double> slopes;
    for (size_t i = 0; i < windows.size(); ++i) {
      for (size_t j = i + 1; j < windows.size(); ++j) {
        const double apart = time(windows[j]) - time(windows[i]);
        if (apart > 0)
          slopes.push_back(static_cast<double>(windows[j].ahead_ns - windows[i].ahead_ns) / apart);
      }
    }
    if (!slopes.empty()) line.drift = Median(slopes);
  }
  std::vector<double> rest;
  rest.reserve(windows.size());
  for (const auto& w : windows) rest.push_back(static_cast<double>(w.ahead_ns) - line.drift * time(w));
  line.ahead_ns = Median(rest);
  for (double& r : rest) r = std::abs(r - line.ahead_ns);
  line.residual_ns = kMadToSigma * Median(rest);
  return line;
}

namespace {

struct Reachable {
  uint32_t reference = 0;
  uint64_t origin_ns = 0;
  std::vector<Reached> processes;  // the reference first; empty: nothing could be aligned
};

int RankOf(const model::JobModel& job, uint32_t index) {
  const v1::Identity& id = job.processes()[index]->identity();
  return HasRank(id) ? id.rank() : INT32_MAX;
}

Reachable ReachFromReference(const model::JobModel& job) {
  Reachable result;
  const auto& processes = job.processes();
  // Sends and receives where nothing better is known of two ranks.
  std::map<std::pair<uint32_t, uint32_t>, const model::ClockLink*> links;
  for (const auto* known : {&job.comparison().clocks(), &job.comparison().pair_clocks()}) {
    for (const auto& [pair, link] : *known) links.try_emplace(pair, &link);
  }
  if (links.empty()) return result;
  uint64_t origin_ns = UINT64_MAX;
  std::map<uint32_t, std::vector<uint32_t>> neighbours;
  for (const auto& [pair, link] : links) {
    neighbours[pair.first].push_back(pair.second);
    neighbours[pair.second].push_back(pair.first);
  }
  uint32_t reference = neighbours.begin()->first;
  for (const auto& [index, list] : neighbours) {
    if (RankOf(job, index) < RankOf(job, reference)) reference = index;
  }
  for (const auto& [pair, link] : links) origin_ns = std::min(origin_ns, link->Windows().front().time_ns);

  std::vector<Reached> reached{{.process = reference, .line = {}, .drift_known = true, .samples = 0}};
  std::map<uint32_t, size_t> place{{reference, 0}};
  for (size_t i = 0; i < reached.size(); ++i) {
    const Reached from = reached[i];
    for (const uint32_t next : neighbours[from.process]) {
      if (place.contains(next)) continue;
      const bool forward = links.contains({from.process, next});
      const model::ClockLink& link =
          *(forward ? links.at({from.process, next}) : links.at({next, from.process}));
      const auto windows = link.Windows();
      ClockLine line = FitClock(windows, origin_ns);
      // One host has one clock. That its ranks leave a collective at different times is how it ends: kernels
      // of ranks that share a device take turns.
      if (processes[from.process]->identity().host() == processes[next]->identity().host())
        line = {.ahead_ns = 0, .drift = 0, .residual_ns = 0};
      const double sign = forward ? 1 : -1;
      line.ahead_ns = from.line.ahead_ns + sign * line.ahead_ns;
      line.drift = from.line.drift + sign * line.drift;
      line.residual_ns = RootOfSquares(from.line.residual_ns, line.residual_ns);
      place[next] = reached.size();
      reached.push_back({.process = next,
                         .line = line,
                         .drift_known = from.drift_known && windows.size() >= kLeastWindows,
                         .samples = link.samples()});
    }
  }
  result.reference = reference;
  result.origin_ns = origin_ns;
  result.processes = std::move(reached);
  return result;
}

}  // namespace

uint64_t AlignedClock::Align(uint64_t line_ns) const {
  line_ns -= clock_->SetForwardBefore(line_ns);
  if (line_.ahead_ns == 0 && line_.drift == 0) return line_ns;
  const auto since = static_cast<double>(static_cast<int64_t>(line_ns - origin_ns_));
  return line_ns -
         static_cast<uint64_t>(model::SignedWholeNumber(std::round(line_.ahead_ns + line_.drift * since)));
}

std::vector<AlignedClock> AlignedClocksOf(const model::JobModel& job) {
  const Reachable reachable = ReachFromReference(job);
  std::vector<AlignedClock> clocks;
  for (const auto& process : job.processes())
    clocks.emplace_back(process->clock(), ClockLine{}, reachable.origin_ns);
  for (const Reached& r : reachable.processes)
    clocks[r.process] = {job.processes()[r.process]->clock(), r.line, reachable.origin_ns};
  return clocks;
}

ClockReport ClockReportOf(const model::JobModel& job) {
  ClockReport report;
  const auto& processes = job.processes();
  const ProcessLabels labels(job);
  Reachable reachable = ReachFromReference(job);
  std::vector<Reached>& reached = reachable.processes;
  std::stable_sort(reached.begin(), reached.end(), [&](const Reached& a, const Reached& b) {
    return RankOf(job, a.process) < RankOf(job, b.process);
  });
  for (const Reached& r : reached) {
    ClockOffset offset;
    if (RankOf(job, r.process) != INT32_MAX) offset.rank = RankOf(job, r.process);
    offset.label = labels.Of(*processes[r.process]);
    offset.host = processes[r.process]->identity().host();
    offset.offset_ns = model::SignedWholeNumber(std::round(r.line.ahead_ns));
    if (r.drift_known) offset.drift_ppm = r.line.drift * 1e6;
    offset.residual_ns = r.line.residual_ns;
    offset.stepped_ns = processes[r.process]->ClockShift(UINT64_MAX) -
                        static_cast<int64_t>(processes[r.process]->SetBackAt(UINT64_MAX));
    offset.samples = r.samples;
    if (r.process == reachable.reference) report.reference = offset.label;
    report.ranks.push_back(std::move(offset));
  }
  return report;
}

}  // namespace gpuprobe::analysis
