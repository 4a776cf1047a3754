#include "collector/analysis/finding_place.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace gpuprobe::analysis {
namespace {

constexpr double kNsPerS = 1e9;

}  // namespace

FindingPlace PlaceOf(const Report& report, const Finding& finding) {
  FindingPlace place;
  const FindingSubject& about = finding.about;
  std::set<std::string> hosts;
  std::set<std::string> gpus;
  for (const RankReport& rank : report.ranks) {
    if (!rank.rank.has_value() ||
        std::find(about.ranks.begin(), about.ranks.end(), *rank.rank) == about.ranks.end())
      continue;
    hosts.insert(rank.host);
    for (const DeviceCondition& device : report.conditions.devices) {
      if (device.host == rank.host && rank.device == device.ordinal) gpus.insert(device.uuid);
    }
  }
  place.hosts.assign(hosts.begin(), hosts.end());
  place.gpu_uuids.assign(gpus.begin(), gpus.end());
  if (!finding.cost_ns_per_step.has_value() || !report.steps.has_value()) return place;
  const uint64_t steps = report.steps->count;
  const uint64_t first = std::min(about.first_step.value_or(0), steps);
  const uint64_t end = std::min(about.last_step.has_value() ? *about.last_step + 1 : steps, steps);
  const uint64_t affected = end > first ? end - first : 0;
  place.lost_gpu_seconds = *finding.cost_ns_per_step / kNsPerS * static_cast<double>(affected) *
                           static_cast<double>(report.ranks.size());
  return place;
}

double GpuSecondsOf(const Report& report) {
  double seconds = 0;
  for (const RankReport& rank : report.ranks) seconds += static_cast<double>(rank.duration_ns) / kNsPerS;
  return seconds;
}

std::map<std::string, std::map<std::string, double>> GpuSecondsByPlace(const Report& report) {
  std::map<std::pair<std::string, uint32_t>, std::string> uuids;
  for (const DeviceCondition& device : report.conditions.devices)
    uuids[{device.host, device.ordinal}] = device.uuid;
  std::map<std::string, std::map<std::string, double>> seconds;
  for (const RankReport& rank : report.ranks) {
    const std::string uuid = rank.device.has_value() ? uuids[{rank.host, *rank.device}] : "";
    seconds[rank.host][uuid] += static_cast<double>(rank.duration_ns) / kNsPerS;
  }
  return seconds;
}

}  // namespace gpuprobe::analysis
