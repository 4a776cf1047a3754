#include "collector/model/steps/completed_steps.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::model {

void CompletedSteps::KnowWarmup(uint64_t steps) {
  warmup_known_ = true;
  warmup_count_ = steps;
}

void CompletedSteps::MarkWarmup(StepRecord& step) {
  step.warmup = true;
  step.pause_ns += step.input_ns;
  step.input_ns = 0;
  uint64_t& input_ns = step.phase_ns[static_cast<size_t>(StepPhase::kInput)];
  step.phase_ns[static_cast<size_t>(StepPhase::kOther)] += input_ns;
  input_ns = 0;
}

void CompletedSteps::Add(const StepRecord& record, const Content& content) {
  const bool warmup = IsWarmup();
  if (!record.incomplete && !warmup) {
    const std::optional<uint64_t> early = warmup_known_ ? std::nullopt : std::optional(counted_);
    communication_.AddStep(content.operations, content.own, content.phases, record, early);
    work_.AddStep(content.operations.first(content.own), record.total_ns(), counted_, early.has_value());
    work_columns_.AddStep(content.operations.first(content.own), content.phases, record.index);
  }
  steps_.push_back(record);
  ++counted_;
  series_.At(record.index).Add(record);
  if (steps_.size() > kKept) steps_.pop_front();
  if (warmup) return MarkWarmup(steps_.back());
  if (warmup_known_) {
    if (!steady_runs_.from_ns().has_value()) steady_runs_.SteadyFrom(record.start_ns);
    Count(counted_ - 1, steps_.back(), content.annotated, content.host);
    return;
  }
  steady_runs_.Add(record.start_ns, record.end_ns, record.total_ns());
  early_.push_back({.nvtx_phases = content.annotated,
                    .input_ns = record.input_ns,
                    .pause_ns = record.pause_ns,
                    .input_phase_ns = record.phase_ns[static_cast<size_t>(StepPhase::kInput)],
                    .other_phase_ns = record.phase_ns[static_cast<size_t>(StepPhase::kOther)],
                    .host = content.host});
  if (early_.size() >= kFirstWarmupLook) LookForWarmup();
  if (early_.size() >= kWarmupLook) EndWarmupSearch();
}

void CompletedSteps::Count(uint64_t ordinal, const StepRecord& record, bool nvtx_phases,
                           std::span<const HostShare> host) {
  if (record.incomplete) {
    ++statistics_.incomplete;
  } else {
    statistics_.Add(record, nvtx_phases);
    blocks_.Add(ordinal, record);
    host_places_.Add(record.index, host);
  }
}

void CompletedSteps::LookForWarmup() {
  // Only the first steps of all are here: none has left the ring yet.
  const size_t length = WarmupLength(steps_);
  if (length != warmup_count_ || early_counted_ == 0) {
    warmup_count_ = length;
    early_counted_ = length;
    statistics_ = StepStatistics();
    blocks_ = StepBlocks();
    host_places_ = HostPlaces();
    for (size_t i = 0; i < steps_.size(); ++i) {
      StepRecord& step = steps_[i];
      const EarlyStep& early = early_[i];
      step.warmup = false;
      step.input_ns = early.input_ns;
      step.pause_ns = early.pause_ns;
      step.phase_ns[static_cast<size_t>(StepPhase::kInput)] = early.input_phase_ns;
      step.phase_ns[static_cast<size_t>(StepPhase::kOther)] = early.other_phase_ns;
      if (i < length) MarkWarmup(step);
    }
  }
  for (; early_counted_ < steps_.size(); ++early_counted_)
    Count(early_counted_, steps_[early_counted_], early_[early_counted_].nvtx_phases,
          early_[early_counted_].host);
}

void CompletedSteps::EndWarmupSearch() {
  communication_.KeepFrom(warmup_count_);
  work_.KeepFrom(warmup_count_);
  steady_runs_.KeepFrom(warmup_count_ < steps_.size() ? steps_[warmup_count_].start_ns : 0);
  early_ = {};
  warmup_known_ = true;
}

void CompletedSteps::Finish() {
  if (std::exchange(finished_, true)) return;
  if (!warmup_known_ && !steps_.empty()) {
    LookForWarmup();
    EndWarmupSearch();
  }
  if (!steady_runs_.from_ns().has_value()) steady_runs_.KeepFrom(0);
  if (statistics_.total_ns.count() >= kLeastWhole) return;
  statistics_.estimated = statistics_.incomplete > 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const StepRecord& step = steps_[i];
    if (!step.incomplete || step.warmup) continue;
    statistics_.Add(step, statistics_.nvtx_phases > 0);
    blocks_.Add(counted_ - steps_.size() + i, step);
  }
}

std::optional<uint64_t> CompletedSteps::StepAt(uint64_t time_ns) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), time_ns,
                       [](uint64_t time, const StepRecord& step) { return time < step.start_ns; });
  if (after == steps_.begin()) return std::nullopt;
  const StepRecord& step = *std::prev(after);
  return time_ns < step.end_ns ? std::optional(step.index) : std::nullopt;
}

}  // namespace gpuprobe::model
