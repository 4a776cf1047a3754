#include "collector/model/steps/step_cuts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/container/flat_hash_set.h"

namespace gpuprobe::model {
namespace {

// Segments count as about equally long within this share of the median.
constexpr double kLengthTolerance = 0.25;
// Operations between equal segments may be an evaluation; when more than this share of them occurs in no
// segment, they are part of a larger step.
constexpr double kMostNovelty = 0.5;
// What comes before the first step and after the last one, and occurs in none, may be at most this share of
// the history: else what repeats is a part of a step, such as layers, and the rest of it has not been seen
// often enough. An evaluation before the first step does what steps do.
constexpr double kMostOutsideNamed = 0.5;
constexpr double kMostOutside = 0.2;
// Without an input copy in every segment, what repeats may be layers of a step that is not over: so many
// operations and segments say that it is not.
constexpr size_t kLeastOperationsWithoutInput = 8192;
constexpr size_t kLeastSegmentsWithoutInput = 32;

// Coverage of the segments between `ends`, at one level of equality.
Cut MeasureEqual(const History& history, std::vector<size_t> ends, Level level) {
  Cut cut{.ends = std::move(ends), .level = level};
  std::map<std::pair<size_t, uint64_t>, std::pair<size_t, size_t>> kinds;  // -> operations, end of one
  for (size_t i = 1; i < cut.ends.size(); ++i) {
    const size_t length = cut.ends[i] - cut.ends[i - 1];
    auto& [operations, end] = kinds[{length, history.Sum(level, cut.ends[i - 1], cut.ends[i])}];
    if (operations == 0) end = cut.ends[i];
    operations += length;
  }
  size_t most = 0;
  for (const auto& [kind, seen] : kinds) {
    if (seen.first <= most) continue;
    most = seen.first;
    std::tie(cut.operations, cut.sum) = kind;
    cut.usual_end = seen.second;
  }
  absl::flat_hash_set<uint32_t> usual;
  for (size_t i = cut.usual_end - cut.operations; i < cut.usual_end; ++i)
    usual.insert(history.operations()[i].coarse);
  // A value that is read back now and then is of the step before.
  const auto is_novel = [&](size_t at) {
    const StepOperation& operation = history.operations()[at];
    return operation.work != WorkClass::kCopyFromDevice && !usual.contains(operation.coarse);
  };
  size_t covered = 0;
  size_t other = 0;
  size_t between = 0;
  size_t novel = 0;
  bool after_usual = false;
  for (size_t i = 1; i < cut.ends.size(); ++i) {
    const size_t begin = cut.ends[i - 1];
    const size_t end = cut.ends[i];
    const bool was_usual = std::exchange(after_usual, false);
    // An evaluation, or what initialises, comes before the step.
    if (end - begin >= cut.operations && history.Sum(level, end - cut.operations, end) == cut.sum) {
      ++cut.usual;
      after_usual = true;
      cut.after += was_usual ? 1 : 0;
      cut.follow += was_usual && end - begin == cut.operations ? 1 : 0;
      covered += cut.operations;
      between += end - begin - cut.operations;
      for (size_t at = begin; at < end - cut.operations; ++at) novel += is_novel(at) ? 1 : 0;
    } else {
      // The extra operations may be in its middle.
      other += end - begin;
      between += end - begin > cut.operations ? end - begin - cut.operations : 0;
      for (size_t at = begin; at < end; ++at) novel += is_novel(at) ? 1 : 0;
    }
  }
  if (covered + other > 0) cut.coverage = static_cast<double>(covered) / static_cast<double>(covered + other);
  if (between > 0) cut.novelty = static_cast<double>(novel) / static_cast<double>(between);
  return cut;
}

// The length of which most others are multiples: where records were lost, segments hold several steps.
size_t CommonLength(std::vector<size_t> lengths) {
  constexpr double kTolerance = 0.1;
  constexpr double kMost = 0.8;
  std::sort(lengths.begin(), lengths.end());
  const auto all = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), size_t{0}));
  for (const size_t candidate : lengths) {
    const auto length = static_cast<double>(candidate);
    double multiples = 0;
    for (const size_t other : lengths) {
      const auto count = static_cast<double>(other) / length;
      if (count > 0.5 && std::abs(count - std::round(count)) <= kTolerance)
        multiples += static_cast<double>(other);
    }
    if (multiples >= kMost * all) return candidate;
  }
  return lengths[lengths.size() / 2];
}

// Whether steps of `period` operations, all of which lost their anchors, may be within segments that seem to
// be one each: nothing was seen where the anchors would be, and what was seen comes again after a period.
bool HidesSteps(const History& history, const std::vector<size_t>& ends, size_t period) {
  constexpr size_t kDrift = 3;             // operations by which steps differ
  constexpr size_t kLeastBoundaries = 3;   // that were lost, or it is chance
  constexpr double kLeastCompared = 0.05;  // of all operations
  constexpr double kLeastEqual = 0.9;
  const auto operations = history.operations();
  const auto seen = [&](size_t at) { return operations[at].work != WorkClass::kUnseen; };
  size_t boundaries = 0;
  size_t compared = 0;
  size_t equal = 0;
  for (size_t s = 1; s < ends.size(); ++s) {
    const size_t steps = (ends[s] - ends[s - 1] + period / 2) / period;
    if (steps == 0) return false;
    for (size_t step = 1; step < steps; ++step, ++boundaries) {
      const size_t at = ends[s] - step * period;
      bool lost = false;
      for (size_t i = at - std::min(at, kDrift); i < std::min(at + kDrift, operations.size()); ++i)
        lost = lost || !seen(i);
      if (!lost) return false;
    }
  }
  for (size_t i = ends.front(); i + period + kDrift < ends.back(); ++i) {
    const size_t again = i + period;
    if (!seen(i) || !seen(again)) continue;
    ++compared;
    for (size_t j = again - std::min(again, kDrift); j <= again + kDrift; ++j) {
      if (!seen(j) || operations[j].coarse != operations[i].coarse) continue;
      ++equal;
      break;
    }
  }
  const size_t all = ends.back() - ends.front();
  return boundaries >= kLeastBoundaries &&
         static_cast<double>(compared) >= kLeastCompared * static_cast<double>(all) &&
         static_cast<double>(equal) >= kLeastEqual * static_cast<double>(compared);
}

// The length of a step where records were lost.
size_t LengthOfLossy(const History& history, const std::vector<size_t>& ends,
                     const std::vector<size_t>& lengths) {
  constexpr size_t kMostSteps = 8;
  constexpr size_t kLeastOperations = 16;
  const size_t length = CommonLength(lengths);
  for (size_t steps = kMostSteps; steps > 1; --steps) {
    if (length / steps >= kLeastOperations && HidesSteps(history, ends, length / steps))
      return length / steps;
  }
  return length;
}

Cut MeasureLength(const History& history, std::vector<size_t> ends) {
  Cut cut{.ends = std::move(ends), .level = Level::kLength};
  std::vector<size_t> lengths;
  for (size_t i = 1; i < cut.ends.size(); ++i) lengths.push_back(cut.ends[i] - cut.ends[i - 1]);
  const auto middle = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  cut.operations = history.lossy() ? LengthOfLossy(history, cut.ends, lengths) : *middle;
  size_t near = 0;
  size_t all = 0;
  bool after_usual = false;
  for (size_t i = 1; i < cut.ends.size(); ++i) {
    const size_t length = cut.ends[i] - cut.ends[i - 1];
    const auto usual = static_cast<double>(cut.operations);
    all += length;
    const double steps = history.lossy() ? std::max(std::round(static_cast<double>(length) / usual), 1.0) : 1;
    const bool was_usual = std::exchange(
        after_usual, std::abs(static_cast<double>(length) - steps * usual) <= kLengthTolerance * usual);
    if (!after_usual) continue;
    ++cut.usual;
    cut.after += was_usual ? 1 : 0;
    near += length;
    cut.usual_end = cut.ends[i];
  }
  if (cut.usual_end == 0) return cut;
  cut.coverage = static_cast<double>(near) / static_cast<double>(all);
  return cut;
}

// Whether all that it computes is backward: an optimizer that updates each layer as soon as its gradient is
// there makes turns of layers.
bool IsPartOfBackward(std::span<const StepOperation> segment) {
  constexpr uint8_t kBackward = kRoleBackwardName | kRoleAutogradThread;
  constexpr uint8_t kBeside = kRoleOptimizer | kRoleMemset | kRoleLossName;
  bool backward = false;
  for (const StepOperation& operation : segment) {
    if (operation.work == WorkClass::kUnseen) return false;
    if (operation.work != WorkClass::kCompute) continue;
    if ((operation.roles & (kBackward | kBeside)) == 0) return false;
    backward = backward || ((operation.roles & kBackward) != 0 && (operation.roles & kRoleOptimizer) == 0);
  }
  return backward;
}

// Operations before the first step and after the last one that occur in none.
size_t NovelOutside(const History& history, const Cut& cut, std::span<const StepOperation> usual) {
  absl::flat_hash_set<uint32_t> known;
  for (const StepOperation& operation : usual) known.insert(operation.coarse);
  const auto novel = [&known](std::span<const StepOperation> operations) {
    return static_cast<size_t>(
        std::count_if(operations.begin(), operations.end(),
                      [&known](const StepOperation& o) { return !known.contains(o.coarse); }));
  };
  const auto operations = history.operations();
  const size_t before = cut.ends.front() - std::min(cut.ends.front(), cut.operations);
  const size_t after = std::min(cut.ends.back() + cut.operations, operations.size());
  return novel(operations.first(before)) + novel(operations.subspan(after));
}

// Clusters that come after each other in turns are parts of one step, such as the norm of the gradients and
// the update.
bool ComeInTurns(const History& history, const Cut& cut) {
  return !history.lossy() && cut.after * 3 + 2 < cut.usual * 2;
}

}  // namespace

Cut Measure(const History& history, const std::vector<size_t>& ends, bool named) {
  // Steps that differ by an operation or two may come in turns, too; they are about equally long.
  const auto fits = [&](const Cut& cut) {
    return cut.coverage >= kLeastCoverage && !(named && ComeInTurns(history, cut));
  };
  Cut cut = MeasureEqual(history, ends, Level::kFine);
  if (fits(cut)) return cut;
  cut = MeasureEqual(history, ends, Level::kCoarse);
  if (fits(cut) || !named) return cut;
  return MeasureLength(history, ends);
}

bool MayBeSteps(const History& history, const Cut& cut, bool named) {
  const size_t all = history.operations().size();
  const auto usual = history.operations().subspan(cut.usual_end - cut.operations, cut.operations);
  if (static_cast<double>(NovelOutside(history, cut, usual)) >
      (named ? kMostOutsideNamed : kMostOutside) * static_cast<double>(all)) {
    return false;
  }
  if (ComeInTurns(history, cut)) return false;
  if (IsPartOfBackward(usual)) return false;
  if (named) return true;
  if (cut.novelty > kMostNovelty) return false;
  // An evaluation comes after some steps. What comes after each belongs to it, like the layers before the
  // rest.
  if (cut.follow * 2 + 1 < cut.usual) return false;
  // Copies alone are a model that is moved to the device, layer by layer; with memsets, a communicator that
  // is set up, channel by channel.
  const bool computes = std::any_of(usual.begin(), usual.end(), [](const StepOperation& o) {
    return (o.work == WorkClass::kCompute && (o.roles & kRoleMemset) == 0) || o.work == WorkClass::kUnseen;
  });
  if (!computes) return false;
  return std::any_of(usual.begin(), usual.end(),
                     [](const StepOperation& o) { return o.work == WorkClass::kCopyToDevice; }) ||
         (all >= kLeastOperationsWithoutInput && cut.ends.size() > kLeastSegmentsWithoutInput);
}

}  // namespace gpuprobe::model
