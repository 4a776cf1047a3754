#include "collector/analysis/hangs/hang_verdicts.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/hang_evidence.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/report/words.h"

namespace gpuprobe::analysis {
namespace {

// Values that a log may hold in place of ours.
template <typename Enum>
Enum Bounded(uint32_t value, Enum last) {
  return value <= static_cast<uint32_t>(last) ? static_cast<Enum>(value) : last;
}

template <typename T>
int64_t OrNone(const std::optional<T>& value) {
  return value.has_value() ? static_cast<int64_t>(*value) : -1;
}

template <typename T>
std::optional<T> Take(int64_t value) {
  return value < 0 ? std::nullopt : std::optional(static_cast<T>(value));
}

void Put(const CallShape& shape, v1::HangCall& out) {
  out.set_op(shape.op);
  out.set_count(shape.count);
  out.set_datatype(shape.datatype);
  out.set_bytes(shape.bytes);
  out.set_root(shape.root);
}

CallShape ShapeOf(const v1::HangCall& in) {
  return {
      .op = in.op(), .count = in.count(), .datatype = in.datatype(), .bytes = in.bytes(), .root = in.root()};
}

void Put(const Halt& halt, v1::HangHalt& out) {
  out.set_kind(static_cast<uint32_t>(halt.kind));
  out.set_since_ns(halt.since_ns);
  out.set_signal(static_cast<int32_t>(OrNone(halt.signal)));
  out.set_exit_code(static_cast<int32_t>(OrNone(halt.exit_code)));
  out.set_out_of_memory(halt.out_of_memory);
  out.set_tracer(halt.tracer);
}

Halt HaltFrom(const v1::HangHalt& in) {
  return {.kind = Bounded(in.kind(), Halt::Kind::kEnded),
          .since_ns = in.since_ns(),
          .signal = Take<uint32_t>(in.signal()),
          .exit_code = Take<uint32_t>(in.exit_code()),
          .out_of_memory = in.out_of_memory(),
          .tracer = in.tracer()};
}

void Put(const HostLoad& load, v1::HangHostLoad& out) {
  out.set_observed_s(load.observed_s);
  out.set_cpus(load.cpus);
  out.set_waits_for_cpu(load.waits_for_cpu);
  out.set_throttled(load.throttled);
  out.set_quota_cpus(load.quota_cpus);
  out.set_major_faults_per_s(load.major_faults_per_s);
  out.set_memory_stall(load.memory_stall);
  out.set_swapped_bytes(load.swapped_bytes);
  out.set_waits_for(load.waits_for);
  out.set_wait_channel(load.wait_channel);
  out.set_uninterruptible(load.uninterruptible);
}

HostLoad LoadFrom(const v1::HangHostLoad& in) {
  return {.observed_s = in.observed_s(),
          .cpus = in.cpus(),
          .waits_for_cpu = in.waits_for_cpu(),
          .throttled = in.throttled(),
          .quota_cpus = in.quota_cpus(),
          .major_faults_per_s = in.major_faults_per_s(),
          .memory_stall = in.memory_stall(),
          .swapped_bytes = in.swapped_bytes(),
          .waits_for = in.waits_for(),
          .wait_channel = in.wait_channel(),
          .uninterruptible = in.uninterruptible()};
}

void PutDeeds(const HangRank& r, v1::HangRank& out) {
  out.set_last_op(r.last_op);
  out.set_last_comm(r.last_comm);
  out.set_last_seq(r.last_seq);
  out.set_last_captured(r.last_captured);
  out.set_last_issue_ago_ns(OrNone(r.last_issue_ago_ns));
  out.set_last_done_ago_ns(OrNone(r.last_done_ago_ns));
  out.set_launches_since(r.launches_since.value_or(0));
  out.set_launches_not_recorded(!r.launches_since.has_value());
  out.set_last_launch_ago_ns(OrNone(r.last_launch_ago_ns));
  out.set_silent_ns(OrNone(r.silent_ns));
  out.set_blocked_in(r.blocked_in);
  out.set_open_range(r.open_range);
  out.set_graph_launches(r.replays.has_value() ? static_cast<int64_t>(r.replays->launches) : -1);
  out.set_last_graph_launch_ago_ns(r.replays.has_value() ? OrNone(r.replays->last_launch_ago_ns) : -1);
}

void TakeDeeds(const v1::HangRank& in, HangRank& r) {
  r.last_op = in.last_op();
  r.last_comm = in.last_comm();
  r.last_seq = in.last_seq();
  r.last_captured = in.last_captured();
  r.last_issue_ago_ns = Take<uint64_t>(in.last_issue_ago_ns());
  r.last_done_ago_ns = Take<uint64_t>(in.last_done_ago_ns());
  if (!in.launches_not_recorded()) r.launches_since = in.launches_since();
  r.last_launch_ago_ns = Take<uint64_t>(in.last_launch_ago_ns());
  r.silent_ns = Take<uint64_t>(in.silent_ns());
  r.blocked_in = in.blocked_in();
  r.open_range = in.open_range();
  if (in.graph_launches() >= 0)
    r.replays = {.launches = static_cast<uint64_t>(in.graph_launches()),
                 .last_launch_ago_ns = Take<uint64_t>(in.last_graph_launch_ago_ns())};
}

void Put(const std::vector<PythonFrame>& stack, v1::PythonStack& out) {
  for (const PythonFrame& frame : stack) {
    v1::PythonFrame& to = *out.add_frames();
    to.set_function(frame.function);
    to.set_file(frame.file);
    to.set_line(frame.line);
  }
}

void Put(const HangRank& r, v1::HangRank& out) {
  out.set_label(r.label);
  out.set_rank(static_cast<int32_t>(OrNone(r.rank)));
  out.set_host(r.host);
  out.set_pid(r.pid);
  out.set_state(static_cast<uint32_t>(r.state));
  if (r.shape.has_value()) Put(*r.shape, *out.mutable_call());
  out.set_ended(r.ended);
  PutDeeds(r, out);
  if (r.halt.has_value()) Put(*r.halt, *out.mutable_halt());
  Put(r.load, *out.mutable_load());
  out.set_refused_result(r.refused_result);
  out.set_refused_ago_ns(static_cast<int64_t>(r.refused_ago_ns));
  if (!r.python.empty()) Put(r.python, *out.mutable_python());
}

HangRank RankFrom(const v1::HangRank& in) {
  HangRank r;
  r.label = in.label();
  r.rank = Take<int>(in.rank());
  r.host = in.host();
  r.pid = in.pid();
  r.state = Bounded(in.state(), HangRank::State::kIdle);
  if (in.has_call()) r.shape = ShapeOf(in.call());
  r.ended = in.ended();
  TakeDeeds(in, r);
  if (in.has_halt()) r.halt = HaltFrom(in.halt());
  r.load = LoadFrom(in.load());
  r.refused_result = in.refused_result();
  r.refused_ago_ns = Take<uint64_t>(in.refused_ago_ns()).value_or(0);
  r.python = PythonFrames(in.python());
  return r;
}

void Put(const HangTransfer& t, v1::HangTransfer& out) {
  out.set_rank(static_cast<int32_t>(OrNone(t.rank)));
  out.set_label(t.label);
  out.set_peer(static_cast<int32_t>(OrNone(t.peer)));
  out.set_peer_label(t.peer_label);
  out.set_counterpart(t.counterpart);
  out.set_others_waiting(static_cast<uint32_t>(t.others_waiting));
}

HangTransfer TransferFrom(const v1::HangTransfer& in) {
  return {.rank = Take<int>(in.rank()),
          .label = in.label(),
          .peer = Take<int>(in.peer()),
          .peer_label = in.peer_label(),
          .counterpart = in.counterpart(),
          .others_waiting = static_cast<int>(in.others_waiting())};
}

void Put(const HangReplay& r, v1::HangReplay& out) {
  out.set_number(r.number);
  out.set_collectives(r.collectives);
  out.set_ended(r.ended);
  out.set_first_seq(r.first_seq);
  out.set_communicators(static_cast<uint32_t>(r.communicators));
}

HangReplay ReplayFrom(const v1::HangReplay& in) {
  return {.number = in.number(),
          .collectives = in.collectives(),
          .ended = in.ended(),
          .first_seq = in.first_seq(),
          .communicators = static_cast<int>(in.communicators())};
}

const model::ProcessModel* Find(const model::JobModel& job, const HangWaiter& waiter) {
  for (const auto& process : job.processes()) {
    if (process->identity().pid() == waiter.pid && process->identity().host() == waiter.host)
      return process.get();
  }
  return nullptr;
}

bool WentOn(const model::ProcessModel& process, uint64_t seen_ns) {
  const model::HostProgress& p = process.progress();
  return std::max({p.last_call.issue_ns, p.last_launch_ns, p.last_wait_end_ns}) > seen_ns;
}

// Extends the known waiting time to when its ranks last reported or were seen.
void Prolong(const model::JobModel& job, Hang& hang) {
  for (const HangWaiter& waiter : hang.waiting) {
    const model::ProcessModel* process = Find(job, waiter);
    if (process == nullptr) continue;
    const uint64_t until_ns = std::max(LastHeardNs(*process), process->condition().last_ns());
    hang.waiting_ns = std::max(hang.waiting_ns, Since(until_ns, hang.since_ns));
  }
}

// Whether more ranks of its communicator are known here than who said it knew: the collector of one host,
// where there are several.
bool IsOfFewerRanks(const model::JobModel& job, const Hang& told) {
  if (told.not_heard == 0) return false;
  const auto& known = job.issued().communicators();
  return std::any_of(known.begin(), known.end(), [&](const auto& comm) {
    return CommName(comm.first) == told.comm &&
           static_cast<int>(comm.second.heard) > told.comm_ranks - told.not_heard;
  });
}

}  // namespace

std::string HangKey(const Hang& hang) {
  if (hang.kind == Hang::Kind::kNoWork) return absl::StrCat(report::Word(hang.kind), " ", hang.since_ns);
  // Which collective of a replay is reported may change while its records come.
  const std::string which = hang.replay.has_value()     ? absl::StrCat("replay ", hang.replay->number)
                            : hang.transfer.has_value() ? hang.transfer->label
                                                        : std::string();
  return absl::StrCat(report::Word(hang.kind), " ", hang.comm, " ",
                      hang.replay.has_value() ? hang.replay->first_seq : hang.seq, " ", which);
}

v1::HangVerdict VerdictOf(const Hang& hang, uint64_t seen_ns, uint64_t until_ns) {
  v1::HangVerdict out;
  out.set_key(HangKey(hang));
  out.set_kind(static_cast<uint32_t>(hang.kind));
  out.set_since_ns(hang.since_ns);
  out.set_seen_ns(seen_ns);
  out.set_until_ns(until_ns);
  out.set_comm(hang.comm);
  out.set_comm_name(hang.comm_name);
  out.set_comm_ranks(static_cast<uint32_t>(hang.comm_ranks));
  out.set_seq(hang.seq);
  Put(hang.shape, *out.mutable_call());
  if (hang.transfer.has_value()) Put(*hang.transfer, *out.mutable_transfer());
  if (hang.replay.has_value()) Put(*hang.replay, *out.mutable_replay());
  out.set_issued(static_cast<uint32_t>(hang.issued));
  out.set_not_heard(static_cast<uint32_t>(hang.not_heard));
  out.set_culprit_known(hang.culprit_known);
  out.set_earlier_work(hang.earlier_work);
  for (const HangRank& r : hang.ranks) Put(r, *out.add_ranks());
  out.set_ranks_left_out(static_cast<uint32_t>(hang.ranks_left_out));
  for (const HangWaiter& waiter : hang.waiting) {
    v1::HangWaiter& w = *out.add_waiting();
    w.set_label(waiter.label);
    w.set_host(waiter.host);
    w.set_pid(waiter.pid);
  }
  for (const HangLink& link : hang.links) {
    v1::HangLink& l = *out.add_links();
    l.set_kind(static_cast<uint32_t>(link.kind));
    l.set_who(link.who);
    l.set_call(link.call);
    l.set_other(link.other);
  }
  out.set_links_left_out(static_cast<uint32_t>(hang.links_left_out));
  out.set_extra_calls(hang.extra_calls);
  out.set_absent(hang.absent);
  out.set_steps(hang.steps);
  out.set_idle(hang.idle);
  out.set_background(hang.background);
  return out;
}

Hang HangOf(const v1::HangVerdict& in) {
  Hang hang;
  hang.kind = Bounded(in.kind(), Hang::Kind::kNoWork);
  hang.since_ns = in.since_ns();
  hang.waiting_ns = Since(in.until_ns() != 0 ? in.until_ns() : in.seen_ns(), in.since_ns());
  hang.comm = in.comm();
  hang.comm_name = in.comm_name();
  hang.comm_ranks = static_cast<int>(in.comm_ranks());
  hang.seq = in.seq();
  hang.shape = ShapeOf(in.call());
  if (in.has_transfer()) hang.transfer = TransferFrom(in.transfer());
  if (in.has_replay()) hang.replay = ReplayFrom(in.replay());
  hang.issued = static_cast<int>(in.issued());
  hang.not_heard = static_cast<int>(in.not_heard());
  hang.culprit_known = in.culprit_known();
  hang.earlier_work = in.earlier_work();
  for (const v1::HangRank& r : in.ranks()) {
    if (hang.ranks.size() < Hang::kMaxRanks) hang.ranks.push_back(RankFrom(r));
  }
  hang.ranks_left_out = static_cast<int>(in.ranks_left_out());
  for (const v1::HangWaiter& w : in.waiting()) {
    if (hang.waiting.size() < Hang::kMaxRanks)
      hang.waiting.push_back({.label = w.label(), .host = w.host(), .pid = w.pid()});
  }
  for (const v1::HangLink& l : in.links()) {
    if (hang.links.size() < Hang::kMaxLinks)
      hang.links.push_back({.kind = Bounded(l.kind(), HangLink::Kind::kExited),
                            .who = l.who(),
                            .call = l.call(),
                            .other = l.other()});
  }
  hang.links_left_out = static_cast<int>(in.links_left_out());
  hang.extra_calls = in.extra_calls();
  hang.absent = in.absent();
  hang.steps = in.steps();
  hang.idle = in.idle();
  hang.background = in.background();
  return hang;
}

bool SameCulprits(const Hang& a, const Hang& b) {
  return std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(),
                    [](const HangRank& x, const HangRank& y) {
                      return x.pid == y.pid && x.host == y.host && x.state == y.state &&
                             x.halt.has_value() == y.halt.has_value();
                    });
}

bool ShareWaiting(const Hang& a, const Hang& b) {
  return std::any_of(a.waiting.begin(), a.waiting.end(), [&](const HangWaiter& x) {
    return std::any_of(b.waiting.begin(), b.waiting.end(),
                       [&](const HangWaiter& y) { return x.pid == y.pid && x.host == y.host; });
  });
}

bool WentOn(const model::JobModel& job, const Hang& hang, uint64_t seen_ns) {
  return std::any_of(hang.waiting.begin(), hang.waiting.end(), [&](const HangWaiter& waiter) {
    const model::ProcessModel* process = Find(job, waiter);
    // Nobody waits for a call: an exit with code 0 is what the job was about.
    const bool done = hang.kind == Hang::Kind::kNoWork && process != nullptr && EndedWell(*process);
    return process != nullptr && (done || WentOn(*process, seen_ns));
  });
}

bool WaitingEnded(const model::JobModel& job, const Hang& hang) {
  return std::any_of(hang.waiting.begin(), hang.waiting.end(), [&](const HangWaiter& waiter) {
    const model::ProcessModel* process = Find(job, waiter);
    return process != nullptr && Ended(*process);
  });
}

std::vector<PastHang> TakeVerdicts(const model::JobModel& job, std::vector<Hang>& hangs) {
  std::vector<PastHang> past;
  std::vector<Hang> told_to_the_end;
  for (const v1::HangVerdict& verdict : job.verdicts().all()) {
    Hang told = HangOf(verdict);
    // Without its ranks there is nothing to say.
    if (verdict.withdrawn() || told.ranks.empty() || IsOfFewerRanks(job, told)) continue;
    const std::string key = HangKey(told);
    const auto same =
        std::find_if(hangs.begin(), hangs.end(), [&](const Hang& h) { return HangKey(h) == key; });
    // A mismatch does not pass: at the end more ranks are known to be in it.
    if (same != hangs.end() &&
        (told.kind == Hang::Kind::kMismatch || verdict.until_ns() != 0 || SameCulprits(*same, told)))
      continue;
    const bool went_on = verdict.until_ns() != 0 || WentOn(job, told, verdict.seen_ns());
    if (went_on && same == hangs.end()) {
      const uint64_t until_ns = std::max({verdict.until_ns(), verdict.seen_ns(), told.since_ns});
      const model::ProcessModel* clock = told.waiting.empty() ? nullptr : Find(job, told.waiting.front());
      const auto realtime = [&](uint64_t ns) { return clock == nullptr ? ns : clock->Realtime(ns); };
      past.push_back({.hang = told, .since_ns = realtime(told.since_ns), .until_ns = realtime(until_ns)});
      continue;
    }
    Prolong(job, told);
    told_to_the_end.push_back(std::move(told));
  }
  // The remaining records may name another wait of the same ranks: the one that was reported stands.
  for (Hang& told : told_to_the_end) {
    std::erase_if(hangs, [&](const Hang& h) {
      return h.kind != Hang::Kind::kMismatch && (HangKey(h) == HangKey(told) || ShareWaiting(h, told));
    });
  }
  // Of one host's view and that of all, the latter.
  for (Hang& told : told_to_the_end) {
    if (std::none_of(told_to_the_end.begin(), told_to_the_end.end(), [&](const Hang& other) {
          return other.not_heard < told.not_heard && ShareWaiting(other, told);
        }))
      hangs.push_back(told);
  }
  std::stable_sort(hangs.begin(), hangs.end(),
                   [](const Hang& a, const Hang& b) { return a.waiting_ns > b.waiting_ns; });
  return past;
}

}  // namespace gpuprobe::analysis
