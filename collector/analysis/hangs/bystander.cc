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

Bystanders::Bystanders(const model::JobModel& job) {
  for (const auto& process : job.processes()) {
    const v1::Identity& id = process->identity();
    any_rank_ = any_rank_ || HasRank(id);
    if (UsedNoDevice(*process)) continue;
    of_host_[id.host()].push_back(process.get());
    if (HasRank(id)) of_rank_[{id.host(), id.rank()}].push_back(process.get());
  }
}

bool Bystanders::Has(const ProcessModel& process) const {
  if (!UsedNoDevice(process)) return false;
  const v1::Identity& id = process.identity();
  const auto any_at_work = [&process](const auto& workers, const auto& key) {
    const auto found = workers.find(key);
    return found != workers.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const ProcessModel* other) { return WasThereAt(*other, StartNs(process)); });
  };
  if (HasRank(id)) return any_at_work(of_rank_, std::pair(id.host(), id.rank()));
  if (any_rank_) return true;
  // It may have used a device, and died before it could say so.
  const bool unheard =
      process.totals().batches == 0 && (process.end_state() == model::EndState::kCutOff ||
                                        process.end_state() == model::EndState::kCollectorLeft);
  return !unheard && any_at_work(of_host_, id.host());
}

}  // namespace gpuprobe::analysis
