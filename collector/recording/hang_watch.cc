#include "collector/recording/hang_watch.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/hang_verdicts.h"
#include "collector/analysis/hangs/hangs.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "collector/render/text_report.h"

namespace gpuprobe::recording {

constexpr uint64_t kIntervalNs = 1'000'000'000;
// Each request costs the records of running work, so it is not repeated for this many times the limit.
constexpr uint64_t kAskAgain = 5;

bool HangWatch::TakeRequest(const model::ProcessModel& process) {
  const auto found = requests_.find(&process);
  if (found == requests_.end() || found->second.taken) return false;
  return found->second.taken = true;
}

namespace {

// A job whose records are of another day (gpuprobe simulate makes such) cannot be judged by today's clock.
bool IsOfAnotherDay(const model::JobModel& job, uint64_t now_ns) {
  constexpr uint64_t kDayNs = 86'400'000'000'000;
  uint64_t last_ns = 0;
  for (const auto& process : job.processes())
    last_ns = std::max({last_ns, process->totals().last_ns, process->totals().last_clock_ns});
  return last_ns + kDayNs < now_ns;
}

// Model times go on as if the clock had not been set back. If only some models have noticed, an early time
// raises no false alarm.
uint64_t OnLine(const model::JobModel& job, uint64_t now_ns) {
  uint64_t least_ns = UINT64_MAX;
  for (const auto& process : job.processes()) least_ns = std::min(least_ns, process->SetBackAt(UINT64_MAX));
  return least_ns == UINT64_MAX ? now_ns : now_ns + least_ns;
}

}  // namespace

bool HangWatch::SetForward(uint64_t now_ns, uint64_t monotonic_ns) {
  const uint64_t offset_ns = now_ns - monotonic_ns;
  const uint64_t before_ns = clock_offset_ns_.value_or(offset_ns);
  clock_offset_ns_ = offset_ns;
  if (offset_ns > before_ns && offset_ns - before_ns >= kIntervalNs)
    quiet_until_ns_ = monotonic_ns + after_ns_;
  return monotonic_ns < quiet_until_ns_;
}

std::vector<std::string> HangWatch::Statements() const {
  std::vector<std::string> statements;
  for (const auto& [key, told] : told_) {
    if (!told.hang.idle) statements.push_back(analysis::HangStatement(told.hang));
  }
  return statements;
}

// Reports, once each, processes that failed while others keep running; nothing when none is left, as after
// the whole job was killed.
void HangWatch::SayDeaths(const model::JobModel& job, uint64_t now_ns) {
  std::vector<const model::ProcessModel*> died;
  size_t alive = 0;
  for (const auto& process : job.processes()) {
    alive += process->end_state() == model::EndState::kConnected ? 1 : 0;
    const std::optional<analysis::Halt> halt = analysis::HaltOf(*process, now_ns);
    const bool ended = halt.has_value() && halt->kind == analysis::Halt::Kind::kEnded;
    if (ended && halt->exit_code != 0U && !dead_.contains(process.get())) died.push_back(process.get());
  }
  if (alive == 0) return;
  for (const model::ProcessModel* process : died) {
    dead_.insert(process);
    const v1::Identity& id = process->identity();
    const bool has_rank = id.rank() >= 0 && id.rank_source() != v1::RANK_SOURCE_NONE;
    say_(absl::StrCat("DEAD  ", has_rank ? absl::StrCat("Rank ", id.rank()) : absl::StrCat("Pid ", id.pid()),
                      " ", analysis::HaltText(*analysis::HaltOf(*process, now_ns)), "; ", alive,
                      alive == 1 ? " other process keeps running.\n" : " other processes keep running.\n"));
  }
}

void HangWatch::Tell(const std::string& key, const analysis::Hang& hang, uint64_t now_ns) {
  const auto found = told_.find(key);
  const bool added = found == told_.end();
  // Longer waiting is not news.
  if (added || !analysis::SameCulprits(found->second.hang, hang))
    write_(analysis::VerdictOf(hang, now_ns, /*until_ns=*/0));
  told_[key] = {.hang = hang, .seen_ns = now_ns};
  if (added) say_(render::HangBlock(hang, layout_));
}

bool HangWatch::EndOf(const Told& told, const model::JobModel& job, const std::vector<analysis::Hang>& hangs,
                      uint64_t now_ns) {
  const analysis::Hang& hang = told.hang;
  const bool went_on = analysis::WentOn(job, hang, told.seen_ns);
  if (!went_on && analysis::WaitingEnded(job, hang)) return false;
  v1::HangVerdict verdict = analysis::VerdictOf(hang, told.seen_ns, now_ns);
  const bool replaced =
      !went_on && (hang.kind == analysis::Hang::Kind::kNoWork ||
                   std::any_of(hangs.begin(), hangs.end(), [&](const analysis::Hang& other) {
                     return analysis::ShareWaiting(hang, other);
                   }));
  if (!went_on && !replaced) return false;  // as when its culprit has just died: what follows is not known
  verdict.set_withdrawn(replaced);
  write_(verdict);
  if (!replaced) say_(absl::StrCat(analysis::HangOverStatement(hang), "\n"));
  return true;
}

void HangWatch::Tick(const model::JobModel& job, uint64_t now_ns, uint64_t monotonic_ns) {
  if (monotonic_ns < next_ns_) return;
  next_ns_ = monotonic_ns + kIntervalNs;
  if (IsOfAnotherDay(job, now_ns)) return;
  now_ns = OnLine(job, now_ns);
  SayDeaths(job, now_ns);
  const bool quiet = SetForward(now_ns, monotonic_ns);
  std::set<std::string> seen;
  std::set<std::string> unsure;
  std::vector<uint32_t> held_back;
  const std::vector<analysis::Hang> hangs = analysis::HangsOf(job, now_ns, after_ns_, &held_back);
  for (const uint32_t process : held_back) {
    Request& request = requests_[job.processes()[process].get()];
    if (monotonic_ns >= request.again_ns) request = {monotonic_ns + kAskAgain * after_ns_, false};
  }
  for (const analysis::Hang& hang : hangs) {
    const std::string key = analysis::HangKey(hang);
    seen.insert(key);
    // What excuses a host that launches nothing is what it is in at this moment: one that has just come out
    // of it goes on at once, and is seen only once.
    const bool is_moment = hang.kind == analysis::Hang::Kind::kNoWork && !hang.idle;
    if (is_moment) unsure.insert(key);
    const bool is_sure = !is_moment || unsure_.contains(key);
    if (told_.contains(key) || (!quiet && is_sure)) Tell(key, hang, now_ns);
  }
  unsure_ = std::move(unsure);
  std::erase_if(told_, [&](const auto& entry) {
    return !seen.contains(entry.first) && EndOf(entry.second, job, hangs, now_ns);
  });
}

}  // namespace gpuprobe::recording
