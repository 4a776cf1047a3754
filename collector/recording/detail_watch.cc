#include "collector/recording/detail_watch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "collector/analysis/median.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"

namespace gpuprobe::recording {
namespace {

namespace thresholds = analysis::thresholds;
constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint32_t kLimitMs = 60'000;
// The root of the sum of the squares of the pauses between calls, as a share of the time. One long pause a
// step: 16 steps that are all pause are a quarter, or 4 that are half of it.
constexpr double kMostPauses = 0.25;

double Share(uint64_t part_ns, uint64_t whole_ns) {
  return whole_ns == 0 ? 0 : static_cast<double>(part_ns) / static_cast<double>(whole_ns);
}

}  // namespace

std::vector<DetailWatch::Seen> DetailWatch::Sums(const model::JobModel& job) {
  const auto& traced = job.trace().processes();
  std::vector<Seen> sums;
  for (size_t i = 0; i < traced.size(); ++i) {
    const v1::Identity& id = job.processes()[i]->identity();
    const auto& compared = job.trace().SumsOf(traced[i]);
    sums.push_back({.rank = analysis::HasRank(id) ? id.rank() : -1,
                    .compared = compared.compared,
                    .late_ns = compared.late_ns,
                    .calls = traced[i].calls,
                    .steps = traced[i].steps,
                    .steps_ns = traced[i].steps_ns,
                    .last_ns = traced[i].last_ns,
                    .pauses_us2 = traced[i].pauses_us2});
  }
  return sums;
}

std::vector<DetailWatch::Seen> DetailWatch::Since(const std::vector<Seen>& sums) {
  std::vector<Seen> since = sums;
  const bool same = before_.size() == sums.size();
  for (size_t i = 0; same && i < sums.size(); ++i) {
    if (sums[i].compared < before_[i].compared) return {};  // counted by something else now
    since[i].compared -= before_[i].compared;
    since[i].late_ns -= std::min(before_[i].late_ns, since[i].late_ns);
    since[i].calls -= before_[i].calls;
    since[i].steps -= before_[i].steps;
    since[i].steps_ns -= before_[i].steps_ns;
    since[i].last_ns = before_[i].last_ns == 0 ? 0 : since[i].last_ns - before_[i].last_ns;
    since[i].pauses_us2 -= before_[i].pauses_us2;
  }
  return same ? since : std::vector<Seen>();
}

uint64_t DetailWatch::SpanOf(const std::vector<Seen>& since) {
  uint64_t span_ns = 0;
  for (const Seen& seen : since) span_ns = std::max(span_ns, seen.last_ns);
  return span_ns;
}

void DetailWatch::NoteLate(const std::vector<Seen>& since, uint64_t span_ns) {
  const auto latest = std::max_element(since.begin(), since.end(),
                                       [](const Seen& a, const Seen& b) { return a.late_ns < b.late_ns; });
  const double share = Share(latest->late_ns, span_ns);
  const bool is_late = latest->rank >= 0 && share >= thresholds::kLateCallsShare;
  late_looks_ = !is_late ? 0 : latest->rank == late_rank_ ? late_looks_ + 1 : 1;
  late_rank_ = is_late ? latest->rank : -1;
  on_time_looks_ = share < thresholds::kOnTimeCallsShare ? on_time_looks_ + 1 : 0;
  if (on_time_looks_ >= kLooks) captured_.clear();
}

void DetailWatch::NoteSteps(const std::vector<Seen>& since) {
  uint64_t steps = 0;
  uint64_t steps_ns = 0;
  for (const Seen& seen : since) {
    steps += seen.steps;
    steps_ns += seen.steps_ns;
  }
  if (steps > 0) {
    NoteRound(true, static_cast<double>(steps_ns) / static_cast<double>(steps));
  } else if (!has_steps_) {
    NoteCalls(since);
  }
}

void DetailWatch::NoteCalls(const std::vector<Seen>& since) {
  const auto most = std::max_element(since.begin(), since.end(),
                                     [](const Seen& a, const Seen& b) { return a.calls < b.calls; });
  calls_.calls += most->calls;
  calls_.last_ns += most->last_ns;
  calls_.pauses_us2 += most->pauses_us2;
  const double pauses_ns = 1000 * std::sqrt(static_cast<double>(calls_.pauses_us2));
  if (calls_.calls == 0 || pauses_ns > kMostPauses * static_cast<double>(calls_.last_ns)) return;
  NoteRound(false, static_cast<double>(calls_.last_ns) / static_cast<double>(calls_.calls));
  calls_ = {};
}

void DetailWatch::NoteRound(bool is_step, double mean_ns) {
  if (is_step != has_steps_) {
    usual_ns_.clear();
    long_looks_ = 0;
  }
  has_steps_ = is_step;
  round_ns_ = mean_ns;
  const bool is_known = usual_ns_.size() >= kUsualLooks;
  const bool is_long = is_known && round_ns_ > UsualNs() * (1 + thresholds::kLongerStepsShare);
  long_looks_ = is_long ? long_looks_ + 1 : 0;
  if (is_long) return;  // what is usual is not learned from what is not
  long_captured_ = false;
  usual_ns_.push_back(round_ns_);
  if (usual_ns_.size() > 4 * kUsualLooks) usual_ns_.pop_front();
}

double DetailWatch::UsualNs() const { return analysis::UpperMedian({usual_ns_.begin(), usual_ns_.end()}); }

bool DetailWatch::MayRaise(uint64_t monotonic_ns) {
  while (!raised_ns_.empty() && monotonic_ns - raised_ns_.front() >= kHourNs) raised_ns_.pop_front();
  return raised_ns_.size() < kMostInHour &&
         (raised_ns_.empty() || monotonic_ns - raised_ns_.back() >= kApartNs);
}

std::set<int> DetailWatch::RanksFor(int late_rank, const std::vector<Seen>& since) {
  std::vector<Seen> by_rank = since;
  std::erase_if(by_rank, [](const Seen& seen) { return seen.rank < 0; });
  std::sort(by_rank.begin(), by_rank.end(), [](const Seen& a, const Seen& b) { return a.rank < b.rank; });
  const auto late =
      std::find_if(by_rank.begin(), by_rank.end(), [&](const Seen& seen) { return seen.rank == late_rank; });
  const auto place = static_cast<size_t>(late - by_rank.begin());
  const size_t count = by_rank.size();
  std::set<int> ranks{late_rank, by_rank[(place + 1) % count].rank,
                      by_rank[(place + count - 1) % count].rank};
  const Seen* healthy = nullptr;
  for (const Seen& seen : by_rank) {
    if (!ranks.contains(seen.rank) && (healthy == nullptr || seen.late_ns < healthy->late_ns))
      healthy = &seen;
  }
  if (healthy != nullptr) ranks.insert(healthy->rank);
  return ranks;
}

std::optional<DetailWatch::Decision> DetailWatch::Decide(const std::vector<Seen>& since, uint64_t span_ns,
                                                         uint64_t monotonic_ns, uint64_t now_ns) {
  const bool is_late = late_looks_ >= kLooks && !captured_.contains(late_rank_);
  const bool is_long = long_looks_ >= kLooks && !long_captured_;
  if ((!is_late && !is_long) || !MayRaise(monotonic_ns)) return std::nullopt;
  Decision decision;
  decision.raise.set_decided_ns(now_ns);
  decision.raise.set_rank(is_late ? late_rank_ : -1);
  decision.request.set_steps(kSteps);
  decision.request.set_limit_ms(kLimitMs);
  if (is_late) {
    for (const int rank : RanksFor(late_rank_, since)) {
      decision.raise.add_ranks(static_cast<uint32_t>(rank));
      decision.request.add_ranks(static_cast<uint32_t>(rank));
    }
    const auto late = std::find_if(since.begin(), since.end(),
                                   [this](const Seen& seen) { return seen.rank == late_rank_; });
    decision.raise.set_reason(absl::StrCat("rank ", late_rank_, " was late at collectives for ",
                                           analysis::Percent(Share(late->late_ns, span_ns)), " of ",
                                           analysis::Duration(static_cast<double>(span_ns))));
    captured_.insert(late_rank_);
  } else {
    decision.raise.set_reason(absl::StrCat(has_steps_ ? "steps took " : "collectives came every ",
                                           analysis::Duration(round_ns_), ", usually ",
                                           has_steps_ ? "" : "every ", analysis::Duration(UsualNs())));
    long_captured_ = true;
  }
  raised_ns_.push_back(monotonic_ns);
  return decision;
}

std::optional<DetailWatch::Decision> DetailWatch::Look(const model::JobModel& job, bool may_raise,
                                                       uint64_t monotonic_ns, uint64_t now_ns) {
  if (monotonic_ns - looked_ns_ < kLookNs) return std::nullopt;
  looked_ns_ = monotonic_ns;
  const std::vector<Seen> sums = Sums(job);
  const std::vector<Seen> since = Since(sums);
  const uint64_t span_ns = SpanOf(since);
  const bool is_known = !since.empty() && may_raise && span_ns > 0;
  const bool is_little =
      std::all_of(since.begin(), since.end(), [](const Seen& seen) { return seen.compared < kLeastCalls; });
  if (is_known && is_little) return std::nullopt;  // the next look has it, too
  before_ = sums;
  if (!is_known) {
    late_looks_ = long_looks_ = on_time_looks_ = 0;
    calls_ = {};
    return std::nullopt;
  }
  NoteLate(since, span_ns);
  NoteSteps(since);
  return Decide(since, span_ns, monotonic_ns, now_ns);
}

}  // namespace gpuprobe::recording
