#include "collector/model/step_tracker.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "collector/model/warmup.h"
#include "collector/model/work_roles.h"

namespace gpuprobe::model {
namespace {

// Ranges of one kind that make it the program's steps; one may be anything.
constexpr size_t kLeastRanges = 3;
constexpr size_t kLeastRangesAtEnd = 2;
// The kind of all ranges that the user's marker names, whatever they are called.
constexpr char kMarkedKind[] = "marked";
// The kind of the steps that the probe reports, where it records only some.
constexpr char kRecordedKind[] = "recorded";

// So many operations after the anchors are looked at for the next step's beginning.
uint64_t BeginLook(const StepDefinition& definition) {
  constexpr uint64_t kFurther = 16;
  return 2 * uint64_t{definition.tail} + kFurther;
}

// The last moment before a clock was set `by_ns` forward, between two times: nothing at all happened for so
// long then. nullopt: no such gap.
std::optional<uint64_t> FindClockStep(std::span<const StepOperation> operations, uint64_t begin_ns,
                                      uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
  constexpr uint64_t kReadingErrorNs = 100'000;  // in the clock readings that show by how much
  std::vector<uint64_t> times{begin_ns};         // the work before ended then
  for (const StepOperation& o : operations) {
    for (const uint64_t time_ns : {o.launch_ns, o.start_ns, o.end_ns}) {
      if (time_ns + by_ns >= from_ns && time_ns <= to_ns + by_ns) times.push_back(time_ns);
    }
  }
  std::sort(times.begin(), times.end());
  std::optional<uint64_t> found;
  uint64_t narrowest_ns = UINT64_MAX;
  for (size_t i = 1; i < times.size(); ++i) {
    const uint64_t gap_ns = times[i] - times[i - 1];
    if (gap_ns + kReadingErrorNs < by_ns || gap_ns >= narrowest_ns || times[i] < from_ns) continue;
    narrowest_ns = gap_ns;
    found = times[i - 1];
  }
  return found;
}

}  // namespace

StepStatistics::StepStatistics() { phase_ns.fill(Distribution(kExactLimit)); }

void StepStatistics::Add(const StepRecord& record, bool nvtx_phases_known) {
  total_ns.Add(record.total_ns());
  compute_ns.Add(record.compute_ns);
  comm_ns.Add(record.comm_ns);
  exposed_comm_ns.Add(record.exposed_comm_ns);
  overlapped_comm_ns.Add(record.overlapped_comm_ns());
  copy_ns.Add(record.copy_ns);
  idle_ns.Add(record.idle_ns);
  host_bound_ns.Add(record.host_bound_ns);
  input_ns.Add(record.input_ns);
  sync_ns.Add(record.sync_ns);
  launch_gap_ns.Add(record.launch_gap_ns);
  unknown_ns.Add(record.unknown_ns);
  for (size_t i = 0; i < kStepPhases; ++i) phase_ns[i].Add(record.phase_ns[i]);
  nvtx_phases += nvtx_phases_known ? 1 : 0;
}

void StepStatistics::Merge(const StepStatistics& other) {
  total_ns.Merge(other.total_ns);
  compute_ns.Merge(other.compute_ns);
  comm_ns.Merge(other.comm_ns);
  exposed_comm_ns.Merge(other.exposed_comm_ns);
  overlapped_comm_ns.Merge(other.overlapped_comm_ns);
  copy_ns.Merge(other.copy_ns);
  idle_ns.Merge(other.idle_ns);
  host_bound_ns.Merge(other.host_bound_ns);
  input_ns.Merge(other.input_ns);
  sync_ns.Merge(other.sync_ns);
  launch_gap_ns.Merge(other.launch_gap_ns);
  unknown_ns.Merge(other.unknown_ns);
  for (size_t i = 0; i < kStepPhases; ++i) phase_ns[i].Merge(other.phase_ns[i]);
  incomplete += other.incomplete;
  nvtx_phases += other.nvtx_phases;
  estimated = estimated || other.estimated;
}

StepTracker::Token StepTracker::TokenOf(uint64_t coarse, uint64_t fine) {
  const auto id_of = [this](uint64_t hash, uint32_t otherwise) {
    if (const auto found = tokens_.find(hash); found != tokens_.end()) return found->second;
    if (tokens_.size() >= kMaxTokens) return otherwise;
    return tokens_.emplace(hash, static_cast<uint32_t>(tokens_.size()) + 1).first->second;
  };
  Token token;
  token.coarse = id_of(coarse, 0);
  token.fine = id_of(fine, token.coarse);
  return token;
}

void StepTracker::SetMarker(const StepMarker& marker) {
  marker_ = marker;
  if (marker.kind() != StepMarker::Kind::kKernel) return;
  definition_ = StepDefinition{.source = StepSource::kMarker, .roles = kRoleMarker, .before = true};
  source_ = StepSource::kMarker;
}

void StepTracker::RecordsSome() {
  some_ = true;
  step_kind_ = kRecordedKind;
  source_ = StepSource::kMarker;
}

void StepTracker::AddRecorded(const RecordedStepRecord& step) {
  if (!some_ || step.end_ns < step.begin_ns) return;
  if (step.wait_start_ns != 0 && step.wait_end_ns > step.wait_start_ns)
    AddBlocked(step.wait_start_ns, step.wait_end_ns);
  step_ranges_.push_back({.start_ns = step.begin_ns,
                          .end_ns = step.end_ns,
                          .kind = kRecordedKind,
                          .index = step.index,
                          .earlier_end_ns = step.earlier_end_ns,
                          .earlier_launch_ns = step.earlier_launch_ns});
  if (step_ranges_.size() > kMaxStepRanges) step_ranges_.pop_front();
}

void StepTracker::Add(const StepOperation& operation) {
  open_.push_back(operation);
  if (!pending_.empty() && pending_.front().end_ns != 0 && operation.launched &&
      operation.launch_ns >= pending_.front().end_ns) {
    CompleteFirst();
  }
  if (!step_ranges_.empty()) CutAtRanges(false);
  if (step_kind_.empty()) {
    if (definition_.has_value()) {
      Scan(false);
    } else if (open_.size() >= next_search_ && marker_.kind() != StepMarker::Kind::kNvtx) {
      Search(false);
    }
  }
  if (open_.size() > kMaxOpen) {
    CompletePending(0, true);
    ForgetBefore(base_ + kMaxOpen / 2);
    loss_ = true;  // a step that began in the forgotten part lacks it
  }
}

void StepTracker::Search(bool at_end) {
  definition_ = FindStepDefinition(open_, at_end, marker_.kind() != StepMarker::Kind::kNone);
  if (!definition_.has_value()) {
    next_search_ *= 2;
    if (next_search_ <= kMaxSearch) return;
    next_search_ = kMaxSearch;
    ForgetBefore(base_ + open_.size() / 2);
    return;
  }
  source_ = definition_->source;
  scanned_ = base_;
  segment_ = base_;
  cluster_end_ = 0;
  Scan(at_end);
}

void StepTracker::Scan(bool all) {
  // Where the next step begins is looked for a little beyond the usual place.
  const uint64_t look = std::max<uint64_t>(definition_->gap, BeginLook(*definition_)) + 1;
  for (; scanned_ < Next(); ++scanned_) {
    const StepOperation& operation = At(scanned_);
    if (definition_->before) {
      BeginAt(scanned_);
      continue;
    }
    if (definition_->IsAnchor(operation)) {
      if (cluster_end_ != 0 && scanned_ > cluster_end_ + definition_->gap)
        EndSegment(BeginAfter(cluster_end_, scanned_));
      cluster_end_ = scanned_ + 1;
    } else if (cluster_end_ != 0 && scanned_ >= cluster_end_ + look) {
      EndSegment(BeginAfter(cluster_end_, scanned_));
    }
  }
  if (all && cluster_end_ != 0) EndSegment(BeginAfter(cluster_end_, Next()));
  // The anchors of the last steps were lost.
  if (all && lossy_ && !definition_->before && Next() > segment_) {
    const uint64_t left = Next() - segment_;
    if (At(Next() - 1).work == WorkClass::kUnseen && left >= definition_->operations) EndSegment(Next());
  }
  if (all && begun_) EndSegment(Next());
}

void StepTracker::BeginAt(uint64_t position) {
  const bool anchor = definition_->IsAnchor(At(position));
  const bool again = position > base_ && definition_->IsAnchor(At(position - 1));
  if (!anchor || again) return;
  if (begun_) {
    EndSegment(position);
  } else {
    segment_ = position;
  }
  begun_ = true;
}

uint64_t StepTracker::BeginAfter(uint64_t position, uint64_t known) const {
  const auto next_launch = [this](uint64_t at) {
    while (at < Next() && At(at).same_launch) ++at;
    return at;
  };
  const uint64_t usual = next_launch(std::min(position + definition_->tail, known));
  if (definition_->head == 0 || usual >= Next() || At(usual).coarse == definition_->head) return usual;
  const uint64_t limit = std::min(position + BeginLook(*definition_), known);
  for (uint64_t at = next_launch(position); at < limit; ++at) {
    if (At(at).coarse == definition_->head && !At(at).same_launch) return at;
  }
  // If the step's last operations and the next one's first were lost, its length decides.
  const uint64_t steps = definition_->operations == 0
                             ? 0
                             : (usual - segment_ + definition_->operations / 2) / definition_->operations;
  const uint64_t by_length = segment_ + std::max<uint64_t>(steps, 1) * definition_->operations;
  if (lossy_ && by_length >= position && by_length < limit) return by_length;
  // Nothing that begins a step follows: what is copied back still belongs to this one.
  uint64_t begin = usual;
  while (begin < known && At(begin).work == WorkClass::kCopyFromDevice) ++begin;
  return begin;
}

void StepTracker::EndSegment(uint64_t end) {
  const uint64_t segment = std::exchange(segment_, end);
  cluster_end_ = 0;
  if (end <= segment) return;
  ShortenUsual(end - segment);
  uint64_t begin = segment;
  for (const uint64_t lost : EndsOfLost(segment, end)) {
    EndStep(begin, lost);
    begin = lost;
  }
  if (begin < end) EndStep(begin, end);
}

void StepTracker::ShortenUsual(uint64_t operations) {
  constexpr uint64_t kMostSteps = 8;
  constexpr double kTolerance = 0.02;  // operations more in some steps, such as copies back
  if (!lossy_ || definition_->source == StepSource::kMarker || definition_->coarse_sum != 0) return;
  if (next_index_ == 0 && pending_.empty()) return;  // what initialises is in it
  for (uint64_t steps = 2; steps <= kMostSteps; ++steps) {
    const double off = static_cast<double>(steps * operations) - static_cast<double>(definition_->operations);
    if (std::abs(off) > kTolerance * static_cast<double>(definition_->operations)) continue;
    definition_->operations = static_cast<uint32_t>(operations);
    return;
  }
}

std::vector<uint64_t> StepTracker::EndsOfLost(uint64_t segment, uint64_t end) const {
  if (!lossy_ || segment < base_) return {};
  const auto from = static_cast<size_t>(segment - base_);
  const auto own = std::span<const StepOperation>(open_).subspan(from, static_cast<size_t>(end - segment));
  const uint64_t usual = definition_->operations;
  // One that was seen at its end is just longer than others.
  const bool lost = std::any_of(own.begin(), own.end(),
                                [](const StepOperation& o) { return o.work == WorkClass::kUnseen; });
  if (!lost || own.size() < 2 * usual) return {};
  std::vector<uint64_t> ends;
  const bool first = next_index_ == 0 && pending_.empty();
  for (const size_t at : EndsOfLostSteps(own, static_cast<size_t>(usual), definition_->head, first))
    ends.push_back(segment + at);
  return ends;
}

void StepTracker::EndStep(uint64_t segment, uint64_t end) {
  const uint64_t begin = definition_->before ? segment : BeginOfStep(segment, end);
  if (definition_->source != StepSource::kMarker) {
    ++compared_;
    usual_ += IsUsual(begin, end) ? 1 : 0;
  }
  CutStep(begin, end);
}

bool StepTracker::IsUsual(uint64_t begin, uint64_t end) const {
  // The same operations, or about as many.
  constexpr double kTolerance = 0.1;
  const auto count = static_cast<double>(end - begin);
  const auto usual = static_cast<double>(definition_->operations);
  return std::abs(count - usual) <= kTolerance * usual;
}

uint64_t StepTracker::BeginOfStep(uint64_t segment, uint64_t end) const {
  const uint64_t usual = definition_->operations;
  if (end - segment <= usual) return segment;
  const uint64_t begin = end - usual;
  const auto sum = [&](auto token_of) {
    uint64_t total = 0;
    for (uint64_t at = begin; at < end; ++at) total += TokenWeight(token_of(At(at)));
    return total;
  };
  // Before the first step of all there is what initialises.
  const bool first = next_index_ == 0 && pending_.empty();
  if (lossy_ && first && At(begin).work == WorkClass::kUnseen) return begin;
  if (definition_->coarse_sum != 0 && !At(begin).same_launch &&
      sum([](const StepOperation& o) { return o.coarse; }) == definition_->coarse_sum) {
    return begin;
  }
  // A step that is not the usual one. What is much longer holds something else before it: the step begins
  // with what steps begin with, where that leaves about the usual length.
  constexpr double kLongest = 1.25;
  const auto length = static_cast<double>(end - segment);
  if (length <= kLongest * static_cast<double>(usual)) return segment;
  uint64_t best = segment;
  uint64_t distance = usual / 2;
  for (uint64_t at = segment; at < end && definition_->head != 0; ++at) {
    if (At(at).coarse != definition_->head || At(at).same_launch) continue;
    if (at > base_ && at > segment && At(at - 1).coarse == definition_->head)
      continue;  // of a pair, the first
    const uint64_t off = at > begin ? at - begin : begin - at;
    if (off <= distance) {
      best = at;
      distance = off;
    }
  }
  return best;
}

double StepTracker::confidence() const {
  if (counted_ == 0) return 0;
  const auto steps = static_cast<double>(counted_);
  const double regular = compared_ == 0 ? 1 : static_cast<double>(usual_) / static_cast<double>(compared_);
  const double lost =
      operations_ == 0 ? 0 : static_cast<double>(lost_operations_) / static_cast<double>(operations_);
  return regular * steps / (steps + 1) * (1 - lost);
}

void StepTracker::AddBlocked(uint64_t start_ns, uint64_t end_ns) {
  const auto later =
      std::upper_bound(blocked_.begin(), blocked_.end(), start_ns,
                       [](uint64_t start, const BlockedInterval& b) { return start < b.start_ns; });
  blocked_.insert(later, {start_ns, end_ns});
  if (blocked_.size() > kMaxBlocked) blocked_.erase(blocked_.begin(), blocked_.begin() + kMaxBlocked / 2);
}

void StepTracker::AddRange(uint64_t id, uint64_t parent, uint64_t start_ns, uint64_t end_ns, uint32_t name_id,
                           std::string_view name) {
  constexpr uint8_t kStep = 254;
  if (range_names_.size() <= name_id) range_names_.resize(size_t{name_id} + 1);
  uint8_t& meaning = range_names_[name_id];
  if (meaning == 0) {
    const std::string kind = KindOfRange(name);
    const bool marked = marker_.kind() == StepMarker::Kind::kNvtx;
    const bool step = !some_ && (marked ? marker_.Matches(name)
                                        : marker_.kind() == StepMarker::Kind::kNone && LooksLikeStep(kind));
    const std::optional<StepPhase> phase = PhaseOfRange(kind);
    meaning = step                ? kStep
              : phase.has_value() ? static_cast<uint8_t>(1 + static_cast<int>(*phase))
                                  : kNoMeaning;
  }
  const bool phase = meaning != kStep && meaning != kNoMeaning;
  phase_ranges_.Add(id, parent, end_ns, phase ? static_cast<uint8_t>(meaning - 1) : PhaseRanges::kNone);
  if (meaning != kStep) return;
  std::string kind = marker_.kind() == StepMarker::Kind::kNvtx ? kMarkedKind : KindOfRange(name);
  if (!step_kind_.empty() && kind != step_kind_) return;
  step_ranges_.push_back({start_ns, end_ns, std::move(kind)});
  if (step_ranges_.size() > kMaxStepRanges) step_ranges_.pop_front();
  if (step_kind_.empty()) ChooseRanges(marker_.kind() == StepMarker::Kind::kNvtx ? 1 : kLeastRanges);
}

void StepTracker::ChooseRanges(size_t least) {
  // The kind that covers most time: of nested ones the outer.
  std::map<std::string, std::pair<size_t, uint64_t>> kinds;
  for (const StepRange& range : step_ranges_) {
    auto& [count, length_ns] = kinds[range.kind];
    ++count;
    length_ns += range.end_ns - range.start_ns;
  }
  uint64_t most_ns = 0;
  for (const auto& [kind, seen] : kinds) {
    if (seen.first < least || seen.second <= most_ns) continue;
    most_ns = seen.second;
    step_kind_ = kind;
  }
  if (step_kind_.empty()) return;
  source_ = marker_.kind() == StepMarker::Kind::kNvtx ? StepSource::kMarker : StepSource::kNvtx;
  std::erase_if(step_ranges_, [this](const StepRange& range) { return range.kind != step_kind_; });
  std::sort(step_ranges_.begin(), step_ranges_.end(),
            [](const StepRange& a, const StepRange& b) { return a.start_ns < b.start_ns; });
}

void StepTracker::CutAtRanges(bool all) {
  if (step_kind_.empty()) return;
  // A range is over when something was launched after it: everything that was launched in it is known.
  while (!step_ranges_.empty() && !open_.empty() &&
         (all || open_.back().launch_ns >= step_ranges_.front().end_ns)) {
    const StepRange range = std::move(step_ranges_.front());
    step_ranges_.pop_front();
    uint64_t begin = pending_.empty() ? base_ : pending_.back().end;
    while (begin < Next() && At(begin).launch_ns < range.start_ns) ++begin;
    uint64_t end = begin;
    while (end < Next() && At(end).launch_ns < range.end_ns) ++end;
    if (end > begin) CutStep(begin, end, &range);
  }
}

void StepTracker::CutStep(uint64_t begin, uint64_t end, const StepRange* range) {
  Pending next{.begin = begin, .end = end};
  if (some_ && range != nullptr) {
    next.index = range->index;
    next.host_end_ns = range->end_ns;
    next.earlier_end_ns = range->earlier_end_ns;
    next.earlier_launch_ns = range->earlier_launch_ns;
    next.after_others = std::exchange(next_index_, range->index + 1) != range->index;
  }
  for (uint64_t i = begin; i < end && lossy_; ++i) next.lost += At(i).work == WorkClass::kUnseen ? 1 : 0;
  next.left = next.lost;
  pending_.push_back(next);
  if (lossy_) RestoreLost(false);
  CompletePending(1, false);
  while (pending_.size() > kMaxPending) CompleteFirst();
  MeasureFirst();
}

void StepTracker::LearnUsual(const Pending* before, const Pending& last) {
  const uint64_t own = last.end - last.begin;
  const bool usual = definition_.has_value() && definition_->operations != 0
                         ? own == definition_->operations
                         : last.lost == 0 || !usual_step_.known() || own == usual_step_.size();
  if (!usual && usual_step_.known()) return;
  uint64_t start_ns =
      before == nullptr ? std::max(forgotten_until_ns_, last.earlier_end_ns) : last.earlier_end_ns;
  for (uint64_t i = before == nullptr ? base_ : before->begin; i < last.begin; ++i)
    start_ns = std::max(start_ns, At(i).end_ns);
  uint64_t end_ns = start_ns;
  for (uint64_t i = last.begin; i < last.end; ++i) end_ns = std::max(end_ns, At(i).end_ns);
  if (start_ns == 0) return;
  const auto operations = std::span<const StepOperation>(open_).subspan(
      static_cast<size_t>(last.begin - base_), static_cast<size_t>(own));
  const bool begin_known = before == nullptr || (before->lost == 0 && before->end == last.begin);
  if (last.lost == 0 && begin_known) {
    usual_step_.Learn(operations, start_ns, end_ns);
    return;
  }
  // In the usual step, the last launch ends last.
  const auto seen = [](const StepOperation& o) { return o.work != WorkClass::kUnseen; };
  const bool begin_seen = last.begin > base_ ? seen(At(last.begin - 1)) : begin_error_ns_ == 0;
  if (usual && begin_seen && (before == nullptr || before->end_error_ns == 0) && seen(operations.back()))
    usual_step_.LearnPart(operations, start_ns, end_ns);
}

void StepTracker::RestoreLost(bool all) {
  LearnUsual(pending_.size() < 2 ? nullptr : &pending_[pending_.size() - 2], pending_.back());
  const bool wanted =
      std::any_of(pending_.begin(), pending_.end(), [](const Pending& each) { return each.left > 0; });
  if (!wanted || !usual_step_.known()) return;
  std::vector<RestoredStep> steps;
  for (const Pending& each : pending_) {
    steps.push_back({.begin = static_cast<size_t>(each.begin - base_),
                     .end = static_cast<size_t>(each.end - base_),
                     .left = each.left,
                     .end_error_ns = each.end_error_ns});
  }
  const Summary length = statistics_.total_ns.Summarize();
  const uint64_t known_until_ns = std::max(forgotten_until_ns_, pending_.front().earlier_end_ns);
  usual_step_.Restore(open_, steps, known_until_ns, length.mean > 0 ? length.std / length.mean : 0, all);
  for (size_t i = 0; i < steps.size(); ++i) {
    pending_[i].left = steps[i].left;
    pending_[i].end_error_ns = steps[i].end_error_ns;
  }
}

void StepTracker::MeasureFirst() {
  if (pending_.empty() || pending_.front().end_ns != 0 || pending_.front().left > 0) return;
  Pending& first = pending_.front();
  first.start_ns = forgotten_until_ns_;
  first.previous_launch_ns = last_launch_ns_;
  for (uint64_t i = base_; i < first.begin; ++i) first.start_ns = std::max(first.start_ns, At(i).end_ns);
  if (first.begin > base_) first.previous_launch_ns = At(first.begin - 1).launch_ns;
  first.start_ns = std::max(first.start_ns, first.earlier_end_ns);
  first.previous_launch_ns = std::max(first.previous_launch_ns, first.earlier_launch_ns);
  // Nothing ran on the device before it: the time of the steps that were left out is none of this one.
  if (first.after_others && first.earlier_end_ns == 0) first.start_ns = 0;
  if (first.start_ns == 0) {
    first.start_ns = UINT64_MAX;
    for (uint64_t i = first.begin; i < first.end; ++i)
      first.start_ns = std::min(first.start_ns, At(i).start_ns);
  }
  first.end_ns = first.start_ns;
  for (uint64_t i = first.begin; i < first.end; ++i) first.end_ns = std::max(first.end_ns, At(i).end_ns);
}

void StepTracker::CompletePending(size_t but, bool must) {
  while (pending_.size() > but && (must || pending_.front().left == 0)) CompleteFirst();
}

void StepTracker::CompleteFirst() {
  // Anything not restored by now never will be: the end is that of the work seen, which may be a whole gap
  // off.
  if (std::exchange(pending_.front().left, 0) > 0) pending_.front().end_error_ns = UINT64_MAX;
  MeasureFirst();
  const Pending step = pending_.front();
  pending_.pop_front();
  const std::span<const StepOperation> operations =
      std::span<const StepOperation>(open_).subspan(static_cast<size_t>(step.begin - base_));
  const auto own = static_cast<size_t>(step.end - step.begin);
  bool annotated = false;
  const std::vector<StepPhase> phases = PhasesOf(operations, own, phase_ranges_, annotated);
  StepRecord record = Measure(step, phases);
  record.index = step.index;
  record.lost = step.lost;
  record.error_ns = std::min(std::max(std::exchange(begin_error_ns_, step.end_error_ns), step.end_error_ns),
                             record.total_ns());
  record.incomplete = std::exchange(loss_, false) || step.lost > 0 || record.error_ns > 0;
  NoteHostPhases(step, phases);
  if (!record.incomplete) {
    const std::optional<uint64_t> early = warmup_known_ ? std::nullopt : std::optional(counted_);
    communication_.AddStep(operations, own, phases, record, early);
    work_.AddStep(operations.first(own), record.total_ns(), counted_, early.has_value());
  }
  operations_ += own;
  lost_operations_ += step.lost;
  ForgetBefore(step.end);
  Record(record, annotated);
  MeasureFirst();
}

StepRecord StepTracker::Measure(const Pending& step, const std::vector<StepPhase>& phases) const {
  const std::span<const StepOperation> operations =
      std::span<const StepOperation>(open_).subspan(static_cast<size_t>(step.begin - base_));
  StepWindow window{.start_ns = step.start_ns,
                    .end_ns = step.end_ns,
                    .operations = operations,
                    .own = static_cast<size_t>(step.end - step.begin),
                    .previous_launch_ns = step.previous_launch_ns,
                    .blocked = blocked_};
  const auto stepped = std::find_if(clock_steps_.begin(), clock_steps_.end(), [&](const ClockStep& c) {
    return c.to_ns > step.start_ns && c.from_ns < step.end_ns;
  });
  if (stepped == clock_steps_.end()) return MeasureStep(window, phases);
  const std::optional<uint64_t> gap_ns =
      FindClockStep(operations, step.start_ns, stepped->by_ns, stepped->from_ns, stepped->to_ns);
  if (!gap_ns.has_value() || *gap_ns < step.start_ns || *gap_ns >= step.end_ns)
    return MeasureStep(window, phases);
  std::vector<StepOperation> moved(operations.begin(), operations.end());
  std::vector<BlockedInterval> blocked = blocked_;
  const auto move = [&](uint64_t& time_ns) { time_ns -= time_ns > *gap_ns ? stepped->by_ns : 0; };
  for (StepOperation& o : moved) {
    move(o.start_ns);
    move(o.end_ns);
    move(o.launch_ns);
  }
  for (BlockedInterval& b : blocked) {
    move(b.start_ns);
    move(b.end_ns);
  }
  window.operations = moved;
  window.blocked = blocked;
  move(window.end_ns);
  StepRecord record = MeasureStep(window, phases);
  record.end_ns = step.end_ns;
  record.first_launch_ns = UINT64_MAX;
  for (const StepOperation& o : operations.subspan(0, window.own))
    record.first_launch_ns = std::min(record.first_launch_ns, o.launch_ns);
  record.clock_step_ns = static_cast<int64_t>(stepped->by_ns);
  return record;
}

void StepTracker::NoteHostPhases(const Pending& step, const std::vector<StepPhase>& phases) {
  constexpr size_t kMost = 1024;
  HostPhases host{.begin_ns = At(step.begin).launch_ns,
                  .end_ns = step.host_end_ns != 0 ? step.host_end_ns
                            : step.end < Next()   ? At(step.end).launch_ns
                                                  : At(step.end - 1).launch_ns + 1,
                  .changes = {}};
  for (uint64_t at = step.begin; at < step.end; ++at) {
    const StepOperation& o = At(at);
    const StepPhase phase = phases[static_cast<size_t>(at - step.begin)];
    const uint64_t previous_ns =
        std::exchange(host.last_launch_ns, std::max(host.last_launch_ns, o.launch_ns));
    if (o.work != WorkClass::kCompute || (!host.changes.empty() && host.changes.back().second == phase))
      continue;
    host.changes.emplace_back(host.changes.empty() ? host.begin_ns : previous_ns + 1, phase);
  }
  if (host_phases_.size() < kMost) host_phases_.push_back(std::move(host));
}

void StepTracker::NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
  if (clock_steps_.size() == kMaxClockSteps) clock_steps_.erase(clock_steps_.begin());
  clock_steps_.push_back({by_ns, from_ns, to_ns});
}

void StepTracker::ForgetBefore(uint64_t position) {
  const auto count = static_cast<ptrdiff_t>(position - base_);
  if (count <= 0) return;
  for (ptrdiff_t i = 0; i < count; ++i) {
    forgotten_until_ns_ = std::max(forgotten_until_ns_, open_[static_cast<size_t>(i)].end_ns);
  }
  last_launch_ns_ = open_[static_cast<size_t>(count) - 1].launch_ns;
  open_.erase(open_.begin(), open_.begin() + count);
  base_ = position;
  segment_ = std::max(segment_, base_);
  scanned_ = std::max(scanned_, base_);
  if (cluster_end_ < base_) cluster_end_ = 0;
  // Long first steps, or the search for the first one, must not set the size for good.
  constexpr size_t kKeep = 512;
  if (open_.capacity() > kKeep && open_.capacity() > 4 * open_.size() &&
      open_.capacity() > 4 * static_cast<size_t>(count)) {
    open_.shrink_to_fit();
  }
  const auto old = std::find_if(blocked_.begin(), blocked_.end(),
                                [this](const BlockedInterval& b) { return b.end_ns >= forgotten_until_ns_; });
  blocked_.erase(blocked_.begin(), old);
  phase_ranges_.ForgetBefore(open_.empty() ? last_launch_ns_ : open_.front().launch_ns);
}

void StepTracker::Record(const StepRecord& record, bool nvtx_phases) {
  steps_.push_back(record);
  if (!some_) steps_.back().index = next_index_++;
  ++counted_;
  if (steps_.size() > kKept) steps_.pop_front();
  if (warmup_known_) {
    Count(counted_ - 1, steps_.back(), nvtx_phases);
    return;
  }
  steady_runs_.Add(record.start_ns, record.end_ns, record.total_ns());
  early_.push_back({.nvtx_phases = nvtx_phases,
                    .input_ns = record.input_ns,
                    .host_bound_ns = record.host_bound_ns,
                    .input_phase_ns = record.phase_ns[static_cast<size_t>(StepPhase::kInput)],
                    .other_phase_ns = record.phase_ns[static_cast<size_t>(StepPhase::kOther)]});
  if (early_.size() >= kFirstWarmupLook) LookForWarmup();
  if (early_.size() >= kWarmupLook) EndWarmupSearch();
}

void StepTracker::Count(uint64_t ordinal, const StepRecord& record, bool nvtx_phases) {
  if (record.incomplete) {
    ++statistics_.incomplete;
  } else {
    statistics_.Add(record, nvtx_phases);
    blocks_.Add(ordinal, record);
  }
}

void StepTracker::LookForWarmup() {
  // Only the first steps of all are here: none has left the ring yet.
  const size_t length = WarmupLength(steps_);
  if (length != warmup_count_ || early_counted_ == 0) {
    warmup_count_ = length;
    early_counted_ = length;
    statistics_ = StepStatistics();
    blocks_ = StepBlocks();
    for (size_t i = 0; i < steps_.size(); ++i) {
      StepRecord& step = steps_[i];
      const EarlyStep& early = early_[i];
      step.warmup = i < length;
      // A host that is silent then compiles; it does not wait for input.
      step.input_ns = step.warmup ? 0 : early.input_ns;
      step.host_bound_ns = early.host_bound_ns + early.input_ns - step.input_ns;
      uint64_t& input_ns = step.phase_ns[static_cast<size_t>(StepPhase::kInput)];
      input_ns = step.warmup ? 0 : early.input_phase_ns;
      step.phase_ns[static_cast<size_t>(StepPhase::kOther)] =
          early.other_phase_ns + early.input_phase_ns - input_ns;
    }
  }
  for (; early_counted_ < steps_.size(); ++early_counted_)
    Count(early_counted_, steps_[early_counted_], early_[early_counted_].nvtx_phases);
}

void StepTracker::EndWarmupSearch() {
  communication_.KeepFrom(warmup_count_);
  work_.KeepFrom(warmup_count_);
  steady_runs_.KeepFrom(warmup_count_ < steps_.size() ? steps_[warmup_count_].start_ns : 0);
  early_ = {};
  warmup_known_ = true;
}

void StepTracker::NoteLoss(bool launches) {
  loss_ = loss_ || launches;
  lossy_ = true;
}

void StepTracker::Finish() {
  if (step_kind_.empty() && !definition_.has_value()) ChooseRanges(kLeastRangesAtEnd);
  if (!step_kind_.empty()) {
    CutAtRanges(true);
  } else if (definition_.has_value()) {
    Scan(true);
  } else if (!open_.empty() && marker_.kind() != StepMarker::Kind::kNvtx) {
    Search(true);
  }
  if (lossy_ && !pending_.empty()) RestoreLost(true);
  CompletePending(0, true);
  ForgetBefore(Next());
  if (!warmup_known_ && !steps_.empty()) {
    LookForWarmup();
    EndWarmupSearch();
  }
  if (statistics_.total_ns.count() >= kLeastWhole) return;
  statistics_.estimated = statistics_.incomplete > 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const StepRecord& step = steps_[i];
    if (!step.incomplete || step.warmup) continue;
    statistics_.Add(step, statistics_.nvtx_phases > 0);
    blocks_.Add(counted_ - steps_.size() + i, step);
  }
}

std::optional<uint64_t> StepTracker::StepAt(uint64_t time_ns) const {
  const auto after =
      std::upper_bound(steps_.begin(), steps_.end(), time_ns,
                       [](uint64_t time, const StepRecord& step) { return time < step.start_ns; });
  if (after == steps_.begin()) return std::nullopt;
  const StepRecord& step = *std::prev(after);
  return time_ns < step.end_ns ? std::optional(step.index) : std::nullopt;
}

}  // namespace gpuprobe::model
