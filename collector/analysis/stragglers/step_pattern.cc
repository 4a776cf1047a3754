#include "collector/analysis/stragglers/step_pattern.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kTimes = 3;  // fewer have no period
constexpr uint64_t kOffBy = 1;
constexpr uint64_t kOffByOneFrom = 8;  // steps: in a shorter period, a step is too large a share
constexpr uint64_t kLong = 8;          // steps: stretches from this length on stand out among single steps
constexpr size_t kStraysOneIn = 10;    // late steps that belong to no stretch
constexpr size_t kTimesToOneOther = 4;

struct Burst {
  uint64_t first = 0;
  uint64_t last = 0;

  uint64_t length() const { return last - first + 1; }
};

// Steps that follow one another, with up to `hole` steps between them.
std::vector<Burst> BurstsOf(std::span<const uint64_t> steps, uint64_t hole) {
  std::vector<Burst> bursts;
  for (const uint64_t step : steps) {
    if (!bursts.empty() && step <= bursts.back().last + 1 + hole) {
      bursts.back().last = step;
    } else {
      bursts.push_back({step, step});
    }
  }
  return bursts;
}

// Without those that are far shorter than the longest one; none if these are many, or if it is short itself.
std::vector<Burst> WithoutStrays(std::vector<Burst> bursts, size_t steps) {
  uint64_t longest = 0;
  for (const Burst& burst : bursts) longest = std::max(longest, burst.length());
  if (longest < kLong) return {};
  uint64_t strays = 0;
  std::erase_if(bursts, [&](const Burst& burst) {
    if (2 * burst.length() >= longest) return false;
    strays += burst.length();
    return true;
  });
  return strays * kStraysOneIn > steps ? std::vector<Burst>{} : bursts;
}

// Of an even number the lower one: what chance adds makes stretches longer.
uint64_t MiddleOf(std::vector<uint64_t> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool AllNear(const std::vector<uint64_t>& values, uint64_t middle, uint64_t off_by) {
  return std::all_of(values.begin(), values.end(),
                     [&](uint64_t v) { return v + off_by >= middle && v <= middle + off_by; });
}

std::optional<StepPattern> RegularOf(const std::vector<Burst>& bursts) {
  if (bursts.size() < kTimes) return std::nullopt;
  std::vector<uint64_t> gaps;
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i + 1 < bursts.size(); ++i) {
    gaps.push_back(bursts[i + 1].first - bursts[i].first);
    lengths.push_back(bursts[i].length());
  }
  const uint64_t every = MiddleOf(gaps);
  const uint64_t length = MiddleOf(lengths);
  // Equally long stretches are evidence of their own.
  const bool exact = every < kOffByOneFrom || (gaps.size() < kTimes && length < kLong);
  const uint64_t longer = std::max(kOffBy, length / kStraysOneIn);
  if (!AllNear(gaps, every, exact ? 0 : kOffBy)) return std::nullopt;
  if (!AllNear(lengths, length, length > 2 ? longer : 0)) return std::nullopt;
  if (bursts.back().length() > length + longer) return std::nullopt;
  return StepPattern{.every = every, .length = length, .first = bursts.front().first};
}

// Those of `steps` that begin with two of them and go on at their distance.
std::vector<Burst> FollowedFrom(std::span<const uint64_t> steps, uint64_t first, uint64_t second) {
  const uint64_t every = second - first;
  const uint64_t off_by = every < kOffByOneFrom ? 0 : kOffBy;
  std::vector<Burst> followed = {{first, first}};
  for (const uint64_t step : steps) {
    const uint64_t last = followed.back().last;
    if (step + off_by >= last + every && step <= last + every + off_by) followed.push_back({step, step});
  }
  return followed;
}

}  // namespace

std::optional<StepPattern> StepPatternOf(std::span<const uint64_t> steps) {
  if (const auto strict = RegularOf(BurstsOf(steps, 0))) return strict;
  const std::vector<Burst> holed = BurstsOf(steps, 1);
  if (const auto regular = RegularOf(holed)) return regular;
  return RegularOf(WithoutStrays(holed, steps.size()));
}

std::optional<StepPattern> StepPatternOfMost(std::span<const uint64_t> steps) {
  if (const auto all = StepPatternOf(steps)) return all;
  std::vector<Burst> most;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t k = i + 1; k < steps.size(); ++k) {
      std::vector<Burst> followed = FollowedFrom(steps, steps[i], steps[k]);
      if (followed.size() > most.size()) most = std::move(followed);
    }
  }
  const size_t others = steps.size() - most.size();
  if (others * kTimesToOneOther > most.size()) return std::nullopt;
  std::optional<StepPattern> pattern = RegularOf(most);
  if (pattern.has_value()) pattern->others = others;
  return pattern;
}

std::string PatternText(const StepPattern& pattern) {
  if (pattern.length == 1) return absl::StrCat("every ", pattern.every, " steps");
  return absl::StrCat("for ", pattern.length, " of every ", pattern.every, " steps");
}

}  // namespace gpuprobe::analysis
