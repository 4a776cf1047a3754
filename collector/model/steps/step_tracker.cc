#include "collector/model/steps/step_tracker.h"

#include <algorithm>
#include <utility>

#include "collector/model/steps/step_finder.h"
#include "collector/model/steps/work_roles.h"

namespace gpuprobe::model {

void StepTracker::SetMarker(const StepMarker& marker) {
  marker_ = marker;
  if (marker.kind() == StepMarker::Kind::kKernel) anchors_.BeginAtMarker();
}

void StepTracker::SwapSteps(StepTracker& other) {
  std::swap(*this, other);
  std::swap(tokens_, other.tokens_);
}

void StepTracker::RecordsSome() {
  some_ = true;
  ranges_.UseRecorded();
}

void StepTracker::AddRecorded(const RecordedStepRecord& step) {
  if (step.has_no_steps && !some_) {
    constexpr size_t kMostWindows = 64;
    anew_ns_.push_back(step.begin_ns);
    if (anew_ns_.size() > kMostWindows) anew_ns_.pop_front();
  }
  if (!some_ || step.has_no_steps || step.end_ns < step.begin_ns) return;
  if (step.wait_start_ns != 0 && step.wait_end_ns > step.wait_start_ns)
    AddBlocked(step.wait_start_ns, step.wait_end_ns);
  ranges_.AddRecorded(step);
}

void StepTracker::BeginAnewAt(uint64_t launch_ns) {
  bool anew = false;
  for (; !anew_ns_.empty() && launch_ns >= anew_ns_.front(); anew_ns_.pop_front()) anew = true;
  if (!anew || open_.empty()) return;
  if (ranges_.chosen()) {
    CutAtRanges(true);
  } else {
    CutAtAnchors(true);
  }
  CompletePending(0, true);
  ForgetBefore(open_.End());
  begins_anew_ = true;
}

void StepTracker::Add(const StepOperation& operation) {
  if (!anew_ns_.empty() && operation.launched) BeginAnewAt(operation.launch_ns);
  open_.Add(operation);
  if (!pending_.empty() && pending_.front().end_ns != 0 && operation.launched &&
      operation.launch_ns >= pending_.front().end_ns) {
    CompleteFirst();
  }
  if (ranges_.waiting()) CutAtRanges(false);
  if (!ranges_.chosen()) {
    if (scout_.looks()) {
      if (const auto better = scout_.Add(operation, anchors_.definition()); better.has_value())
        Revise(*better);
    }
    CutAtAnchors(false);
  }
  if (open_.size() > kMaxOpen) {
    CompletePending(0, true);
    ForgetBefore(open_.Begin() + kMaxOpen / 2);
    loss_ = true;  // a step that began in the forgotten part lacks it
  }
}

void StepTracker::CutAtAnchors(bool at_end) {
  const auto cut = [this](uint64_t begin, uint64_t end) { CutStep(begin, end); };
  const auto forget_before = [this](uint64_t position) { ForgetBefore(position); };
  const AnchorCutter::Work work{.open = open_,
                                .lossy = lossy_,
                                .marked = marker_.kind() != StepMarker::Kind::kNone,
                                .cut = cut,
                                .forget_before = forget_before};
  if (anchors_.knows_anchor()) {
    anchors_.Scan(work, at_end);
  } else if ((at_end ? !open_.empty() : anchors_.WantsSearch(open_.size())) &&
             marker_.kind() != StepMarker::Kind::kNvtx && anchors_.Search(work, at_end)) {
    if (!work.marked && !at_end) scout_.Begin(anchors_.definition(), open_.From(open_.Begin()));
    anchors_.Scan(work, at_end);
  }
}

void StepTracker::Revise(const StepDefinition& better) {
  learned_ = better;
  ++revisions_;
  anchors_.Adopt(better, open_.Begin());
  pending_.clear();
  restorer_ = StepRestorer();
  completed_ = CompletedSteps();
  placed_.clear();
  begin_error_ns_ = operations_ = lost_operations_ = 0;
  loss_ = false;
}

void StepTracker::AddRange(uint64_t id, uint64_t parent, uint64_t start_ns, uint64_t end_ns, uint32_t name_id,
                           std::string_view name) {
  const RangeMeanings::Meaning meaning = meanings_.Of(name_id, name, marker_, some_);
  meter_.AddRange(id, parent, end_ns,
                  meaning.phase.has_value() ? static_cast<uint8_t>(*meaning.phase) : PhaseRanges::kNone);
  if (meaning.input) meter_.AddInput(start_ns, end_ns);
  if (!meaning.step) return;
  if (marker_.kind() == StepMarker::Kind::kNvtx) {
    ranges_.AddMarked(start_ns, end_ns);
  } else {
    ranges_.Add(start_ns, end_ns, KindOfRange(name));
  }
}

void StepTracker::CutAtRanges(bool all) {
  ranges_.Cut(
      open_, all, [this] { return pending_.empty() ? open_.Begin() : pending_.back().end; },
      [this](uint64_t begin, uint64_t end, const RangeCutter::StepRange& range) {
        CutStep(begin, end, &range);
      });
}

void StepTracker::CutStep(uint64_t begin, uint64_t end, const RangeCutter::StepRange* range) {
  PendingStep next{.begin = begin, .end = end};
  next.after_others = std::exchange(begins_anew_, false);
  if (some_ && range != nullptr) {
    next.index = range->index;
    next.host_end_ns = range->end_ns;
    next.earlier_end_ns = range->earlier_end_ns;
    next.earlier_launch_ns = range->earlier_launch_ns;
    next.after_others = std::exchange(next_index_, range->index + 1) != range->index;
  }
  for (uint64_t i = begin; i < end && lossy_; ++i)
    next.lost += open_.At(i).work == WorkClass::kUnseen ? 1 : 0;
  next.left = next.lost;
  pending_.push_back(next);
  if (lossy_) RestoreLost(false);
  CompletePending(1, false);
  while (pending_.size() > kMaxPending) CompleteFirst();
  MeasureFirst();
}

void StepTracker::RestoreLost(bool all) {
  restorer_.Restore(open_, pending_,
                    {.usual_operations = anchors_.usual_operations(),
                     .begin_error_ns = begin_error_ns_,
                     .length_ns = statistics().total_ns},
                    all);
}

void StepTracker::MeasureFirst() {
  if (pending_.empty() || pending_.front().end_ns != 0 || pending_.front().left > 0) return;
  StepMeter::SetTimes(open_, pending_.front());
}

void StepTracker::CompletePending(size_t but, bool must) {
  while (pending_.size() > but && (must || pending_.front().left == 0)) CompleteFirst();
}

void StepTracker::CompleteFirst() {
  // Anything not restored by now never will be: the end is that of the work seen, which may be a whole gap
  // off.
  if (std::exchange(pending_.front().left, 0) > 0) pending_.front().end_error_ns = UINT64_MAX;
  MeasureFirst();
  const PendingStep step = pending_.front();
  pending_.pop_front();
  const auto own = static_cast<size_t>(step.end - step.begin);
  StepMeter::Measured measured = meter_.Measure(open_, step);
  StepRecord& record = measured.record;
  record.index = some_ ? step.index : count();
  record.lost = step.lost;
  record.error_ns = std::min(std::max(std::exchange(begin_error_ns_, step.end_error_ns), step.end_error_ns),
                             record.total_ns());
  record.incomplete = std::exchange(loss_, false) || step.lost > 0 || record.error_ns > 0;
  completed_.Add(record, {.operations = open_.From(step.begin),
                          .own = own,
                          .phases = measured.phases,
                          .host = measured.host.shares,
                          .annotated = measured.annotated});
  if (hands_on_)
    completed_since_.push_back({.record = record, .annotated = measured.annotated, .revision = revisions_});
  if (keeps_placed_) Place(record.index, open_.From(step.begin).first(own), measured.phases);
  operations_ += own;
  lost_operations_ += step.lost;
  ForgetBefore(step.end);
  MeasureFirst();
}

void StepTracker::AddCompleted(const Completed& step) {
  if (step.revision != revisions_) completed_ = CompletedSteps();
  revisions_ = step.revision;
  static const std::vector<StepPhase> kNoPhases;
  static const std::vector<HostShare> kNoShares;
  completed_.Add(
      step.record,
      {.operations = {}, .own = 0, .phases = kNoPhases, .host = kNoShares, .annotated = step.annotated});
}

void StepTracker::Place(uint64_t step, std::span<const StepOperation> operations,
                        std::span<const StepPhase> phases) {
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].work == WorkClass::kUnseen) continue;
    placed_.push_back({.start_ns = operations[i].start_ns,
                       .end_ns = operations[i].end_ns,
                       .step = step,
                       .phase = i < phases.size() ? phases[i] : StepPhase::kOther});
  }
}

void StepTracker::ForgetBefore(uint64_t position) {
  if (!open_.ForgetBefore(position)) return;
  anchors_.Forgot(position);
  meter_.Forget(open_);
}

void StepTracker::NoteLoss(bool launches) {
  loss_ = loss_ || launches;
  lossy_ = true;
}

void StepTracker::Finish(bool cut_off) {
  if (!ranges_.chosen() && !anchors_.knows_anchor()) ranges_.Choose(RangeCutter::kLeastRangesAtEnd);
  if (ranges_.chosen()) {
    CutAtRanges(true);
  } else {
    // Too late to begin again: the steps so far are all there are.
    if (const auto better = scout_.looks() ? scout_.Finish(anchors_.definition()) : std::nullopt;
        better.has_value()) {
      learned_ = better;
    }
    CutAtAnchors(true);
  }
  const bool open_ended = cut_off && !pending_.empty() && pending_.back().end == open_.End();
  if (open_ended && count() + pending_.size() > 1) pending_.pop_back();
  if (lossy_ && !pending_.empty()) RestoreLost(true);
  CompletePending(0, true);
  ForgetBefore(open_.End());
  completed_.Finish();
}

bool StepTracker::ShowsSteps(bool at_end) const {
  if (count() > 0 || ranges_.chosen() || anchors_.knows_anchor()) return true;
  const bool marked = marker_.kind() != StepMarker::Kind::kNone;
  return !open_.empty() && FindStepDefinition(open_.From(open_.Begin()), at_end, marked).has_value();
}

double StepTracker::confidence() const {
  if (count() == 0) return 0;
  const auto steps = static_cast<double>(count());
  const double lost =
      operations_ == 0 ? 0 : static_cast<double>(lost_operations_) / static_cast<double>(operations_);
  return anchors_.regular() * steps / (steps + 1) * (1 - lost);
}

bool StepTracker::IsConsistent() const {
  uint64_t end = open_.Begin();
  for (const PendingStep& step : pending_) {
    if (step.begin < end || step.end < step.begin || step.end > open_.End() || step.start_ns > step.end_ns)
      return false;
    if (step.lost > step.end - step.begin || step.left > step.lost) return false;
    end = step.end;
  }
  return anchors_.IsWithin(open_);
}

}  // namespace gpuprobe::model
