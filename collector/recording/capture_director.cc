#include "collector/recording/capture_director.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"

namespace gpuprobe::recording {
namespace {

constexpr uint64_t kCaptureSecondNs = 1'000'000'000;
constexpr uint64_t kAnswerWaitNs = 15 * kCaptureSecondNs;
constexpr uint64_t kBetweenAsksNs = kCaptureSecondNs;
// A process that is at rest looks for orders once a second. A begin that some rank has passed when the order
// comes is chosen again, further ahead.
constexpr double kLeadSeconds = 2.5;
constexpr int kMostTries = 4;
// Beyond the limit: for the window's last work, and for records to be sent.
constexpr uint64_t kSettleWaitNs = 70 * kCaptureSecondNs;
constexpr size_t kMostNamed = 4;

std::string NameOf(const model::ProcessModel& process) {
  const v1::Identity& id = process.identity();
  return analysis::HasRank(id) ? absl::StrCat("rank ", id.rank()) : absl::StrCat("pid ", id.pid());
}

bool IsIdle(const model::ProcessModel& process) {
  return process.hello().level() == v1::RECORDING_LEVEL_IDLE;
}

const v1::CaptureState& StateOf(const model::ProcessModel& process) { return process.captures().state(); }

bool HasEnded(const v1::CaptureState& state) {
  return state.phase() == v1::CAPTURE_PHASE_DONE || state.phase() == v1::CAPTURE_PHASE_CUT;
}

std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> some = names;
  if (names.size() > kMostNamed) some.resize(kMostNamed);
  if (names.size() > kMostNamed) some.push_back(absl::StrCat(names.size() - kMostNamed, " more"));
  return absl::StrJoin(some, ", ");
}

std::string Steps(uint64_t first, uint64_t end) {
  if (end - first <= 1) return absl::StrCat("step ", first);
  return absl::StrCat("steps ", first, " to ", end - 1);
}

std::string Ranks(size_t count) { return absl::StrCat(count, count == 1 ? " process" : " processes"); }

}  // namespace

std::vector<const model::ProcessModel*> CaptureDirector::Chosen(
    const v1::CaptureRequest& request, const std::vector<const model::ProcessModel*>& connected) {
  const std::set<uint32_t> wanted(request.ranks().begin(), request.ranks().end());
  const bool any_rank = std::any_of(connected.begin(), connected.end(), [](const auto* process) {
    return analysis::HasRank(process->identity());
  });
  std::vector<const model::ProcessModel*> chosen;
  for (const model::ProcessModel* process : connected) {
    const bool has_rank = analysis::HasRank(process->identity());
    const bool is_wanted =
        wanted.empty() ? has_rank || !any_rank
                       : has_rank && wanted.contains(static_cast<uint32_t>(process->identity().rank()));
    if (is_wanted) chosen.push_back(process);
  }
  std::sort(chosen.begin(), chosen.end(), [](const model::ProcessModel* a, const model::ProcessModel* b) {
    return std::pair(a->identity().rank(), a->identity().pid()) <
           std::pair(b->identity().rank(), b->identity().pid());
  });
  return chosen;
}

absl::Status CaptureDirector::Check(const v1::CaptureRequest& request,
                                    const std::vector<const model::ProcessModel*>& connected) {
  if (connected.empty())
    return absl::FailedPreconditionError(
        "no process of this run is connected: none has used CUDA yet, or all have ended");
  const std::vector<const model::ProcessModel*> chosen = Chosen(request, connected);
  std::set<int> here;
  for (const model::ProcessModel* process : connected) {
    if (analysis::HasRank(process->identity())) here.insert(process->identity().rank());
  }
  for (const uint32_t rank : request.ranks()) {
    if (here.contains(static_cast<int>(rank))) continue;
    return absl::NotFoundError(absl::StrCat(
        "rank ", rank, " is not connected to this collector; ",
        here.empty() ? "its processes have no ranks" : absl::StrCat("it has ", absl::StrJoin(here, ", "))));
  }
  const auto full = std::find_if_not(chosen.begin(), chosen.end(), [](const auto* p) { return IsIdle(*p); });
  if (full == chosen.end()) return absl::OkStatus();
  if (std::none_of(chosen.begin(), chosen.end(), [](const auto* p) { return IsIdle(*p); }))
    return absl::AlreadyExistsError("this run is at level full, so everything is recorded anyway");
  return absl::FailedPreconditionError(
      absl::StrCat(NameOf(**full), " is at level full, others at level idle; set GPUPROBE_LEVEL alike"));
}

CaptureDirector::CaptureDirector(v1::CaptureRequest request,
                                 const std::vector<const model::ProcessModel*>& connected, uint64_t first_id,
                                 Send send)
    : request_(std::move(request)), send_(std::move(send)), id_(first_id) {
  for (const model::ProcessModel* process : Chosen(request_, connected))
    members_.push_back({.process = process});
}

void CaptureDirector::Say(const std::string& words) {
  if (words == said_) return;
  said_ = words;
  v1::CaptureProgress& progress = progress_.emplace_back();
  progress.set_words(words);
}

void CaptureDirector::End(const std::string& words, bool failed) {
  stage_ = Stage::kOver;
  v1::CaptureProgress& progress = progress_.emplace_back();
  progress.set_words(words);
  progress.set_over(true);
  progress.set_failed(failed);
}

// An order that ends where it begins: the processes that have another let go of it.
void CaptureDirector::Cancel() {
  v1::Capture nothing;
  nothing.set_id(++id_);
  nothing.set_clock(v1::CAPTURE_CLOCK_TIME);
  for (const Member& member : members_) {
    if (!member.left) send_(*member.process, nothing);
  }
}

bool CaptureDirector::HasRecorded(const Member& member, bool whole) const {
  const model::Captures& captures = member.process->captures();
  const v1::CaptureState& state = captures.state();
  if (state.id() == order_.id() && HasEnded(state))
    return whole ? state.phase() == v1::CAPTURE_PHASE_DONE : state.steps() > 0;
  if (order_.clock() == v1::CAPTURE_CLOCK_TIME || captures.windows().empty()) return false;
  const uint64_t per_step = std::max<uint32_t>(order_.calls_per_step(), 1);
  const model::Captures::Window& window = captures.windows().back();
  const uint64_t first = order_.begin() / per_step;
  return window.has_steps && window.first >= first && (!whole || window.last + 1 >= first + request_.steps());
}

void CaptureDirector::OnLeft(const model::ProcessModel& process) {
  for (Member& member : members_) {
    if (member.process != &process || member.left || over()) continue;
    member.left = true;
    if (!HasRecorded(member, /*whole=*/true))
      Say(absl::StrCat(NameOf(process), " has left during the capture"));
  }
}

bool CaptureDirector::AllAnswered() const {
  return std::all_of(members_.begin(), members_.end(), [this](const Member& member) {
    return member.left || StateOf(*member.process).id() == id_;
  });
}

std::string CaptureDirector::WhoHasNotAnswered() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (!member.left && StateOf(*member.process).id() != id_) names.push_back(NameOf(*member.process));
  }
  return Names(names);
}

void CaptureDirector::Ask(uint64_t monotonic_ns) {
  v1::Capture question;
  question.set_id(++id_);
  for (const Member& member : members_) {
    if (!member.left) send_(*member.process, question);
  }
  asked_ns_ = monotonic_ns;
  deadline_ns_ = monotonic_ns + kAnswerWaitNs;
  stage_ = Stage::kAsked;
}

void CaptureDirector::Order(const v1::Capture& order, uint64_t monotonic_ns) {
  order_ = order;
  order_.set_id(++id_);
  order_.set_limit_ms(request_.limit_ms());
  for (const Member& member : members_) {
    if (!member.left) send_(*member.process, order_);
  }
  deadline_ns_ = monotonic_ns + kAnswerWaitNs;
  stage_ = Stage::kOrdered;
}

v1::CaptureClock CaptureDirector::CommonClock() const {
  if (request_.steps() == 0) return v1::CAPTURE_CLOCK_TIME;
  bool marked = true;
  bool alike = true;
  const v1::CaptureState* first = nullptr;
  for (const Member& member : members_) {
    if (member.left) continue;
    const v1::CaptureState& state = StateOf(*member.process);
    if (first == nullptr) first = &state;
    marked = marked && state.has_marker();
    alike = alike && state.communicator() != 0 && state.communicator() == first->communicator() &&
            state.communicator_ranks() == first->communicator_ranks();
  }
  // Of one process, its own steps are as good as common ones.
  if (marked) return v1::CAPTURE_CLOCK_MARKER;
  return alike && Period() != nullptr ? v1::CAPTURE_CLOCK_CALLS : v1::CAPTURE_CLOCK_NONE;
}

const v1::CaptureState* CaptureDirector::Period() const {
  std::map<uint32_t, std::pair<size_t, const v1::CaptureState*>> votes;
  for (const Member& member : members_) {
    const v1::CaptureState& state = StateOf(*member.process);
    if (member.left || state.calls_per_step() == 0) continue;
    auto& [count, first] = votes[state.calls_per_step()];
    if (count++ == 0) first = &state;
  }
  const auto most = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return a.second.first < b.second.first;
  });
  return most == votes.end() ? nullptr : most->second.second;
}

uint64_t CaptureDirector::PositionOf(const Member& member, v1::CaptureClock clock) const {
  const v1::CaptureState& state = StateOf(*member.process);
  return clock == v1::CAPTURE_CLOCK_MARKER ? state.steps_begun() : state.calls();
}

void CaptureDirector::Choose(uint64_t monotonic_ns, uint64_t now_ns) {
  const v1::CaptureClock clock = CommonClock();
  if (clock == v1::CAPTURE_CLOCK_NONE) {
    End("steps are not known at level idle: there is no GPUPROBE_STEP_MARKER, and collectives on one "
        "communicator of "
        "all ranks do not repeat; capture a window of time: --seconds 2",
        true);
    return;
  }
  if (clock != v1::CAPTURE_CLOCK_TIME) return ChooseSteps(clock, monotonic_ns);
  v1::Capture order;
  order.set_clock(clock);
  order.set_begin(now_ns + static_cast<uint64_t>(kLeadSeconds * kCaptureSecondNs));
  order.set_end(order.begin() + request_.duration_ms() * 1'000'000);
  Order(order, monotonic_ns);
}

void CaptureDirector::ChooseSteps(v1::CaptureClock clock, uint64_t monotonic_ns) {
  uint64_t most = 0;
  double rate = 0;  // per second, of the fastest
  const v1::CaptureState* const state = Period();
  for (Member& member : members_) {
    if (member.left) continue;
    const uint64_t position = PositionOf(member, clock);
    most = std::max(most, position);
    if (member.first_ns == 0) {
      member.first_ns = asked_ns_;
      member.first_position = position;
    }
    const double seconds = static_cast<double>(asked_ns_ - member.first_ns) / kCaptureSecondNs;
    if (seconds > 0 && position >= member.first_position)
      rate = std::max(rate, static_cast<double>(position - member.first_position) / seconds);
  }
  const uint64_t per_step = clock == v1::CAPTURE_CLOCK_CALLS ? state->calls_per_step() : 1;
  if (earliest_ == 0) earliest_ = most + request_.wait() * per_step + 1;
  const bool knows_rate = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return !member.left && member.first_ns != asked_ns_;
  });
  const double lead_seconds = kLeadSeconds * (1 << tries_);
  const uint64_t lead = static_cast<uint64_t>(std::ceil(rate * lead_seconds)) + request_.warmup() * per_step;
  // Far from the first step to record, CUPTI is not started yet.
  const bool is_far = most + lead + static_cast<uint64_t>(rate * 2) < earliest_;
  if (!knows_rate || (is_far && rate > 0)) {
    if (is_far && knows_rate && request_.wait() > 0)
      Say(absl::StrCat("waiting for ", request_.wait(), " steps to pass"));
    stage_ = Stage::kBegin;  // asks again
    return;
  }
  uint64_t begin = std::max(most + lead + 1, earliest_);
  if (clock == v1::CAPTURE_CLOCK_CALLS) {
    const uint64_t phase = state->step_call() % per_step;
    begin += (per_step + phase - begin % per_step) % per_step;
  }
  v1::Capture order;
  order.set_clock(clock);
  order.set_begin(begin);
  order.set_end(begin + request_.steps() * per_step);
  if (clock == v1::CAPTURE_CLOCK_CALLS) {
    order.set_communicator(state->communicator());
    order.set_calls_per_step(static_cast<uint32_t>(per_step));
  }
  Order(order, monotonic_ns);
}

void CaptureDirector::OnOrdered(uint64_t monotonic_ns) {
  bool passed = false;
  for (const Member& member : members_) {
    if (member.left) continue;
    const v1::CaptureState& state = StateOf(*member.process);
    if (state.phase() == v1::CAPTURE_PHASE_UNABLE) {
      Cancel();
      return End(absl::StrCat(NameOf(*member.process),
                              " cannot record: CUPTI is not there, or another profiler has it"),
                 true);
    }
    passed = passed || state.phase() == v1::CAPTURE_PHASE_PASSED;
  }
  if (!passed) {
    deadline_ns_ = monotonic_ns + uint64_t{request_.limit_ms()} * 1'000'000 + kSettleWaitNs;
    stage_ = Stage::kRecording;
    return;
  }
  Cancel();
  if (++tries_ == kMostTries)
    return End(
        "the ranks passed the first step to record before they had the order, four times; is a rank stopped?",
        true);
  stage_ = Stage::kBegin;
}

void CaptureDirector::OnRecording(uint64_t monotonic_ns) {
  size_t waiting = 0;
  uint64_t least = UINT64_MAX;
  bool begun = false;
  for (const Member& member : members_) {
    const v1::CaptureState& state = StateOf(*member.process);
    if (member.left || (HasEnded(state) && state.id() == order_.id())) continue;
    ++waiting;
    begun = begun || state.steps() > 0;
    least = std::min(least, order_.clock() == v1::CAPTURE_CLOCK_CALLS && state.steps() == 0 ? state.calls()
                                                                                            : state.steps());
  }
  if (waiting == 0) {
    const bool whole = std::all_of(members_.begin(), members_.end(), [this](const Member& member) {
      return HasRecorded(member, /*whole=*/true);
    });
    return End(Result(), !whole);
  }
  if (monotonic_ns >= deadline_ns_) {
    return End(absl::StrCat(Ranks(waiting), " did not say that the capture is over; it ends there by itself"),
               true);
  }
  if (monotonic_ns - said_ns_ < kCaptureSecondNs) return;
  said_ns_ = monotonic_ns;
  if (!begun) {
    Say(order_.clock() == v1::CAPTURE_CLOCK_TIME
            ? absl::StrCat("recording starts in a moment on ", Ranks(members_.size()))
            : absl::StrCat("armed on ", Ranks(members_.size()), "; ",
                           order_.clock() == v1::CAPTURE_CLOCK_CALLS
                               ? absl::StrCat("collective ", order_.begin())
                               : absl::StrCat("step ", order_.begin()),
                           " is the first to be recorded"));
  } else if (order_.clock() == v1::CAPTURE_CLOCK_TIME) {
    Say("recording");
  } else {
    Say(absl::StrCat("recording: ", std::min(least, request_.steps()), " of ", request_.steps(), " steps"));
  }
}

std::string CaptureDirector::Result() const {
  std::vector<std::string> left;
  std::vector<std::string> cut;
  size_t recorded = 0;
  for (const Member& member : members_) {
    const v1::CaptureState& state = StateOf(*member.process);
    const bool ended = state.id() == order_.id() && HasEnded(state);
    recorded += HasRecorded(member, /*whole=*/false) ? 1 : 0;
    if (HasRecorded(member, /*whole=*/true)) continue;
    (ended ? cut : left).push_back(NameOf(*member.process));
  }
  uint64_t steps = request_.steps();  // that all of these have
  for (const Member& member : members_) {
    const auto& windows = member.process->captures().windows();
    if (!windows.empty() && HasRecorded(member, /*whole=*/false))
      steps = std::min(steps, windows.back().last + 1 - windows.back().first);
  }
  std::string what;
  if (order_.clock() == v1::CAPTURE_CLOCK_TIME) {
    what = absl::StrFormat("%.3g s", static_cast<double>(order_.end() - order_.begin()) / 1e9);
  } else if (order_.clock() == v1::CAPTURE_CLOCK_MARKER) {
    what = absl::StrCat(Steps(order_.begin(), order_.begin() + steps), ", counted by GPUPROBE_STEP_MARKER,");
  } else {
    const uint64_t first = order_.begin() / order_.calls_per_step();
    what = absl::StrCat(Steps(first, first + steps), " (collectives ", order_.begin(), " to ",
                        order_.begin() + steps * order_.calls_per_step() - 1, " on communicator ",
                        analysis::ShortComm(analysis::CommName(order_.communicator())), ", ",
                        order_.calls_per_step(), " a step)");
  }
  std::string words =
      recorded == 0 ? "nothing was captured" : absl::StrCat("captured ", what, " on ", Ranks(recorded));
  if (!cut.empty())
    absl::StrAppend(&words, "; cut off after ", request_.limit_ms() / 1000, " s on ", Names(cut));
  if (!left.empty()) absl::StrAppend(&words, "; left before it was over: ", Names(left));
  return words;
}

void CaptureDirector::OnAnswers(uint64_t monotonic_ns, uint64_t now_ns) {
  if (stage_ == Stage::kAsked) {
    for (const Member& member : members_) {
      if (member.left || StateOf(*member.process).phase() != v1::CAPTURE_PHASE_UNABLE) continue;
      return End(absl::StrCat(NameOf(*member.process),
                              " cannot record: CUPTI is not there, or another profiler has it"),
                 true);
    }
    return Choose(monotonic_ns, now_ns);
  }
  OnOrdered(monotonic_ns);
}

void CaptureDirector::Tick(uint64_t monotonic_ns, uint64_t now_ns) {
  if (over()) return;
  const bool all_left =
      std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.left; });
  if (all_left && stage_ != Stage::kRecording)
    return End("the program ended before anything was recorded", true);
  switch (stage_) {
    case Stage::kBegin:
      if (asked_ns_ == 0 || monotonic_ns - asked_ns_ >= kBetweenAsksNs) Ask(monotonic_ns);
      return;
    case Stage::kAsked:
    case Stage::kOrdered:
      if (AllAnswered()) return OnAnswers(monotonic_ns, now_ns);
      if (monotonic_ns < deadline_ns_) return;
      Cancel();
      return End(absl::StrCat(WhoHasNotAnswered(),
                              " did not answer within 15 s; for what it is doing: gpuprobe look --all"),
                 true);
    case Stage::kRecording:
      return OnRecording(monotonic_ns);
    case Stage::kOver:
      return;
  }
}

}  // namespace gpuprobe::recording
