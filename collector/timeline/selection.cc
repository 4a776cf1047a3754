#include "collector/timeline/selection.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuprobe::timeline {
namespace {

constexpr uint64_t kAroundNs = 1'000'000'000;
constexpr int kMaxRank = 1 << 20;

absl::Status BadSteps(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("must be a step, or steps like 100:110 (100 to 109), 100: or :10, got \"", text, "\""));
}

absl::Status BadRanks(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("must be ranks like 0,3 or 0-7, got \"", text, "\""));
}

uint64_t LastIndex(const std::vector<AlignedStep>& steps) {
  uint64_t last = 0;
  for (const AlignedStep& step : steps) last = std::max(last, step.index);
  return last;
}

// The step whose length is the median, over all ranks and without the warm-up.
std::optional<uint64_t> TypicalStep(const std::vector<AlignedStep>& steps) {
  std::vector<std::pair<uint64_t, uint64_t>> by_length;
  for (const bool warmup : {false, true}) {
    for (const AlignedStep& step : steps) {
      if (step.warmup == warmup) by_length.emplace_back(step.end_ns - step.start_ns, step.index);
    }
    if (!by_length.empty()) break;
  }
  if (by_length.empty()) return std::nullopt;
  const auto middle = by_length.begin() + static_cast<ptrdiff_t>(by_length.size() / 2);
  std::nth_element(by_length.begin(), middle, by_length.end());
  return middle->second;
}

std::optional<uint64_t> StepAt(const std::vector<AlignedStep>& steps, uint64_t time_ns) {
  for (const AlignedStep& step : steps) {
    if (step.start_ns <= time_ns && time_ns < step.end_ns) return step.index;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<StepSpan> ParseSteps(const std::string& text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  StepSpan span;
  const auto number = [](absl::string_view part, uint64_t& value) { return absl::SimpleAtoi(part, &value); };
  if (parts.size() == 1) {
    if (!number(parts[0], span.first) || span.first == UINT64_MAX) return BadSteps(text);
    span.end = span.first + 1;
    return span;
  }
  if (parts.size() != 2 || text == ":") return BadSteps(text);
  if (!parts[0].empty() && !number(parts[0], span.first)) return BadSteps(text);
  if (!parts[1].empty() && !number(parts[1], span.end)) return BadSteps(text);
  if (span.end <= span.first) return BadSteps(text);
  return span;
}

absl::StatusOr<std::vector<int>> ParseRanks(const std::string& text) {
  std::set<int> ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last > kMaxRank)
      return BadRanks(text);
    for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
  }
  return std::vector<int>(ranks.begin(), ranks.end());
}

absl::StatusOr<Window> WindowOfSteps(const std::vector<AlignedStep>& steps, StepSpan span) {
  Window window{.from_ns = UINT64_MAX, .until_ns = 0};
  for (const AlignedStep& step : steps) {
    if (step.index < span.first || step.index >= span.end) continue;
    window.from_ns = std::min(window.from_ns, step.start_ns);
    window.until_ns = std::max(window.until_ns, step.end_ns);
  }
  if (window.from_ns < window.until_ns) return window;
  if (steps.empty()) return absl::NotFoundError("no step was found in this run");
  return absl::NotFoundError(absl::StrCat("no such step; this run has steps 0 to ", LastIndex(steps)));
}

absl::StatusOr<Window> WindowOfMoment(const analysis::Moment& moment, const std::vector<AlignedStep>& steps,
                                      std::string& what) {
  std::optional<uint64_t> step = moment.step;
  if (!step.has_value() && moment.time_ns.has_value()) {
    step = StepAt(steps, *moment.time_ns);
    if (!step.has_value()) {
      what = "one second before and after";
      return Window{.from_ns = *moment.time_ns - std::min(*moment.time_ns, kAroundNs),
                    .until_ns = *moment.time_ns + kAroundNs};
    }
  }
  const bool typical = !step.has_value();
  if (typical) step = TypicalStep(steps);
  if (!step.has_value()) return absl::NotFoundError("no step was found in this run");
  what = absl::StrCat(typical ? "a typical step, " : "step ", *step, ", and one step before and after");
  return WindowOfSteps(steps, {.first = *step - std::min<uint64_t>(*step, 1), .end = *step + 2});
}

}  // namespace gpuprobe::timeline
