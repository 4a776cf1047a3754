#include "collector/recording/capture_director.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
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
constexpr uint64_t kLeastBetweenNs = kCaptureSecondNs / 4;  // positions that say how fast a rank is
// A process that is at rest looks for orders once a second. A begin that some rank has passed when the order
// comes is chosen again, further ahead.
constexpr double kLeadSeconds = 2.5;
// Through a hub, an order and its answer wait for the next post, and may be slowed by the network and the
// collectors on their way.
constexpr double kUsualWaySeconds = 1.75;
constexpr double kSlackSeconds = 1.0;
constexpr int kMostTries = 4;
// Beyond the limit: for the window's last work, and for records to be sent.
constexpr uint64_t kSettleWaitNs = 70 * kCaptureSecondNs;
constexpr size_t kMostNamed = 4;

std::string NameOf(const CaptureDirector::Process& process) {
  const std::string name = process.facts.rank() >= 0 ? absl::StrCat("rank ", process.facts.rank())
                                                     : absl::StrCat("pid ", process.facts.pid());
  return process.host.empty() ? name : absl::StrCat(name, " on ", process.host);
}

bool HasEnded(const v1::CaptureState& state) {
  return state.phase() == v1::CAPTURE_PHASE_DONE || state.phase() == v1::CAPTURE_PHASE_CUT;
}

std::string Names(const std::vector<std::string>& names) {
  std::vector<std::string> some = names;
  if (names.size() > kMostNamed) some.resize(kMostNamed);
  if (names.size() > kMostNamed) some.push_back(absl::StrCat(names.size() - kMostNamed, " more"));
  return absl::StrJoin(some, ", ");
}

uint64_t PositionOf(const v1::CaptureState& state, v1::CaptureClock clock) {
  return clock == v1::CAPTURE_CLOCK_MARKER ? state.steps_begun() : state.calls();
}

std::string Steps(uint64_t first, uint64_t end) {
  if (end - first <= 1) return absl::StrCat("step ", first);
  return absl::StrCat("steps ", first, " to ", end - 1);
}

// "4 processes", "8 processes of 2 hosts".
std::string Ranks(const CaptureDirector::Processes& processes) {
  std::set<std::string> hosts;
  for (const CaptureDirector::Process& process : processes) hosts.insert(process.host);
  const size_t count = processes.size();
  return absl::StrCat(count, count == 1 ? " process" : " processes",
                      hosts.size() > 1 ? absl::StrCat(" of ", hosts.size(), " hosts") : "");
}

// "n2 has sent nothing for 16 s", of the first that is away.
std::string Silence(const CaptureDirector::Processes& away) {
  return absl::StrCat(away.front().host, " has sent nothing for ", away.front().silent_ns / kCaptureSecondNs,
                      " s");
}

std::string NamesOf(const CaptureDirector::Processes& processes) {
  std::vector<std::string> names;
  for (const CaptureDirector::Process& process : processes) names.push_back(NameOf(process));
  return Names(names);
}

std::pair<uint64_t, uint32_t> KeyOf(const CaptureDirector::Process& process) {
  return {process.instance, process.facts.number()};
}

}  // namespace

CaptureDirector::Processes CaptureDirector::Chosen(const v1::CaptureRequest& request,
                                                   const Processes& processes) {
  const std::set<int64_t> wanted(request.ranks().begin(), request.ranks().end());
  const bool any_rank = std::any_of(processes.begin(), processes.end(), [](const Process& process) {
    return process.facts.connected() && process.facts.rank() >= 0;
  });
  Processes chosen;
  for (const Process& process : processes) {
    if (!process.facts.connected()) continue;
    const bool has_rank = process.facts.rank() >= 0;
    if (wanted.empty() ? has_rank || !any_rank : has_rank && wanted.contains(process.facts.rank()))
      chosen.push_back(process);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Process& a, const Process& b) {
    return std::tuple(a.facts.rank(), a.host, a.facts.pid()) <
           std::tuple(b.facts.rank(), b.host, b.facts.pid());
  });
  return chosen;
}

absl::Status CaptureDirector::Check(const v1::CaptureRequest& request, const Processes& processes) {
  std::set<int> here;
  bool any = false;
  bool elsewhere = false;
  for (const Process& process : processes) {
    elsewhere |= process.instance != 0;
    any |= process.facts.connected();
    if (process.facts.connected() && process.facts.rank() >= 0) here.insert(process.facts.rank());
  }
  if (!any)
    return absl::FailedPreconditionError(
        "no process of this run is connected: none has used CUDA yet, or all have ended");
  for (const uint32_t rank : request.ranks()) {
    if (here.contains(static_cast<int>(rank))) continue;
    return absl::NotFoundError(
        absl::StrCat("rank ", rank, " is not connected to this collector",
                     elsewhere ? ", nor to another host's; connected are " : "; it has ",
                     here.empty() && !elsewhere ? "processes without ranks" : absl::StrJoin(here, ", ")));
  }
  const Processes chosen = Chosen(request, processes);
  Processes away;
  Processes full;
  for (const Process& process : chosen) {
    if (process.is_away()) away.push_back(process);
    if (!process.facts.idle()) full.push_back(process);
  }
  if (full.size() == chosen.size())
    return absl::AlreadyExistsError("this run is at level full, so everything is recorded anyway");
  if (!full.empty())
    return absl::FailedPreconditionError(absl::StrCat(
        NameOf(full.front()), " is at level full, others at level idle; set GPUPROBE_LEVEL alike"));
  if (!away.empty())
    return absl::UnavailableError(absl::StrCat(Silence(away), ", so ", NamesOf(away),
                                               " cannot be captured; name the others with --ranks"));
  return absl::OkStatus();
}

CaptureDirector::CaptureDirector(v1::CaptureRequest request, const Processes& processes, uint64_t first_id,
                                 Send send)
    : request_(std::move(request)), send_(std::move(send)), id_(first_id) {
  size_t world = 0;  // ranks, as the launcher says
  for (const Process& process : Chosen(request_, processes)) {
    world = std::max<size_t>(world, process.facts.rank() >= 0 ? process.facts.world_size() : 0);
    members_.push_back({.process = process});
  }
  if (request_.ranks().empty() && world > members_.size())
    Say(absl::StrCat("the job has ", world, " ranks, of which ", members_.size(),
                     " are connected; the others are not captured"));
}

void CaptureDirector::Update(const Processes& processes) {
  std::map<std::pair<uint64_t, uint32_t>, const Process*> by_key;
  for (const Process& process : processes) by_key.emplace(KeyOf(process), &process);
  for (Member& member : members_) {
    if (member.left || over()) continue;
    const bool was_away = member.process.is_away();
    const auto now = by_key.find(KeyOf(member.process));
    if (now != by_key.end()) member.process = *now->second;
    member.left = now == by_key.end() || !member.process.facts.connected();
    if (member.left && !HasRecorded(member, /*whole=*/true))
      Say(absl::StrCat(NameOf(member.process), " has left during the capture"));
    if (!member.left && !was_away && member.process.is_away() && stage_ == Stage::kRecording)
      Say(absl::StrCat(Silence({member.process}), "; its ranks end the capture by themselves"));
  }
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
  SendToAll(nothing);
}

void CaptureDirector::SendToAll(const v1::Capture& order) {
  for (const Member& member : members_) {
    if (member.left) continue;
    v1::Capture its = order;
    if (order.clock() == v1::CAPTURE_CLOCK_TIME && order.begin() < order.end()) {
      its.set_begin(order.begin() + static_cast<uint64_t>(member.process.clock_ahead_ns));
      its.set_end(order.end() + static_cast<uint64_t>(member.process.clock_ahead_ns));
    }
    send_(member.process, its);
  }
}

bool CaptureDirector::HasRecorded(const Member& member, bool whole) const {
  const v1::CaptureState& state = member.state();
  if (state.id() == order_.id() && HasEnded(state))
    return whole ? state.phase() == v1::CAPTURE_PHASE_DONE : state.steps() > 0;
  if (order_.clock() == v1::CAPTURE_CLOCK_TIME || !member.process.facts.has_steps()) return false;
  const uint64_t per_step = std::max<uint32_t>(order_.calls_per_step(), 1);
  const v1::CapturedSteps& steps = member.process.facts.steps();
  const uint64_t first = order_.begin() / per_step;
  return steps.first() >= first && (!whole || steps.last() + 1 >= first + request_.steps());
}

bool CaptureDirector::AllAnswered() const {
  return std::all_of(members_.begin(), members_.end(),
                     [this](const Member& member) { return member.left || member.state().id() == id_; });
}

std::string CaptureDirector::WhoHasNotAnswered() const {
  Processes silent;
  for (const Member& member : members_) {
    if (!member.left && member.state().id() != id_) silent.push_back(member.process);
  }
  return NamesOf(silent);
}

void CaptureDirector::Ask(uint64_t monotonic_ns) {
  v1::Capture question;
  question.set_id(++id_);
  SendToAll(question);
  asked_ns_ = monotonic_ns;
  deadline_ns_ = monotonic_ns + kAnswerWaitNs;
  stage_ = Stage::kAsked;
}

void CaptureDirector::Order(const v1::Capture& order, uint64_t monotonic_ns) {
  order_ = order;
  order_.set_id(++id_);
  order_.set_limit_ms(request_.limit_ms());
  SendToAll(order_);
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
    const v1::CaptureState& state = member.state();
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
    const v1::CaptureState& state = member.state();
    if (member.left || state.calls_per_step() == 0) continue;
    auto& [count, first] = votes[state.calls_per_step()];
    if (count++ == 0) first = &state;
  }
  const auto most = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return a.second.first < b.second.first;
  });
  return most == votes.end() ? nullptr : most->second.second;
}

uint64_t CaptureDirector::SaidNs(const Member& member) const {
  return member.process.facts.state_ns() == 0 ? asked_ns_ : member.process.facts.state_ns();
}

double CaptureDirector::LeadSeconds(uint64_t monotonic_ns) const {
  const bool elsewhere = std::any_of(members_.begin(), members_.end(),
                                     [](const Member& member) { return member.process.instance != 0; });
  if (!elsewhere) return kLeadSeconds * (1 << tries_);
  // The positions are as old as this; the order takes as long, or longer if we were lucky.
  const double asked_ago = static_cast<double>(monotonic_ns - asked_ns_) / kCaptureSecondNs;
  return (asked_ago + std::max(asked_ago, kUsualWaySeconds) + kSlackSeconds) * (1 << tries_);
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
  order.set_begin(now_ns + static_cast<uint64_t>(LeadSeconds(monotonic_ns) * kCaptureSecondNs));
  order.set_end(order.begin() + request_.duration_ms() * 1'000'000);
  Order(order, monotonic_ns);
}

void CaptureDirector::ChooseSteps(v1::CaptureClock clock, uint64_t monotonic_ns) {
  uint64_t most = 0;
  double rate = 0;  // per second, of the fastest
  bool knows_rate = false;
  const v1::CaptureState* const state = Period();
  for (Member& member : members_) {
    if (member.left) continue;
    const uint64_t position = PositionOf(member.state(), clock);
    most = std::max(most, position);
    if (member.first_ns == 0) {
      member.first_ns = SaidNs(member);
      member.first_position = position;
    }
    const uint64_t since_ns = SaidNs(member) - member.first_ns;
    if (SaidNs(member) < member.first_ns || since_ns < kLeastBetweenNs) continue;
    knows_rate = true;
    const double seconds = static_cast<double>(since_ns) / kCaptureSecondNs;
    if (position >= member.first_position)
      rate = std::max(rate, static_cast<double>(position - member.first_position) / seconds);
  }
  const uint64_t per_step = clock == v1::CAPTURE_CLOCK_CALLS ? state->calls_per_step() : 1;
  if (earliest_ == 0) earliest_ = most + request_.wait() * per_step + 1;
  const uint64_t lead =
      static_cast<uint64_t>(std::ceil(rate * LeadSeconds(monotonic_ns))) + request_.warmup() * per_step;
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
  Processes passed;
  for (const Member& member : members_) {
    if (member.left) continue;
    const v1::CaptureState& state = member.state();
    if (state.phase() == v1::CAPTURE_PHASE_UNABLE) {
      Cancel();
      return End(absl::StrCat(NameOf(member.process),
                              " cannot record: CUPTI is not there, or another profiler has it"),
                 true);
    }
    if (state.phase() == v1::CAPTURE_PHASE_PASSED) passed.push_back(member.process);
  }
  if (passed.empty()) {
    deadline_ns_ = monotonic_ns + uint64_t{request_.limit_ms()} * 1'000'000 + kSettleWaitNs;
    stage_ = Stage::kRecording;
    return;
  }
  Cancel();
  if (++tries_ == kMostTries)
    return End(
        "the ranks passed the first step to record before they had the order, four times; is a rank stopped?",
        true);
  Say(absl::StrCat(NamesOf(passed), " had passed the first step when the order came; again, further ahead"));
  stage_ = Stage::kBegin;
}

void CaptureDirector::OnRecording(uint64_t monotonic_ns) {
  Processes waiting;
  uint64_t least = UINT64_MAX;
  bool begun = false;
  for (const Member& member : members_) {
    const v1::CaptureState& state = member.state();
    if (!member.is_here() || (HasEnded(state) && state.id() == order_.id())) continue;
    waiting.push_back(member.process);
    begun = begun || state.steps() > 0;
    least = std::min(least, state.steps());
  }
  if (waiting.empty()) {
    const bool whole = std::all_of(members_.begin(), members_.end(), [this](const Member& member) {
      return HasRecorded(member, /*whole=*/true);
    });
    return End(Result(), !whole);
  }
  if (monotonic_ns >= deadline_ns_) {
    return End(
        absl::StrCat(NamesOf(waiting), " did not say that the capture is over; it ends there by itself"),
        true);
  }
  if (monotonic_ns - said_ns_ < kCaptureSecondNs) return;
  said_ns_ = monotonic_ns;
  SayHowFar(least, begun);
}

void CaptureDirector::SayHowFar(uint64_t least, bool begun) {
  Processes all;
  for (const Member& member : members_) all.push_back(member.process);
  if (!begun) {
    Say(order_.clock() == v1::CAPTURE_CLOCK_TIME
            ? absl::StrCat("recording starts in a moment on ", Ranks(all))
            : absl::StrCat("armed on ", Ranks(all), "; ",
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

// The steps, or the time, that all have of what was ordered.
std::string CaptureDirector::WhatWasRecorded() const {
  uint64_t steps = request_.steps();
  for (const Member& member : members_) {
    const v1::CapturedSteps& its = member.process.facts.steps();
    if (member.process.facts.has_steps() && HasRecorded(member, /*whole=*/false))
      steps = std::min(steps, its.last() + 1 - its.first());
  }
  if (order_.clock() == v1::CAPTURE_CLOCK_TIME)
    return absl::StrFormat("%.3g s", static_cast<double>(order_.end() - order_.begin()) / 1e9);
  if (order_.clock() == v1::CAPTURE_CLOCK_MARKER)
    return absl::StrCat(Steps(order_.begin(), order_.begin() + steps), ", counted by GPUPROBE_STEP_MARKER,");
  const uint64_t first = order_.begin() / order_.calls_per_step();
  return absl::StrCat(Steps(first, first + steps), " (collectives ", order_.begin(), " to ",
                      order_.begin() + steps * order_.calls_per_step() - 1, " on communicator ",
                      analysis::ShortComm(analysis::CommName(order_.communicator())), ", ",
                      order_.calls_per_step(), " a step)");
}

std::string CaptureDirector::Result() const {
  Processes left;
  Processes away;
  Processes cut;
  Processes recorded;
  for (const Member& member : members_) {
    const bool ended = member.state().id() == order_.id() && HasEnded(member.state());
    if (HasRecorded(member, /*whole=*/false)) recorded.push_back(member.process);
    if (HasRecorded(member, /*whole=*/true)) continue;
    (ended ? cut : member.is_here() || member.left ? left : away).push_back(member.process);
  }
  std::string words = recorded.empty()
                          ? "nothing was captured"
                          : absl::StrCat("captured ", WhatWasRecorded(), " on ", Ranks(recorded));
  if (!cut.empty())
    absl::StrAppend(&words, "; cut off after ", request_.limit_ms() / 1000, " s on ", NamesOf(cut));
  if (!left.empty()) absl::StrAppend(&words, "; left before it was over: ", NamesOf(left));
  if (!away.empty()) absl::StrAppend(&words, "; not known of ", NamesOf(away), ": ", Silence(away));
  return words;
}

void CaptureDirector::OnAnswers(uint64_t monotonic_ns, uint64_t now_ns) {
  if (stage_ == Stage::kAsked) {
    for (const Member& member : members_) {
      if (member.left || member.state().phase() != v1::CAPTURE_PHASE_UNABLE) continue;
      return End(absl::StrCat(NameOf(member.process),
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
  Processes away;
  for (const Member& member : members_) {
    if (!member.left && member.process.is_away()) away.push_back(member.process);
  }
  if (!away.empty() && stage_ != Stage::kRecording) {
    Cancel();
    return End(absl::StrCat(Silence(away), ", so ", NamesOf(away), " cannot be captured"), true);
  }
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
