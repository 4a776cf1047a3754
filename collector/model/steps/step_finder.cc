#include "collector/model/steps/step_finder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace gpuprobe::model {
namespace {

// Equal segments must hold this share of the history's operations between the first and the last anchor.
constexpr double kLeastCoverage = 0.6;
// Segments count as about equally long within this share of the median.
constexpr double kLengthTolerance = 0.25;
// Operations between equal segments may be an evaluation; when more than this share of them occurs in no
// segment, they are part of a larger step.
constexpr double kMostNovelty = 0.5;
// Fewest complete segments between anchors: for named ones, for all others, and for any when no more will
// come.
constexpr size_t kLeastNamed = 3;
constexpr size_t kLeastUnnamed = 6;
constexpr size_t kLeastAtEnd = 2;
// The history before the first step and after the last one may hold at most this share of its operations:
// else what repeats is a part of a step, such as layers, and the rest of it has not been seen often enough.
constexpr double kMostOutsideNamed = 0.5;
constexpr double kMostOutside = 0.2;
// Without an input copy in every segment, what repeats may be layers of a step that is not over: so many
// operations and segments say that it is not.
constexpr size_t kLeastOperationsWithoutInput = 8192;
constexpr size_t kLeastSegmentsWithoutInput = 32;
// Distinct kernels that are tried as anchors.
constexpr size_t kMaxCandidates = 64;

enum class Level : uint8_t { kFine, kCoarse, kLength };

// One way to cut the history.
struct Cut {
  std::vector<size_t> ends;  // after each cluster of anchors
  uint32_t gap = 0;
  size_t operations = 0;  // of the usual segment
  uint64_t sum = 0;
  Level level = Level::kLength;
  double coverage = 0;
  size_t usual = 0;      // segments that end with the usual one
  size_t follow = 0;     // of these, those that are it, and directly after another one
  double novelty = 0;    // share of operations between equal segments that occur in none
  size_t usual_end = 0;  // end of a usual segment: of the first, where they are equal
};

class History {
 public:
  explicit History(std::span<const StepOperation> operations)
      : operations_(operations), fine_(operations.size() + 1), coarse_(operations.size() + 1) {
    for (size_t i = 0; i < operations.size(); ++i) {
      fine_[i + 1] = fine_[i] + TokenWeight(operations[i].token);
      coarse_[i + 1] = coarse_[i] + TokenWeight(operations[i].coarse);
      lossy_ = lossy_ || operations[i].work == WorkClass::kUnseen;
    }
  }
  std::span<const StepOperation> operations() const { return operations_; }
  // Some launches have no record.
  bool lossy() const { return lossy_; }
  uint64_t Fine(size_t begin, size_t end) const { return fine_[end] - fine_[begin]; }
  uint64_t Coarse(size_t begin, size_t end) const { return coarse_[end] - coarse_[begin]; }
  uint64_t Sum(Level level, size_t begin, size_t end) const {
    return level == Level::kFine ? Fine(begin, end) : Coarse(begin, end);
  }

 private:
  std::span<const StepOperation> operations_;
  std::vector<uint64_t> fine_;  // sums over all operations before
  std::vector<uint64_t> coarse_;
  bool lossy_ = false;
};

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
      cut.follow += was_usual && end - begin == cut.operations ? 1 : 0;
      covered += cut.operations;
      between += end - begin - cut.operations;
      for (size_t at = begin; at < end - cut.operations; ++at) {
        novel += usual.contains(history.operations()[at].coarse) ? 0 : 1;
      }
    } else {
      // The extra operations may be in its middle.
      other += end - begin;
      between += end - begin > cut.operations ? end - begin - cut.operations : 0;
      for (size_t at = begin; at < end; ++at)
        novel += usual.contains(history.operations()[at].coarse) ? 0 : 1;
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
  for (size_t i = 1; i < cut.ends.size(); ++i) {
    const size_t length = cut.ends[i] - cut.ends[i - 1];
    const auto usual = static_cast<double>(cut.operations);
    all += length;
    const double steps = history.lossy() ? std::max(std::round(static_cast<double>(length) / usual), 1.0) : 1;
    if (std::abs(static_cast<double>(length) - steps * usual) > kLengthTolerance * usual) continue;
    ++cut.usual;
    near += length;
    cut.usual_end = cut.ends[i];
  }
  if (cut.usual_end == 0) return cut;
  cut.coverage = static_cast<double>(near) / static_cast<double>(all);
  return cut;
}

// `named`: a name shows that the anchors belong to steps, so equal counts are enough.
Cut Measure(const History& history, const std::vector<size_t>& ends, bool named) {
  Cut cut = MeasureEqual(history, ends, Level::kFine);
  if (cut.coverage >= kLeastCoverage) return cut;
  cut = MeasureEqual(history, ends, Level::kCoarse);
  if (cut.coverage >= kLeastCoverage || !named) return cut;
  return MeasureLength(history, ends);
}

// Whether segments of this kind can be steps, and not parts of steps.
bool MayBeSteps(const History& history, const Cut& cut, bool named) {
  const size_t all = history.operations().size();
  const auto beyond = [&cut](size_t length) { return length > cut.operations ? length - cut.operations : 0; };
  const size_t outside = beyond(cut.ends.front()) + beyond(all - cut.ends.back());
  if (static_cast<double>(outside) > (named ? kMostOutsideNamed : kMostOutside) * static_cast<double>(all)) {
    return false;
  }
  if (named) return true;
  if (cut.novelty > kMostNovelty) return false;
  // An evaluation comes after some steps. What comes after each belongs to it, like the layers before the
  // rest.
  if (cut.follow * 2 + 1 < cut.usual) return false;
  const auto usual = history.operations().subspan(cut.usual_end - cut.operations, cut.operations);
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

// The best way to gather anchors into clusters: gaps within a step are much smaller than those between steps.
std::optional<Cut> BestClusters(const History& history, const std::vector<size_t>& anchors, size_t least,
                                bool named) {
  if (anchors.size() < least + 1) return std::nullopt;
  std::vector<size_t> gaps;
  for (size_t i = 1; i < anchors.size(); ++i) gaps.push_back(anchors[i] - anchors[i - 1] - 1);
  std::vector<size_t> sorted = gaps;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  // Thresholds in the widest jumps.
  constexpr double kLeastJump = 1.5;
  constexpr size_t kMaxThresholds = 6;
  std::vector<std::pair<double, size_t>> thresholds;  // (jump, gap)
  if (sorted.front() > 0) thresholds.emplace_back(static_cast<double>(sorted.front()) + 1, 0);
  for (size_t i = 1; i < sorted.size(); ++i) {
    const double below = static_cast<double>(sorted[i - 1]) + 1;
    const double above = static_cast<double>(sorted[i]) + 1;
    if (above / below < kLeastJump) continue;
    const auto between = static_cast<size_t>(std::sqrt(below * above)) - 1;
    thresholds.emplace_back(above / below, std::clamp(between, sorted[i - 1], sorted[i] - 1));
  }
  std::sort(thresholds.begin(), thresholds.end(), std::greater<>());
  if (thresholds.size() > kMaxThresholds) thresholds.resize(kMaxThresholds);
  std::optional<Cut> best;
  for (const auto& [jump, gap] : thresholds) {
    std::vector<size_t> ends;
    for (size_t i = 0; i + 1 < anchors.size(); ++i) {
      if (gaps[i] > gap) ends.push_back(anchors[i] + 1);
    }
    // The last cluster counts when it is over, or may be.
    ends.push_back(anchors.back() + 1);
    if (ends.size() < least + 1) continue;
    Cut cut = Measure(history, ends, named);
    cut.gap = static_cast<uint32_t>(gap);
    if (cut.usual < least || !MayBeSteps(history, cut, named)) continue;
    // Among about equally good cuts, the one with more steps: an evaluation makes gaps between groups of
    // steps.
    constexpr double kEqual = 0.05;
    const bool better = !best.has_value() || cut.coverage > best->coverage + kEqual ||
                        (cut.coverage > best->coverage - kEqual &&
                         std::tie(cut.usual, cut.coverage) > std::tie(best->usual, best->coverage));
    if (better) best = std::move(cut);
  }
  if (!best.has_value() || best->coverage < kLeastCoverage || best->operations == 0) return std::nullopt;
  return best;
}

std::vector<size_t> AnchorsOf(const History& history, const StepDefinition& definition) {
  std::vector<size_t> anchors;
  for (size_t i = 0; i < history.operations().size(); ++i) {
    if (definition.IsAnchor(history.operations()[i])) anchors.push_back(i);
  }
  return anchors;
}

struct Found {
  StepDefinition definition;
  Cut cut;
};

// Picks among candidates without a telling name: the smallest period that leaves nothing novel out, and where
// several agree on it, the one that covers most of the history.
std::optional<Found> BestUnnamed(const History& history, const std::vector<StepDefinition>& candidates,
                                 size_t least) {
  constexpr double kSamePeriod = 1.02;
  std::optional<Found> best;
  for (const StepDefinition& candidate : candidates) {
    std::optional<Cut> cut = BestClusters(history, AnchorsOf(history, candidate), least, false);
    if (!cut.has_value()) continue;
    if (best.has_value()) {
      const auto ours = static_cast<double>(cut->operations);
      const auto known = static_cast<double>(best->cut.operations);
      if (ours > known * kSamePeriod) continue;
      if (ours * kSamePeriod >= known && cut->coverage <= best->cut.coverage) continue;
    }
    best = Found{candidate, *std::move(cut)};
  }
  return best;
}

// One candidate for each distinct token, at most `most` in all, evenly over their frequencies.
std::vector<StepDefinition> TokenCandidates(const History& history, bool collectives, bool coarse,
                                            size_t least) {
  absl::flat_hash_map<uint32_t, size_t> counts;
  for (const StepOperation& operation : history.operations()) {
    if (collectives == (operation.work == WorkClass::kCommunication))
      ++counts[coarse ? operation.coarse : operation.token];
  }
  std::vector<std::pair<size_t, uint32_t>> order;
  for (const auto& [token, count] : counts) {
    if (token != 0 && count > least) order.emplace_back(count, token);
  }
  std::sort(order.begin(), order.end());
  std::vector<StepDefinition> candidates;
  const size_t stride = order.size() / kMaxCandidates + 1;
  for (size_t i = 0; i < order.size(); i += stride) {
    StepDefinition candidate;
    (coarse ? candidate.coarse : candidate.token) = order[i].second;
    candidates.push_back(candidate);
  }
  return candidates;
}

std::optional<Found> ByCollectives(const History& history, size_t least) {
  std::vector<StepDefinition> candidates = TokenCandidates(history, true, false, least);
  StepDefinition all;
  all.collectives = true;
  candidates.push_back(all);
  std::optional<Found> found = BestUnnamed(history, candidates, least);
  if (!found.has_value()) found = BestUnnamed(history, TokenCandidates(history, true, true, least), least);
  return found;
}

std::optional<Found> ByKernels(const History& history, size_t least) {
  std::optional<Found> found = BestUnnamed(history, TokenCandidates(history, false, false, least), least);
  if (!found.has_value()) found = BestUnnamed(history, TokenCandidates(history, false, true, least), least);
  return found;
}

std::optional<Found> ByRole(const History& history, uint8_t role, size_t least) {
  StepDefinition definition;
  definition.roles = role;
  std::optional<Cut> cut = BestClusters(history, AnchorsOf(history, definition), least, true);
  if (!cut.has_value()) return std::nullopt;
  return Found{definition, *std::move(cut)};
}

// Where, after a cluster of anchors, the next step begins: before the copy that brings its input, else where
// the host paused longest. `named`: the anchors end the step's work, so only copies back may come after them.
void LearnTail(const History& history, bool named, Found& found) {
  const auto operations = history.operations();
  const std::vector<size_t>& ends = found.cut.ends;
  // The operations that every segment has after its anchors' end, by place.
  const size_t look = named ? std::max<size_t>(found.cut.operations / 4, 1) : found.cut.operations;
  std::vector<uint64_t> pause_ns(look, 0);
  std::vector<size_t> seen(look, 0);
  std::map<size_t, size_t> inputs;  // place of the first copy to the device -> segments
  std::map<size_t, size_t> back;    // copies back right after the anchors -> segments
  size_t segments = 0;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    if (ends[s + 1] - ends[s] != found.cut.operations && found.cut.level != Level::kLength) continue;
    ++segments;
    size_t copies_back = 0;
    bool input_seen = false;
    for (size_t i = 0; i < look && ends[s] + i < operations.size(); ++i) {
      const StepOperation& at = operations[ends[s] + i];
      const StepOperation& before = operations[ends[s] + i - 1];
      if (at.launch_ns > before.launch_ns && at.launched && before.launched)
        pause_ns[i] += at.launch_ns - before.launch_ns;
      ++seen[i];
      if (copies_back == i && at.work == WorkClass::kCopyFromDevice) ++copies_back;
      if (!input_seen && at.work == WorkClass::kCopyToDevice) {
        input_seen = true;
        ++inputs[i];
      }
    }
    ++back[copies_back];
  }
  if (segments == 0) return;
  const auto mode = [](const std::map<size_t, size_t>& places) {
    std::pair<size_t, size_t> most{0, 0};  // place, segments
    for (const auto& [place, count] : places) {
      if (count > most.second) most = {place, count};
    }
    return most;
  };
  const auto mean_pause = [&](size_t place) {
    return place < look && seen[place] > 0 ? pause_ns[place] / seen[place] : 0;
  };
  const auto [input, with_input] = mode(inputs);
  const bool has_input = with_input * 5 >= segments * 4;
  size_t tail = 0;
  if (named) {
    tail = mode(back).first;
    if (has_input && input >= tail && mean_pause(input) >= mean_pause(tail)) tail = input;
  } else if (has_input) {
    tail = input;
  } else {
    for (size_t i = 1; i < look; ++i) {
      if (mean_pause(i) > mean_pause(tail)) tail = i;
    }
  }
  found.definition.tail = static_cast<uint32_t>(tail);
  std::map<uint32_t, size_t> heads;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    const size_t at = ends[s] + tail;
    if (at < operations.size() && operations[at].work != WorkClass::kUnseen) ++heads[operations[at].coarse];
  }
  size_t most = 0;
  for (const auto& [token, count] : heads) {
    if (count <= most) continue;
    most = count;
    found.definition.head = token;
  }
}

StepDefinition Define(const History& history, StepSource source, bool named, Found found) {
  LearnTail(history, named, found);
  StepDefinition definition = found.definition;
  definition.source = source;
  definition.gap = found.cut.gap;
  definition.operations = static_cast<uint32_t>(found.cut.operations);
  // The usual step is the usual segment, moved on by the tail.
  const size_t end = found.cut.usual_end + definition.tail;
  if (found.cut.level != Level::kLength && end <= history.operations().size() &&
      end >= found.cut.operations) {
    const size_t begin = end - found.cut.operations;
    if (found.cut.level == Level::kFine) definition.fine_sum = history.Fine(begin, end);
    definition.coarse_sum = history.Coarse(begin, end);
  }
  return definition;
}

bool SamePeriod(const Cut& a, const Cut& b) {
  const auto x = static_cast<double>(a.operations);
  const auto y = static_cast<double>(b.operations);
  return std::abs(x - y) <= 0.02 * std::max(x, y);
}

// Whether most segments hold the same collectives.
bool SameCollectives(const History& history, const Cut& cut) {
  std::map<uint64_t, size_t> sums;
  for (size_t i = 1; i < cut.ends.size(); ++i) {
    uint64_t sum = 0;
    for (size_t at = cut.ends[i - 1]; at < cut.ends[i]; ++at) {
      const StepOperation& operation = history.operations()[at];
      if (operation.work == WorkClass::kCommunication) sum += TokenWeight(operation.token);
    }
    ++sums[sum];
  }
  sums.erase(0);
  return std::any_of(sums.begin(), sums.end(), [&cut](const auto& seen) {
    return static_cast<double>(seen.second) >= kLeastCoverage * static_cast<double>(cut.ends.size() - 1);
  });
}

}  // namespace

std::optional<StepDefinition> FindStepDefinition(std::span<const StepOperation> operations, bool at_end,
                                                 bool marked) {
  const History history(operations);
  const size_t least_named = at_end ? 1 : kLeastNamed;
  const size_t least = at_end ? kLeastAtEnd : kLeastUnnamed;
  if (marked) {
    std::optional<Found> found = ByRole(history, kRoleMarker, least_named);
    if (!found.has_value()) return std::nullopt;
    return Define(history, StepSource::kMarker, true, *std::move(found));
  }
  std::optional<Found> optimizer = ByRole(history, kRoleOptimizer, least_named);
  if (optimizer.has_value()) {
    // The optimizer's end is where a step ends; the source is the first sequence that has the same period.
    StepSource source = optimizer->cut.level == Level::kFine ? StepSource::kKernels : StepSource::kOptimizer;
    if (SameCollectives(history, optimizer->cut)) source = StepSource::kCollectives;
    return Define(history, source, true, *std::move(optimizer));
  }
  std::optional<Found> collectives = ByCollectives(history, least);
  std::optional<Found> kernels = ByKernels(history, least);
  const bool larger = collectives.has_value() &&
                      (!kernels.has_value() || collectives->cut.operations >= kernels->cut.operations ||
                       SamePeriod(collectives->cut, kernels->cut));
  if (larger) return Define(history, StepSource::kCollectives, false, *std::move(collectives));
  if (!kernels.has_value()) return std::nullopt;
  const bool same = SameCollectives(history, kernels->cut);
  return Define(history, same ? StepSource::kCollectives : StepSource::kKernels, false, *std::move(kernels));
}

}  // namespace gpuprobe::model
