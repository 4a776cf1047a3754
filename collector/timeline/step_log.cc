#include "collector/timeline/step_log.h"

#include <algorithm>

namespace gpuprobe::timeline {

namespace {

// Brings `steps` up to date with the model's last ones, which may have been judged anew.
void Renew(const model::StepTracker& tracker, std::vector<model::StepRecord>& steps) {
  const auto& recent = tracker.steps();
  if (recent.empty()) return;
  while (!steps.empty() && steps.back().index >= recent.front().index) steps.pop_back();
  steps.insert(steps.end(), recent.begin(), recent.end());
}

}  // namespace

void StepLog::Watch(const model::ProcessModel& process) {
  const auto& recent = process.steps().steps();
  if (recent.empty()) return;
  std::vector<model::StepRecord>& steps = watched_[&process];
  if (!steps.empty() && steps.back().index >= recent.back().index) return;
  // The model decides what the first steps were waiting for, and which are warm-up, when it has seen more.
  if (recent.front().index == 0) return Renew(process.steps(), steps);
  const auto is_new = [&](const model::StepRecord& step) {
    return steps.empty() || step.index > steps.back().index;
  };
  const auto first_new = std::find_if(recent.begin(), recent.end(), is_new);
  steps.insert(steps.end(), first_new, recent.end());
}

void StepLog::Finish(const model::JobModel& job) {
  const auto& processes = job.processes();
  steps_.assign(processes.size(), {});
  for (uint32_t i = 0; i < processes.size(); ++i) {
    const model::ProcessModel& process = *processes[i];
    std::vector<model::StepRecord>& steps = steps_[i] = std::move(watched_[&process]);
    Renew(process.steps(), steps);
    for (model::StepRecord& step : steps) {
      step.warmup = step.index < process.steps().warmup_count();
      step.index += static_cast<uint64_t>(job.comparison().alignment().Behind(i, step.index));
    }
  }
  watched_.clear();
}

const std::vector<model::StepRecord>& StepLog::Of(uint32_t index) const {
  static const std::vector<model::StepRecord> kNone;
  return index < steps_.size() ? steps_[index] : kNone;
}

}  // namespace gpuprobe::timeline
