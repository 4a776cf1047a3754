#include "collector/timeline/step_log.h"

#include <algorithm>

namespace gpuprobe::timeline {

namespace {

// Brings `steps` up to date with the model's last ones, which may have been re-evaluated.
void Renew(const model::StepTracker& tracker, std::vector<model::StepRecord>& steps) {
  const auto& recent = tracker.steps();
  if (recent.empty()) return;
  while (!steps.empty() && steps.back().index >= recent.front().index) steps.pop_back();
  steps.insert(steps.end(), recent.begin(), recent.end());
}

// Adds what is new.
void Extend(const model::StepTracker& tracker, std::vector<model::StepRecord>& steps) {
  const auto& recent = tracker.steps();
  if (!steps.empty() && steps.back().index >= recent.back().index) return;
  // The model decides what the first steps were waiting for, and which are warm-up, when it has seen more.
  if (recent.front().index == 0) return Renew(tracker, steps);
  const auto is_new = [&](const model::StepRecord& step) {
    return steps.empty() || step.index > steps.back().index;
  };
  const auto first_new = std::find_if(recent.begin(), recent.end(), is_new);
  steps.insert(steps.end(), first_new, recent.end());
}

}  // namespace

void StepLog::Watch(const model::ProcessModel& process) {
  for (size_t place = 0; place < process.device_steps().size(); ++place) {
    const model::StepTracker& tracker = process.device_steps().At(place).steps;
    if (!tracker.steps().empty()) Extend(tracker, watched_[{&process, place}]);
  }
}

void StepLog::Finish(const model::JobModel& job) {
  steps_.assign(job.members().size(), {});
  for (const model::Member& member : job.members()) {
    std::vector<model::StepRecord>& steps = steps_[member.number] =
        std::move(watched_[{member.process, member.place}]);
    Renew(member.steps(), steps);
    for (model::StepRecord& step : steps) {
      step.warmup = step.index < member.steps().warmup_count();
      step.index += static_cast<uint64_t>(job.comparison().alignment().Behind(member.number, step.index));
    }
  }
  watched_.clear();
}

const std::vector<model::StepRecord>& StepLog::Of(uint32_t member) const {
  static const std::vector<model::StepRecord> kNone;
  return member < steps_.size() ? steps_[member] : kNone;
}

}  // namespace gpuprobe::timeline
