#include "collector/model/memory/level_peaks.h"

#include <algorithm>

namespace gpuprobe::model {

void LevelPeaks::Add(uint64_t time_ns, uint64_t level) {
  if (!changes_.empty()) time_ns = std::max(time_ns, changes_.back().first);
  changes_.emplace_back(time_ns, level);
  if (changes_.size() > kMaxChanges) changes_.pop_front();
}

uint64_t LevelPeaks::Highest(uint64_t from_ns, uint64_t to_ns) const {
  auto at = std::upper_bound(changes_.begin(), changes_.end(), from_ns,
                             [](uint64_t time, const auto& change) { return time < change.first; });
  uint64_t highest = at == changes_.begin() ? 0 : std::prev(at)->second;
  for (; at != changes_.end() && at->first < to_ns; ++at) highest = std::max(highest, at->second);
  return highest;
}

void LevelPeaks::EndStep(const HostPhases& step) {
  // The level before the oldest change that is kept is not known.
  if (changes_.empty() || changes_.front().first > step.begin_ns || step.changes.empty()) return;
  ByPhase by_phase;
  for (size_t i = 0; i < step.changes.size(); ++i) {
    const auto& [from_ns, phase] = step.changes[i];
    const uint64_t to_ns = i + 1 < step.changes.size() ? step.changes[i + 1].first : step.end_ns;
    std::optional<uint64_t>& highest = by_phase[static_cast<size_t>(phase)];
    highest = std::max(highest.value_or(0), Highest(from_ns, to_ns));
  }
  AddStep(Highest(step.begin_ns, step.end_ns), by_phase);
  // The last change before the step's end says at what level the next one begins.
  while (changes_.size() > 1 && changes_[1].first <= step.end_ns) changes_.pop_front();
}

void LevelPeaks::AddStep(uint64_t highest, const ByPhase& by_phase) {
  step_peak_bytes_.Add(highest);
  for (size_t i = 0; i < kStepPhases; ++i) {
    if (!by_phase[i].has_value()) continue;
    ++phases_[i].steps;
    phases_[i].sum_bytes += *by_phase[i];
    phases_[i].peak_bytes = std::max(phases_[i].peak_bytes, *by_phase[i]);
  }
}

}  // namespace gpuprobe::model
