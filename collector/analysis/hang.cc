#include "collector/analysis/hang.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

std::string Ago(uint64_t ns) { return absl::StrCat(Duration(static_cast<double>(ns)), " ago"); }

std::string Name(const HangRank& r) { return r.rank.has_value() ? absl::StrCat("rank ", r.label) : r.label; }

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string Names(const Hang& hang) {
  std::vector<std::string> labels;
  for (const HangRank& r : hang.ranks) labels.push_back(r.label);
  const bool plain =
      std::all_of(hang.ranks.begin(), hang.ranks.end(), [](const HangRank& r) { return r.rank.has_value(); });
  const size_t all = hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out);
  std::string text = absl::StrCat(plain ? (all == 1 ? "rank " : "ranks ") : "", absl::StrJoin(labels, ", "));
  if (hang.ranks_left_out > 0) absl::StrAppend(&text, " and ", hang.ranks_left_out, " more");
  return text;
}

// It runs, on the host alone.
bool IsBusyOnHost(const HangRank& r) {
  return !r.halt.has_value() && r.blocked_in.empty() && r.load.cpus >= kBusyCpus;
}

// The activity of its host in the meantime, according to the kernel.
std::vector<std::string> HostDeeds(const HangRank& r) {
  if (r.halt.has_value()) return {};
  std::vector<std::string> deeds;
  if (r.blocked_in.empty() && r.load.uninterruptible >= kStuckShare) {
    deeds.push_back(
        absl::StrCat("its main thread is in uninterruptible sleep",
                     r.load.wait_channel.empty() ? "" : absl::StrCat(" in ", r.load.wait_channel)));
  }
  if (r.blocked_in.empty() && !r.load.waits_for.empty())
    deeds.push_back(absl::StrCat("its main thread is blocked in the system call ", r.load.waits_for));
  if (IsBusyOnHost(r))
    deeds.push_back(absl::StrFormat("it is busy on the host, using %.1f CPUs", r.load.cpus));
  for (std::string& clause : HostLoadClauses(r.load, nullptr)) deeds.push_back(std::move(clause));
  return deeds;
}

// Empty: its host has nothing remarkable to say.
std::string HostAdvice(const HangRank& r) {
  if (r.halt.has_value() || r.state != HangRank::State::kNotIssued) return "";
  if (r.blocked_in.empty() && !r.load.waits_for.empty())
    return absl::StrCat("Find out why ", Name(r), " waits in ", r.load.waits_for,
                        ", for example for a file system or a peer that does not respond.");
  if (IsBusyOnHost(r))
    return absl::StrCat(Capital(Name(r)), " is computing or looping on the host: py-spy dump --pid ", r.pid,
                        " (gdb -p for C++) shows where.");
  return HostLoadAdvice(r.load, nullptr, Name(r));
}

// "its last call was AllReduce seq 48210, done 60.9 s ago; since then it launched nothing; ..."
std::string LastDeeds(const Hang& hang, const HangRank& r) {
  std::vector<std::string> deeds;
  if (r.replays.has_value()) {
    deeds.push_back(r.replays->launches == 0
                        ? "it never launched this graph"
                        : absl::StrCat("it launched this graph ", Count(r.replays->launches),
                                       r.replays->launches == 1 ? " time, last " : " times, last ",
                                       Ago(r.replays->last_launch_ago_ns.value_or(0))));
  }
  if (r.last_op.empty()) {
    deeds.emplace_back("it has issued no collective");
  } else {
    std::string call =
        absl::StrCat(r.state == HangRank::State::kNotIssued ? "its last call was " : "its last call is ",
                     r.last_op, " seq ", r.last_seq);
    if (r.last_comm != hang.comm) absl::StrAppend(&call, " on communicator ", ShortComm(r.last_comm));
    if (r.last_captured) {
      absl::StrAppend(&call, ", captured into a CUDA graph ", Ago(r.last_issue_ago_ns.value_or(0)));
    } else if (r.last_done_ago_ns.has_value()) {
      absl::StrAppend(&call, ", finished ", Ago(*r.last_done_ago_ns));
    } else {
      absl::StrAppend(&call, ", issued ", Ago(r.last_issue_ago_ns.value_or(0)),
                      " and not known to have finished");
    }
    deeds.push_back(call);
    deeds.push_back(r.launches_since == 0
                        ? "it has launched nothing since"
                        : absl::StrFormat("it has launched work %s times since, last %s",
                                          Count(r.launches_since), Ago(r.last_launch_ago_ns.value_or(0))));
  }
  if (r.halt.has_value() && r.state != HangRank::State::kHalted)
    deeds.push_back(absl::StrCat("its process ", HaltText(*r.halt)));
  if (r.ended && !r.halt.has_value()) deeds.emplace_back("its process has ended");
  if (r.silent_ns.has_value() && !r.halt.has_value())
    deeds.push_back(absl::StrCat("no data has arrived from it for ",
                                 Duration(static_cast<double>(*r.silent_ns)), ": is it stopped?"));
  if (!r.blocked_in.empty()) {
    deeds.push_back(absl::StrCat("its main thread is blocked in ", r.blocked_in));
    if (!r.open_range.empty()) deeds.back() += absl::StrCat(", in range \"", r.open_range, "\"");
  } else if (!r.open_range.empty()) {
    deeds.push_back(absl::StrCat("its main thread is in range \"", r.open_range, "\""));
  }
  if (r.state == HangRank::State::kNotIssued || r.state == HangRank::State::kLaunchedNothing) {
    for (std::string& clause : HostDeeds(r)) deeds.push_back(std::move(clause));
  }
  return absl::StrJoin(deeds, "; ");
}

// "14 AllReduce of it have ended"
std::string ReplayEvidence(const HangReplay& replay) {
  std::string text;
  if (replay.collectives > 1 && replay.ended > 0)
    absl::StrAppend(&text, " ", Count(replay.ended), " of its ", Count(replay.collectives),
                    " collectives on this communicator have finished in this replay.");
  if (replay.communicators > 1)
    absl::StrAppend(&text, " The graph also contains collectives on other communicators; ",
                    replay.communicators, " communicators are waiting in total.");
  return text;
}

bool IsHalted(const Hang& hang) {
  return !hang.ranks.empty() && hang.ranks.front().state == HangRank::State::kHalted;
}

// "Rank 3 has been stopped (SIGSTOP) since 18:02:11 UTC"
std::string WhoIsHalted(const Hang& hang) {
  constexpr size_t kTold = 3;
  std::vector<std::string> who;
  for (const HangRank& r : hang.ranks) {
    if (who.size() < kTold && r.halt.has_value())
      who.push_back(absl::StrCat(Name(r), " ", HaltText(*r.halt)));
  }
  const size_t left = hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out) - who.size();
  if (left > 0) who.push_back(absl::StrCat(left, " more ranks cannot run either"));
  return Capital(absl::StrJoin(who, "; "));
}

std::string WhereItIs(const Hang& hang) {
  std::string where = absl::StrCat("communicator ", ShortComm(hang.comm), " (");
  const std::string name = TellingName(hang.comm_name);
  if (!name.empty()) absl::StrAppend(&where, name, ", ");
  return absl::StrCat(where, hang.comm_ranks, " ranks)");
}

// A clause on what one rank did, without its name.
std::string RankEvidence(const Hang& hang, const HangRank& r) {
  switch (r.state) {
    case HangRank::State::kNotIssued:
      return absl::StrCat(" did not: ", LastDeeds(hang, r));
    case HangRank::State::kLaunchedNothing:
      return absl::StrCat(" issued the call but launched no kernel for it: ", LastDeeds(hang, r));
    case HangRank::State::kIssuedOtherwise:
      return absl::StrCat(" issued ", ShapeText(r.shape.value_or(CallShape{})));
    case HangRank::State::kHalted:
      return absl::StrCat(", when last seen: ", LastDeeds(hang, r));
    default:
      return absl::StrCat(": ", LastDeeds(hang, r));
  }
}

// A sentence for each rank; one for those of which the same is true.
std::string RanksEvidence(const Hang& hang) {
  constexpr size_t kTold = 4;
  std::vector<std::pair<std::string, std::vector<const HangRank*>>> said;
  for (const HangRank& r : hang.ranks) {
    std::string deeds = RankEvidence(hang, r);
    const auto same = std::find_if(said.begin(), said.end(), [&](const auto& s) {
      return s.first == deeds && s.second.front()->rank.has_value() && r.rank.has_value();
    });
    if (same == said.end()) {
      said.emplace_back(std::move(deeds), std::vector{&r});
    } else {
      same->second.push_back(&r);
    }
  }
  std::string text;
  for (size_t i = 0; i < said.size(); ++i) {
    if (i == kTold) {
      absl::StrAppend(&text, " The others are in report.json.");
      break;
    }
    const auto& [deeds, ranks] = said[i];
    std::vector<int> numbers;
    for (const HangRank* r : ranks) numbers.push_back(r->rank.value_or(0));
    const std::string who = ranks.size() == 1 ? Capital(Name(*ranks.front()))
                                              : absl::StrCat("Ranks ", RankList(numbers, 8), ", each");
    absl::StrAppend(&text, " ", who, deeds, ".");
  }
  return text;
}

}  // namespace

std::string ShapeText(const CallShape& shape) {
  std::string text = absl::StrCat(shape.op, ", ", Count(shape.count), " x ",
                                  shape.datatype.empty() ? "unknown type" : shape.datatype);
  if (shape.root >= 0) absl::StrAppend(&text, ", root ", shape.root);
  return text;
}

std::string HangKindName(Hang::Kind kind) {
  switch (kind) {
    case Hang::Kind::kMissingRank:
      return "missing_rank";
    case Hang::Kind::kMismatch:
      return "mismatch";
    default:
      return "all_issued";
  }
}

std::string HangStateName(HangRank::State state) {
  switch (state) {
    case HangRank::State::kNotIssued:
      return "not_issued";
    case HangRank::State::kLaunchedNothing:
      return "launched_nothing";
    case HangRank::State::kIssuedOtherwise:
      return "issued_otherwise";
    case HangRank::State::kHalted:
      return "halted";
    default:
      return "waiting";
  }
}

std::string HangStatement(const Hang& hang) {
  std::string call = absl::StrCat(hang.shape.op, " seq ", hang.seq, " on ", WhereItIs(hang));
  if (hang.replay.has_value())
    call = absl::StrCat("Replay ", hang.replay->number, " of the CUDA graph with ", call);
  const std::string waiting = Duration(static_cast<double>(hang.waiting_ns));
  if (hang.transfer.has_value()) {
    const HangTransfer& t = *hang.transfer;
    const std::string self = t.rank.has_value() ? absl::StrCat("rank ", t.label) : t.label;
    const std::string peer = t.peer.has_value() ? absl::StrCat("rank ", t.peer_label) : t.peer_label;
    const bool sends = !nccl::IsSend(t.counterpart);
    std::string whose = absl::StrCat(hang.shape.op, " seq ", hang.seq, " by ", self,
                                     sends ? " to " : " from ", peer, " on ", WhereItIs(hang));
    if (IsHalted(hang))
      return absl::StrCat(WhoIsHalted(hang), "; ", whose, " has been waiting for ", waiting, ".");
    if (hang.replay.has_value()) {
      whose = absl::StrCat("Replay ", hang.replay->number, " of the CUDA graph with ", whose);
      return hang.kind == Hang::Kind::kMissingRank
                 ? absl::StrCat(whose, " has been waiting for ", waiting, ": ", peer,
                                " did not launch its graph with the ", t.counterpart, ".")
                 : absl::StrCat(whose, " has been waiting for ", waiting,
                                ": both ranks launched their graph, but it does not finish.");
    }
    if (hang.kind == Hang::Kind::kMissingRank) {
      return absl::StrCat(whose, " has been waiting for ", waiting, ": ", peer, " did not issue its ",
                          t.counterpart, ".");
    }
    return absl::StrCat(whose, " has been waiting for ", waiting,
                        ": both ranks issued their part, but it does not finish.");
  }
  switch (hang.kind) {
    case Hang::Kind::kMissingRank: {
      if (IsHalted(hang))
        return absl::StrCat(WhoIsHalted(hang), "; ", call, " has been waiting for it for ", waiting, ".");
      const bool called = hang.ranks.front().state == HangRank::State::kLaunchedNothing;
      return absl::StrCat(call, " has been waiting for ", waiting, ": ", Names(hang),
                          called                    ? " issued the call but launched no kernel."
                          : hang.replay.has_value() ? " did not launch it."
                                                    : " did not issue it.");
    }
    case Hang::Kind::kMismatch:
      return absl::StrCat(call, " was issued differently by ", Names(hang),
                          hang.over ? ", and finished all the same."
                                    : absl::StrCat("; it has been waiting for ", waiting, "."));
    default:
      return absl::StrCat(call, " has been waiting for ", waiting, ": all ", hang.issued,
                          hang.not_heard > 0 ? " recorded ranks " : " ranks ",
                          hang.replay.has_value() ? "launched it" : "issued it", ", but it does not finish.");
  }
}

std::string PastHangStatement(const PastHang& past) {
  const Hang& hang = past.hang;
  const std::string call = absl::StrCat(hang.shape.op, " seq ", hang.seq, " on ", WhereItIs(hang));
  const std::string who = hang.kind == Hang::Kind::kAllIssued
                              ? std::string(", although all ranks had issued it.")
                              : absl::StrCat(", waiting for ", Names(hang), ".");
  return absl::StrCat(
      hang.replay.has_value() ? absl::StrCat("Replay ", hang.replay->number, " of the CUDA graph with ") : "",
      call, " hung for ", Duration(static_cast<double>(past.until_ns - past.since_ns)), ", from ",
      ClockTime(past.since_ns), " to ", ClockTime(past.until_ns), who);
}

std::string HangEvidence(const Hang& hang) {
  const std::string shape =
      hang.replay.has_value() ? absl::StrCat(hang.shape.op, " of ", Bytes(hang.shape.bytes), " when captured")
                              : ShapeText(hang.shape);
  std::string text;
  if (hang.kind == Hang::Kind::kMismatch && !hang.culprit_known) {
    text = "The ranks are split evenly, so the faulty side is unknown.";
  } else if (hang.transfer.has_value()) {
    const HangTransfer& t = *hang.transfer;
    text = absl::StrCat(Capital(t.rank.has_value() ? absl::StrCat("rank ", t.label) : t.label),
                        hang.replay.has_value() ? " launched it (" : " issued it (", shape, ").");
    if (t.others_waiting > 0)
      absl::StrAppend(&text, " ", t.others_waiting,
                      t.others_waiting == 1 ? " other transfer waits" : " other transfers wait",
                      " for the same rank.");
  } else {
    const bool called = std::any_of(hang.ranks.begin(), hang.ranks.end(), [](const HangRank& r) {
      return r.state == HangRank::State::kLaunchedNothing;
    });
    const char* issued = hang.replay.has_value() ? "launched it" : "issued it";
    const char* did = !called ? issued : hang.issued == 1 ? "waits in it" : "wait in it";
    text = absl::StrFormat("%d %s %s (%s).", hang.issued, hang.issued == 1 ? "rank" : "ranks", did, shape);
  }
  if (hang.replay.has_value()) text += ReplayEvidence(*hang.replay);
  if (hang.not_heard > 0)
    absl::StrAppend(&text, " ", hang.not_heard,
                    hang.not_heard == 1 ? " of its ranks is" : " of its ranks are", " not recorded here.");
  text += RanksEvidence(hang);
  if (hang.mismatches_after > 0)
    absl::StrAppend(&text, " ", hang.mismatches_after, " later calls on this communicator differ, too.");
  if (hang.earlier_work)
    absl::StrAppend(&text, " Work launched before it is not known to have finished either.");
  return text;
}

std::string HangAdvice(const Hang& hang) {
  const std::string who = hang.ranks.empty() ? "it" : Capital(Name(hang.ranks.front()));
  std::string near;
  if (!hang.ranks.empty() && !hang.ranks.front().open_range.empty())
    near = absl::StrCat(" near \"", hang.ranks.front().open_range, "\"");
  switch (hang.kind) {
    case Hang::Kind::kMissingRank:
      if (const std::optional<Halt>& halt = hang.ranks.front().halt; halt.has_value())
        return HaltAdvice(*halt, Name(hang.ranks.front()), hang.ranks.front().pid);
      if (hang.ranks.front().ended) return absl::StrCat(who, " ended; its own log says why.");
      if (hang.ranks.front().state == HangRank::State::kLaunchedNothing)
        return absl::StrCat("Check the NCCL log (NCCL_DEBUG=WARN) of ", Name(hang.ranks.front()), ".");
      if (std::string advice = HostAdvice(hang.ranks.front()); !advice.empty()) return advice;
      return absl::StrCat(
          who, " left the common code path; look for control flow that depends on the rank or its data", near,
          ".");
    case Hang::Kind::kMismatch:
      return "A rank skipped or added a call, or its data has a different shape: make sizes and order equal "
             "on all ranks.";
    default: {
      constexpr char kLook[] =
          "check the network and the GPUs (NCCL_DEBUG=WARN, dmesg, link errors), and look for kernels that "
          "occupy the GPU.";
      if (hang.not_heard == 0) return absl::StrCat("No rank is missing: ", kLook);
      const bool one = hang.not_heard == 1;
      return absl::StrCat("It is unknown whether the ", one ? "rank" : absl::StrCat(hang.not_heard, " ranks"),
                          " that ", one ? "is" : "are",
                          " not recorded here issued it: check there first. If ", one ? "it" : "they",
                          " did, ", kLook);
    }
  }
}

}  // namespace gpuprobe::analysis
