#include "collector/model/job/step_alignment.h"

#include <algorithm>
#include <optional>

namespace gpuprobe::model {

bool StepAlignment::Wants(uint64_t hash, size_t ranks) {
  if (calls_.size() >= kMaxCommunicators && !calls_.contains(hash)) return false;
  return calls_[hash]++ % std::max<size_t>(kEvery, ranks / kRanksForEach) == 0;
}

void StepAlignment::Settle(const Members& members, bool all) {
  while (!waiting_.empty()) {
    const Ends& ends = waiting_.front();
    const bool complete = std::all_of(ends.begin(), ends.end(), [&](const auto& end) {
      const auto& steps = members[end.first].steps().steps();
      return !steps.empty() && steps.back().end_ns >= end.second;
    });
    if (!complete && !all && waiting_.size() <= kMaxWaiting) return;
    Look(members, ends);
    waiting_.pop_front();
  }
}

void StepAlignment::Look(const Members& members, const Ends& ends) {
  std::optional<int64_t> furthest;
  std::vector<std::pair<uint32_t, uint64_t>> steps;
  for (const auto& [member, end_ns] : ends) {
    const std::optional<uint64_t> index = members[member].steps().StepAt(end_ns == 0 ? 0 : end_ns - 1);
    if (!index.has_value()) continue;
    steps.emplace_back(member, *index);
    const int64_t number = static_cast<int64_t>(*index) + Behind(member, *index);
    furthest = std::max(furthest.value_or(number), number);
  }
  if (steps.size() < 2) return;
  for (const auto& [member, index] : steps) {
    if (member >= ranks_.size()) ranks_.resize(member + 1);
    Say(ranks_[member], index, *furthest - static_cast<int64_t>(index));
  }
}

// One call may be at the border of a step: two that follow one another must agree.
void StepAlignment::Say(Rank& rank, uint64_t index, int64_t behind) {
  const int64_t known = rank.changes.empty() ? 0 : rank.changes.back().second;
  if (behind == known) {
    rank.doubted = false;
    return;
  }
  if (!rank.doubted || rank.seen != behind) {
    rank.doubted = true;
    rank.seen = behind;
    rank.seen_from = index;
    return;
  }
  rank.doubted = false;
  if (rank.changes.size() == kMaxChanges) rank.changes.erase(rank.changes.begin());
  rank.changes.emplace_back(rank.seen_from, behind);
}

bool StepAlignment::IsOf(size_t members) const {
  return ranks_.size() <= members && std::all_of(waiting_.begin(), waiting_.end(), [&](const Ends& ends) {
           return std::all_of(ends.begin(), ends.end(), [&](const auto& end) { return end.first < members; });
         });
}

int64_t StepAlignment::Behind(uint32_t member, uint64_t index) const {
  if (member >= ranks_.size()) return 0;
  int64_t behind = 0;
  for (const auto& [from, by] : ranks_[member].changes) {
    if (from <= index) behind = by;
  }
  return behind;
}

}  // namespace gpuprobe::model
