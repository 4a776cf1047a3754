#include "collector/analysis/hangs/bystander.h"

#include <algorithm>
#include <cstdint>

#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/analysis/names.h"

namespace gpuprobe::analysis {
namespace {

using model::ProcessModel;

bool UsedNoDevice(const ProcessModel& process) {
  return process.totals().launches == 0 && process.totals().kernels == 0 &&
         std::all_of(process.ledger().kinds().begin(), process.ledger().kinds().end(),
                     [](const auto& kind) { return kind.high_water_bytes == 0; });
}

uint64_t StartNs(const ProcessModel& process) { return process.hello().clock().realtime_ns(); }

bool WasThereAt(const ProcessModel& process, uint64_t time_ns) {
  if (StartNs(process) >= time_ns) return false;
  return process.end_state() == model::EndState::kConnected || LastHeardNs(process) >= time_ns;
}

}  // namespace

bool IsBystander(const ProcessModel& process, const model::JobModel& job) {
  if (!UsedNoDevice(process)) return false;
  // It may have used a device, and died before it could say so.
  const bool unheard =
      process.totals().batches == 0 && (process.end_state() == model::EndState::kCutOff ||
                                        process.end_state() == model::EndState::kCollectorLeft);
  const v1::Identity& id = process.identity();
  const bool ranked = HasRank(id);
  return std::any_of(job.processes().begin(), job.processes().end(), [&](const auto& other) {
    const v1::Identity& its = other->identity();
    if (!ranked && HasRank(its)) return true;
    if (ranked ? !HasRank(its) || its.rank() != id.rank() : unheard) return false;
    return its.host() == id.host() && WasThereAt(*other, StartNs(process)) && !UsedNoDevice(*other);
  });
}

}  // namespace gpuprobe::analysis
