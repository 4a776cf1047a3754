#include "collector/model/job/late_steps.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "collector/model/statistics/median_of_others.h"

namespace gpuprobe::model {

void StepHistory::Add(uint64_t step) {
  if (steps_.size() < kMaxSteps) steps_.push_back(step);
  while (step / length_ >= kMaxSpans) {
    for (size_t i = 0; i < spans_.size(); i += 2) {
      Span& into = spans_[i / 2];
      into = spans_[i];
      if (i + 1 == spans_.size() || spans_[i + 1].count == 0) continue;
      if (into.count == 0) into.first = spans_[i + 1].first;
      into.last = spans_[i + 1].last;
      into.count += spans_[i + 1].count;
    }
    spans_.resize((spans_.size() + 1) / 2);
    length_ *= 2;
  }
  const auto place = static_cast<size_t>(step / length_);
  if (spans_.size() <= place) spans_.resize(place + 1);
  Span& span = spans_[place];
  if (span.count++ == 0) span.first = step;
  span.last = step;
}

StepHistory::Stretch StepHistory::Densest() const {
  Stretch best;
  int64_t most = 0;
  Stretch open;
  int64_t sum = 0;
  for (const Span& span : spans_) {
    const auto count = static_cast<int64_t>(span.count);
    if (sum <= 0) {
      open = {};
      // A stretch may begin within a span.
      sum = count == 0 ? 0 : 2 * count - static_cast<int64_t>(span.last - span.first + 1);
    } else {
      sum += 2 * count - static_cast<int64_t>(length_);
    }
    if (span.count == 0) continue;
    if (open.count == 0) open.first = span.first;
    open.last = span.last;
    open.count += span.count;
    // The first and the last span may be late only in a part.
    const auto within = static_cast<int64_t>(open.last - open.first + 1);
    const int64_t gain = 2 * static_cast<int64_t>(open.count) - within;
    if (gain <= most) continue;
    most = gain;
    best = open;
  }
  return best;
}

void LateSteps::Add(uint64_t step, uint32_t member, const StepRecord& record) {
  if (step < closed_before_) return;
  std::vector<Told>& told = open_[step];
  told.push_back({.member = member,
                  .total_ns = record.total_ns(),
                  .host_ns = record.host_ns(),
                  .blocked_ns = record.blocked_ns,
                  .parts = {record.compute_ns, record.exposed_comm_ns, record.copy_ns, record.host_bound_ns,
                            record.input_ns, record.sync_ns, record.memory_ns, record.pause_ns,
                            record.pause_after_copy_ns},
                  .ahead_ns = static_cast<int64_t>(record.start_ns - record.first_launch_ns)});
  most_told_ = std::max(most_told_, told.size());
  if (open_.size() <= kMaxOpen) return;
  Close(open_.begin(), closed_);
  closed_before_ = open_.begin()->first + 1;
  open_.erase(open_.begin());
}

std::vector<int64_t> LateSteps::SpareOf(Steps::const_iterator step, Steps::const_iterator next) {
  std::vector<std::optional<int64_t>> later;
  for (const Told& each : next->second) {
    if (later.size() <= each.member) later.resize(each.member + 1);
    later[each.member] = each.ahead_ns;
  }
  std::vector<int64_t> spare;
  for (const Told& each : step->second) {
    if (each.member >= later.size() || !later[each.member].has_value()) return {};
    spare.push_back(*later[each.member] - each.ahead_ns + static_cast<int64_t>(each.blocked_ns));
  }
  return spare;
}

uint64_t LateSteps::MedianLength(const std::vector<Told>& told) {
  std::vector<uint64_t> lengths;
  lengths.reserve(told.size());
  for (const Told& each : told) lengths.push_back(each.total_ns);
  const auto middle = lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  if (lengths.size() % 2 != 0) return *middle;
  // Of two ranks one may have in this step what the other waits for in the next: half of it is in each.
  const uint64_t below = *std::max_element(lengths.begin(), middle);
  return below + (*middle - below) / 2;
}

void LateSteps::Close(Steps::const_iterator step, Summary& summary) const {
  const std::vector<Told>& told = step->second;
  if (static_cast<double>(told.size()) < kLeastRanks * static_cast<double>(most_told_)) return;
  const auto paces = std::max_element(told.begin(), told.end(),
                                      [](const Told& a, const Told& b) { return a.own_ns() < b.own_ns(); });
  LongSteps::Step length{.step = step->first,
                         .total_ns = MedianLength(told),
                         .parts = paces->parts,
                         .paced_by = paces->member,
                         .paced_ns = paces->own_ns()};
  if (told.size() < 2) return summary.long_steps.Add(length);
  const auto median_of = [&](auto part) {
    std::vector<uint64_t> values;
    values.reserve(told.size());
    for (const Told& each : told) values.push_back(part(each));
    return MedianOfOthers<uint64_t>(std::move(values));
  };
  const auto exposed = median_of([](const Told& t) { return t.exposed_ns(); });
  const auto late_by = [&](const Told& each) {
    const uint64_t others_ns = exposed(each.exposed_ns());
    return others_ns > each.exposed_ns() ? others_ns - each.exposed_ns() : 0;
  };
  const auto is_late = [&](const Told& each, size_t level) {
    return static_cast<double>(late_by(each)) >= kLateShares[level] * static_cast<double>(each.total_ns);
  };
  std::array<bool, kLevels> any{};
  for (const Told& each : told) {
    for (size_t level = 0; level < kLevels; ++level) any[level] = any[level] || is_late(each, level);
    if (!is_late(each, 0) || late_by(each) <= length.late_by_ns) continue;
    length.late = true;
    length.member = each.member;
    length.late_by_ns = late_by(each);
  }
  summary.long_steps.Add(length);
  std::vector<Rank>& ranks = summary.ranks;
  for (const Told& each : told) {
    if (ranks.size() <= each.member) ranks.resize(each.member + 1);
    Rank& rank = ranks[each.member];
    ++rank.steps;
    rank.last_step = step->first;
    for (size_t level = 0; level < kLevels; ++level) {
      if (is_late(each, level)) continue;
      rank.levels[level].other_steps_ns.Add(each.total_ns);
      rank.levels[level].others_late += any[level] ? 1 : 0;
    }
  }
  if (!any[0]) return;
  const auto part_of = [&](LongSteps::Part part) {
    return median_of([part](const Told& t) { return t.parts[part]; });
  };
  const auto compute = part_of(LongSteps::kCompute);
  const auto host = median_of([](const Told& t) { return t.host_ns; });
  const auto input = part_of(LongSteps::kInput);
  const auto copy = part_of(LongSteps::kCopy);
  const auto host_idle_of = [](const Told& t) { return t.host_ns + t.parts[LongSteps::kInput]; };
  const auto host_idle = median_of(host_idle_of);
  const auto next = std::next(step);
  std::vector<int64_t> spare;
  if (next != open_.end() && next->first == step->first + 1) spare = SpareOf(step, next);
  const MedianOfOthers<int64_t> others_spare(spare);
  const auto excess = [](const MedianOfOthers<uint64_t>& others, uint64_t own) {
    return static_cast<int64_t>(own) - static_cast<int64_t>(others(own));
  };
  for (size_t i = 0; i < told.size(); ++i) {
    const Told& each = told[i];
    if (!is_late(each, 0)) continue;
    const auto waited_ns = static_cast<int64_t>(late_by(each));
    const auto idle_ns = static_cast<int64_t>(host_idle(host_idle_of(each)));
    std::optional<int64_t> longer_ns = waited_ns - idle_ns;
    if (static_cast<double>(idle_ns) >= kHostPacedShare * static_cast<double>(each.total_ns)) {
      longer_ns.reset();
      if (!spare.empty()) longer_ns = others_spare(spare[i]);
    }
    for (size_t n = 0; n < kLevels && is_late(each, n); ++n) {
      Level& level = ranks[each.member].levels[n];
      ++level.late;
      level.late_total_ns += each.total_ns;
      level.late_by_ns += late_by(each);
      level.compute_ns += excess(compute, each.parts[LongSteps::kCompute]);
      level.host_ns += excess(host, each.host_ns);
      level.input_ns += excess(input, each.parts[LongSteps::kInput]);
      level.copy_ns += excess(copy, each.parts[LongSteps::kCopy]);
      level.history.Add(step->first);
      if (!longer_ns.has_value()) continue;
      ++level.longer_known;
      level.longer_by_ns += static_cast<uint64_t>(std::clamp<int64_t>(*longer_ns, 0, waited_ns));
    }
  }
}

LateSteps::Summary LateSteps::Summarize() const {
  Summary summary = closed_;
  for (auto step = open_.begin(); step != open_.end(); ++step) Close(step, summary);
  return summary;
}

bool LateSteps::IsOf(size_t members) const {
  const auto& longest = closed_.long_steps.longest();
  return closed_.ranks.size() <= members &&
         std::all_of(
             longest.begin(), longest.end(),
             [&](const LongSteps::Step& step) { return step.member < members && step.paced_by < members; }) &&
         std::all_of(open_.begin(), open_.end(), [&](const auto& step) {
           return std::all_of(step.second.begin(), step.second.end(),
                              [&](const Told& told) { return told.member < members; });
         });
}

}  // namespace gpuprobe::model
