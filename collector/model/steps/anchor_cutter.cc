#include "collector/model/steps/anchor_cutter.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "collector/model/steps/lost_operations.h"

namespace gpuprobe::model {
namespace {

// So many operations after the anchors are looked at for the next step's beginning.
uint64_t BeginLook(const StepDefinition& definition) {
  constexpr uint64_t kFurther = 16;
  return 2 * uint64_t{definition.tail} + kFurther;
}

}  // namespace

void AnchorCutter::BeginAtMarker() {
  definition_ = StepDefinition{.source = StepSource::kMarker, .roles = kRoleMarker, .before = true};
}

double AnchorCutter::regular() const {
  return compared_ == 0 ? 1 : static_cast<double>(usual_) / static_cast<double>(compared_);
}

bool AnchorCutter::Search(const Work& work, bool at_end) {
  const auto found = FindStepDefinition(work.open.From(work.open.Begin()), at_end, work.marked);
  if (found.has_value()) {
    Adopt(*found, work.open.Begin());
    return true;
  }
  next_search_ *= 2;
  if (next_search_ > kMaxSearch) {
    next_search_ = kMaxSearch;
    work.forget_before(work.open.Begin() + work.open.size() / 2);
  }
  return false;
}

void AnchorCutter::Adopt(const StepDefinition& definition, uint64_t position) {
  *this = AnchorCutter();
  definition_ = definition;
  scanned_ = position;
  segment_ = position;
}

void AnchorCutter::Scan(const Work& work, bool all) {
  // Where the next step begins is looked for a little beyond the usual place.
  const uint64_t look = std::max<uint64_t>(definition_->gap, BeginLook(*definition_)) + 1;
  for (; scanned_ < work.open.End(); ++scanned_) {
    const StepOperation& operation = work.open.At(scanned_);
    if (definition_->before) {
      BeginAt(work, scanned_);
      continue;
    }
    if (definition_->IsAnchor(operation)) {
      if (cluster_end_ != 0 && parted_ > definition_->gap)
        EndSegment(work, BeginAfter(work, cluster_end_, scanned_));
      cluster_end_ = scanned_ + 1;
      parted_ = 0;
    } else if (cluster_end_ != 0 && parted_ >= look) {
      EndSegment(work, BeginAfter(work, cluster_end_, scanned_));
    } else if (cluster_end_ != 0) {
      parted_ += definition_->Parts(operation) ? 1 : 0;
    }
  }
  if (all && cluster_end_ != 0) EndSegment(work, BeginAfter(work, cluster_end_, work.open.End()));
  // The anchors of the last steps were lost.
  if (all && work.lossy && !definition_->before && work.open.End() > segment_) {
    const uint64_t left = work.open.End() - segment_;
    if (work.open.At(work.open.End() - 1).work == WorkClass::kUnseen && left >= definition_->operations)
      EndSegment(work, work.open.End());
  }
  if (all && begun_) EndSegment(work, work.open.End());
}

void AnchorCutter::BeginAt(const Work& work, uint64_t position) {
  const bool anchor = definition_->IsAnchor(work.open.At(position));
  const bool again = position > work.open.Begin() && definition_->IsAnchor(work.open.At(position - 1));
  if (!anchor || again) return;
  if (begun_) {
    EndSegment(work, position);
  } else {
    segment_ = position;
  }
  begun_ = true;
}

uint64_t AnchorCutter::BeginAfter(const Work& work, uint64_t position, uint64_t known) const {
  const auto next_launch = [&work](uint64_t at) {
    while (at < work.open.End() && work.open.At(at).same_launch) ++at;
    return at;
  };
  const uint64_t usual = next_launch(std::min(position + definition_->tail, known));
  if (definition_->head == 0 || usual >= work.open.End() || work.open.At(usual).coarse == definition_->head)
    return usual;
  const uint64_t limit = std::min(position + BeginLook(*definition_), known);
  for (uint64_t at = next_launch(position); at < limit; ++at) {
    if (work.open.At(at).coarse == definition_->head && !work.open.At(at).same_launch) return at;
  }
  // If the step's last operations and the next one's first were lost, its length decides.
  const uint64_t steps = definition_->operations == 0
                             ? 0
                             : (usual - segment_ + definition_->operations / 2) / definition_->operations;
  const uint64_t by_length = segment_ + std::max<uint64_t>(steps, 1) * definition_->operations;
  if (work.lossy && by_length >= position && by_length < limit) return by_length;
  // Nothing that begins a step follows: what is copied back still belongs to this one.
  uint64_t begin = usual;
  while (begin < known && work.open.At(begin).work == WorkClass::kCopyFromDevice) ++begin;
  return begin;
}

void AnchorCutter::EndSegment(const Work& work, uint64_t end) {
  const uint64_t segment = std::exchange(segment_, end);
  cluster_end_ = 0;
  if (end <= segment) return;
  ShortenUsual(work, end - segment);
  uint64_t begin = segment;
  for (const uint64_t lost : EndsOfLost(work, segment, end)) {
    EndStep(work, begin, lost);
    begin = lost;
  }
  if (begin < end) EndStep(work, begin, end);
}

void AnchorCutter::ShortenUsual(const Work& work, uint64_t operations) {
  constexpr uint64_t kMostSteps = 8;
  constexpr double kTolerance = 0.02;  // operations more in some steps, such as copies back
  if (!work.lossy || definition_->source == StepSource::kMarker || definition_->coarse_sum != 0) return;
  if (!cut_) return;  // what initialises is in it
  for (uint64_t steps = 2; steps <= kMostSteps; ++steps) {
    const double off = static_cast<double>(steps * operations) - static_cast<double>(definition_->operations);
    if (std::abs(off) > kTolerance * static_cast<double>(definition_->operations)) continue;
    definition_->operations = static_cast<uint32_t>(operations);
    return;
  }
}

std::vector<uint64_t> AnchorCutter::EndsOfLost(const Work& work, uint64_t segment, uint64_t end) const {
  if (!work.lossy || segment < work.open.Begin()) return {};
  const std::span<const StepOperation> own = work.open.Between(segment, end);
  const uint64_t usual = definition_->operations;
  // One that was seen at its end is just longer than others.
  const bool lost = std::any_of(own.begin(), own.end(),
                                [](const StepOperation& o) { return o.work == WorkClass::kUnseen; });
  if (!lost || own.size() < 2 * usual) return {};
  std::vector<uint64_t> ends;
  for (const size_t at : EndsOfLostSteps(own, static_cast<size_t>(usual), definition_->head, !cut_))
    ends.push_back(segment + at);
  return ends;
}

void AnchorCutter::EndStep(const Work& work, uint64_t segment, uint64_t end) {
  const uint64_t begin = definition_->before ? segment : BeginOfStep(work, segment, end);
  if (definition_->source != StepSource::kMarker) {
    ++compared_;
    usual_ += IsUsual(begin, end) ? 1 : 0;
  }
  cut_ = true;
  work.cut(begin, end);
}

bool AnchorCutter::IsUsual(uint64_t begin, uint64_t end) const {
  // The same operations, or about as many.
  constexpr double kTolerance = 0.1;
  const auto count = static_cast<double>(end - begin);
  const auto usual = static_cast<double>(definition_->operations);
  return std::abs(count - usual) <= kTolerance * usual;
}

uint64_t AnchorCutter::BeginOfStep(const Work& work, uint64_t segment, uint64_t end) const {
  const uint64_t usual = definition_->operations;
  if (end - segment <= usual) return segment;
  const uint64_t begin = end - usual;
  const auto sum = [&](auto token_of) {
    uint64_t total = 0;
    for (uint64_t at = begin; at < end; ++at) total += TokenWeight(token_of(work.open.At(at)));
    return total;
  };
  // Before the first step of all there is what initialises.
  if (work.lossy && !cut_ && work.open.At(begin).work == WorkClass::kUnseen) return begin;
  if (definition_->coarse_sum != 0 && !work.open.At(begin).same_launch &&
      sum([](const StepOperation& o) { return o.coarse; }) == definition_->coarse_sum) {
    return begin;
  }
  return BeginOfUnusual(work, segment, end);
}

namespace {

// The operation from `first` to `last` before which the host paused longest.
uint64_t AfterPause(const OpenOperations& open, uint64_t first, uint64_t last) {
  const auto pause_ns = [&](uint64_t at) {
    const uint64_t launch_ns = open.At(at).launch_ns;
    return at > open.Begin() ? launch_ns - std::min(launch_ns, open.At(at - 1).launch_ns) : 0;
  };
  uint64_t longest = first;
  for (uint64_t at = first + 1; at <= last; ++at) {
    if (pause_ns(at) > pause_ns(longest)) longest = at;
  }
  return longest;
}

// The first step does as much as so many usual ones at most.
constexpr uint64_t kMostInFirst = 8;

// How many operations from `at` on are like those from `other` on.
uint64_t AlikeFrom(const OpenOperations& open, uint64_t at, uint64_t other) {
  constexpr uint64_t kMost = 16;
  uint64_t alike = 0;
  while (alike < kMost && other + alike < open.End() &&
         open.At(at + alike).coarse == open.At(other + alike).coarse)
    ++alike;
  return alike;
}

}  // namespace

uint64_t AnchorCutter::BeginLikeNext(const Work& work, uint64_t segment, uint64_t end) const {
  constexpr uint64_t kLeast = 4;  // fewer are alike by chance
  const uint64_t usual = definition_->operations;
  if (end + usual > work.open.End()) return end;
  const uint64_t from = end - std::min(end - segment, kMostInFirst * usual);
  uint64_t best = kLeast;
  for (uint64_t at = from; at < end; ++at) best = std::max(best, AlikeFrom(work.open, at, end));
  uint64_t openings = 0;  // of the next step: its microbatches may begin alike
  for (uint64_t at = end; at < end + usual; ++at) openings += AlikeFrom(work.open, at, end) >= best ? 1 : 0;
  for (uint64_t at = end; at-- > from;) {
    if (AlikeFrom(work.open, at, end) >= best && --openings == 0) return at;
  }
  return end;
}

uint64_t AnchorCutter::BeginOfUnusual(const Work& work, uint64_t segment, uint64_t end) const {
  const uint64_t usual = definition_->operations;
  const uint64_t begin = end - usual;
  // What is much longer holds something else before it.
  constexpr double kLongest = 1.25;
  const auto length = static_cast<double>(end - segment);
  // The first step of all may do more than the others, and what initialises comes before it.
  // Where records were lost, some of what begins steps was, too: nothing is to be had by counting it.
  const bool first = !cut_ && segment == work.open.Begin() && !work.lossy;
  if (!first && length <= kLongest * static_cast<double>(usual)) return segment;
  const auto is_head = [&](uint64_t at) { return work.open.At(at).coarse == definition_->head; };
  if (first && length > kLongest * static_cast<double>(usual)) {
    const uint64_t like_next = BeginLikeNext(work, segment, end);
    if (like_next != end) return like_next;
  }
  if (first && definition_->heads > 0 && length > kLongest * static_cast<double>(usual)) {
    uint64_t left = definition_->heads;
    for (uint64_t at = end; at > segment && end - at < kMostInFirst * usual; --at) {
      if (is_head(at - 1) && --left == 0) return at - 1;
    }
  }
  // Copies of a batch's parts are equal, and so are those of a model before the first batch: the next step
  // shows how many belong to a step at most, and the host pauses before the first of these.
  uint64_t heads = 0;
  while (!work.lossy && end + heads < work.open.End() && is_head(end + heads)) ++heads;
  uint64_t opening = 0;
  while (segment + opening < end && is_head(segment + opening)) ++opening;
  if (first && opening > 0 && opening <= heads && length <= kLongest * static_cast<double>(usual))
    return segment;  // nothing initialises
  uint64_t best = segment;
  uint64_t distance = usual / 2;
  uint64_t run = 0;  // of heads, up to here
  for (uint64_t at = segment; at < end && definition_->head != 0; ++at) {
    run = is_head(at) ? run + 1 : 0;
    if (run == 0 || work.open.At(at).same_launch) continue;
    const bool goes_on = at + 1 < end && is_head(at + 1);
    uint64_t from = at;
    if (heads == 0 || run <= heads) {
      if (run > 1) continue;  // the first of a few
    } else if (goes_on) {
      continue;
    } else {
      from = AfterPause(work.open, at + 1 - heads, at);
      if (first) return from;
    }
    const uint64_t off = from > begin ? from - begin : begin - from;
    if (off <= distance) {
      best = from;
      distance = off;
    }
  }
  return best;
}

void AnchorCutter::Forgot(uint64_t position) {
  segment_ = std::max(segment_, position);
  scanned_ = std::max(scanned_, position);
  if (cluster_end_ < position) cluster_end_ = 0;
}

bool AnchorCutter::IsWithin(const OpenOperations& open) const {
  if (!definition_.has_value()) return true;
  return open.Begin() <= segment_ && segment_ <= open.End() && open.Begin() <= scanned_ &&
         scanned_ <= open.End() &&
         (cluster_end_ == 0 || (segment_ <= cluster_end_ && cluster_end_ <= open.End()));
}

}  // namespace gpuprobe::model
