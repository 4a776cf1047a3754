#include "collector/model/steps/step_finder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "collector/model/steps/step_cuts.h"

namespace gpuprobe::model {
namespace {

// Fewest complete segments between anchors: for named ones, for all others, and for any when no more will
// come.
constexpr size_t kLeastNamed = 3;
constexpr size_t kLeastUnnamed = 6;
constexpr size_t kLeastAtEnd = 2;
// Distinct kernels that are tried as anchors.
constexpr size_t kMaxCandidates = 64;

struct Anchors {
  std::vector<size_t> places;
  std::vector<size_t> gaps;  // operations between each and the next that part them
};

Anchors AnchorsOf(const History& history, const StepDefinition& definition) {
  Anchors anchors;
  size_t gap = 0;
  for (size_t i = 0; i < history.operations().size(); ++i) {
    const StepOperation& operation = history.operations()[i];
    if (definition.IsAnchor(operation)) {
      if (!anchors.places.empty()) anchors.gaps.push_back(gap);
      anchors.places.push_back(i);
      gap = 0;
    } else {
      gap += definition.Parts(operation) ? 1 : 0;
    }
  }
  return anchors;
}

// The best way to gather anchors into clusters: gaps within a step are much smaller than those between steps.
std::optional<Cut> BestClusters(const History& history, const StepDefinition& anchor, size_t least,
                                bool named) {
  const Anchors found = AnchorsOf(history, anchor);
  const std::vector<size_t>& anchors = found.places;
  const std::vector<size_t>& gaps = found.gaps;
  if (anchors.size() < least + 1) return std::nullopt;
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
    std::optional<Cut> cut = BestClusters(history, candidate, least, false);
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

std::optional<Found> ByRole(const History& history, uint16_t role, size_t least) {
  StepDefinition definition;
  definition.roles = role;
  std::optional<Cut> cut = BestClusters(history, definition, least, true);
  if (!cut.has_value()) return std::nullopt;
  return Found{definition, *std::move(cut)};
}

constexpr uint16_t kRolesOfBackward = kRoleBackwardName | kRoleAutogradThread | kRoleSeed;
// A step begins with a forward pass. If the program fetches its next batch between forward and backward, more
// kernels run between the optimizer and that batch's copy than cleaning up takes, and backward follows it.
constexpr size_t kComputeOfForward = 4;  // at least
constexpr size_t kBeforeBackward = 3;    // operations, such as the scaling of the loss
bool IsFetchedBeforeBackward(std::span<const StepOperation> from_anchors, size_t copy) {
  const auto computes = [](const StepOperation& operation) {
    return operation.work == WorkClass::kCompute && (operation.roles & (kRoleMemset | kRoleOptimizer)) == 0;
  };
  if (std::count_if(from_anchors.begin(), from_anchors.begin() + static_cast<ptrdiff_t>(copy), computes) <
      static_cast<ptrdiff_t>(kComputeOfForward))
    return false;
  size_t before = 0;
  for (const StepOperation& operation : from_anchors.subspan(copy)) {
    if (operation.work != WorkClass::kCompute) continue;
    if ((operation.roles & kRolesOfBackward) != 0) return true;
    if (++before > kBeforeBackward) return false;
  }
  return false;
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
  size_t called = 0;                // segments with a collective before that copy
  size_t late = 0;                  // segments in which that copy is no beginning
  size_t segments = 0;
  for (size_t s = 0; s + 1 < ends.size(); ++s) {
    if (ends[s + 1] - ends[s] != found.cut.operations && found.cut.level != Level::kLength) continue;
    ++segments;
    size_t copies_back = 0;
    bool input_seen = false;
    bool call_seen = false;
    for (size_t i = 0; i < look && ends[s] + i < operations.size(); ++i) {
      const StepOperation& at = operations[ends[s] + i];
      const StepOperation& before = operations[ends[s] + i - 1];
      if (at.launch_ns > before.launch_ns && at.launched && before.launched)
        pause_ns[i] += at.launch_ns - before.launch_ns;
      ++seen[i];
      if (copies_back == i && at.work == WorkClass::kCopyFromDevice) ++copies_back;
      call_seen = call_seen || at.work == WorkClass::kCommunication;
      if (!input_seen && at.work == WorkClass::kCopyToDevice) {
        input_seen = true;
        ++inputs[i];
        called += call_seen ? 1 : 0;
        late += IsFetchedBeforeBackward(operations.subspan(ends[s]), i) ? 1 : 0;
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
    // A collective that comes before the input is the end of the update, as where each rank updates a part of
    // the parameters and they are gathered.
    const bool gathers = called * 5 >= segments * 4;
    if (has_input && late * 2 < segments && input >= tail &&
        (gathers || mean_pause(input) >= mean_pause(tail)))
      tail = input;
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
  const auto usual = operations.subspan(found.cut.usual_end - found.cut.operations, found.cut.operations);
  found.definition.heads = static_cast<uint32_t>(std::count_if(
      usual.begin(), usual.end(),
      [&found](const StepOperation& operation) { return operation.coarse == found.definition.head; }));
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
    definition.coarse_sum = history.Sum(Level::kCoarse, begin, end);
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

// The optimizer's end is where a step ends; the source is the first sequence that has the same period.
StepDefinition DefineNamed(const History& history, Found found) {
  StepSource source = found.cut.level == Level::kFine ? StepSource::kKernels : StepSource::kOptimizer;
  if (SameCollectives(history, found.cut)) source = StepSource::kCollectives;
  return Define(history, source, true, std::move(found));
}

std::optional<StepDefinition> DefineByOptimizer(const History& history, bool at_end) {
  std::optional<Found> found = ByRole(history, kRoleOptimizer, at_end ? 1 : kLeastNamed);
  if (!found.has_value()) return std::nullopt;
  return DefineNamed(history, *std::move(found));
}

// Clipped gradients are not updated yet: microbatches may be clipped, and not reduced. The reductions know
// better, which it takes longer to find.
std::optional<StepDefinition> DefineByClipping(const History& history,
                                               const std::optional<Found>& collectives, bool at_end) {
  const auto operations = history.operations();
  const bool reduces = std::any_of(operations.begin(), operations.end(), [](const StepOperation& o) {
    return o.work == WorkClass::kCommunication;
  });
  if (reduces && !collectives.has_value() && !at_end) return std::nullopt;
  std::optional<Found> found = ByRole(history, kRoleForeach, at_end ? 1 : kLeastNamed);
  if (!found.has_value()) return std::nullopt;
  const bool shorter = collectives.has_value() && !SamePeriod(found->cut, collectives->cut) &&
                       found->cut.operations < collectives->cut.operations;
  if (shorter) return std::nullopt;
  return DefineNamed(history, *std::move(found));
}

}  // namespace

std::optional<StepDefinition> FindNamedSteps(std::span<const StepOperation> operations, bool at_end) {
  return DefineByOptimizer(History(operations), at_end);
}

std::optional<StepDefinition> FindStepDefinition(std::span<const StepOperation> operations, bool at_end,
                                                 bool marked) {
  const History history(operations);
  const size_t least = at_end ? kLeastAtEnd : kLeastUnnamed;
  if (marked) {
    std::optional<Found> found = ByRole(history, kRoleMarker, at_end ? 1 : kLeastNamed);
    if (!found.has_value()) return std::nullopt;
    return Define(history, StepSource::kMarker, true, *std::move(found));
  }
  if (auto optimizer = DefineByOptimizer(history, at_end); optimizer.has_value()) return optimizer;
  std::optional<Found> collectives = ByCollectives(history, least);
  if (auto clipped = DefineByClipping(history, collectives, at_end); clipped.has_value()) return clipped;
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
