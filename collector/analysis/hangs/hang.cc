#include "collector/analysis/hangs/hang.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/hang_words.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/units.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

std::string Ago(uint64_t ns) { return absl::StrCat(Duration(static_cast<double>(ns)), " ago"); }

// Of an ncclResult_t.
std::string ResultText(int result) {
  constexpr const char* kNames[] = {"ncclUnhandledCudaError", "ncclSystemError",  "ncclInternalError",
                                    "ncclInvalidArgument",    "ncclInvalidUsage", "ncclRemoteError"};
  constexpr int kCount = std::size(kNames);
  return result >= 1 && result <= kCount ? kNames[result - 1] : absl::StrCat("NCCL result ", result);
}

std::string Times(uint64_t times) { return absl::StrCat(Count(times), times == 1 ? " time" : " times"); }

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

// "its last call was AllReduce seq 48210, done 60.9 s ago; since then it launched nothing; ..."
std::string LastDeeds(const Hang& hang, const HangRank& r) {
  std::vector<std::string> deeds;
  if (r.refused_result != 0)
    deeds.push_back(
        absl::StrCat("its call failed ", Ago(r.refused_ago_ns), " with ", ResultText(r.refused_result)));
  if (r.replays.has_value()) {
    deeds.push_back(r.replays->launches == 0
                        ? "it never launched this graph"
                        : absl::StrCat("it launched this graph ", Times(r.replays->launches), ", last ",
                                       Ago(r.replays->last_launch_ago_ns.value_or(0))));
  }
  if (r.last_op.empty()) {
    deeds.emplace_back("it has issued no collective");
  } else {
    std::string call = absl::StrCat(
        r.state == HangRank::State::kNotIssued || r.state == HangRank::State::kIdle ? "its last call was "
                                                                                    : "its last call is ",
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
    if (r.launches_since.has_value())
      deeds.push_back(*r.launches_since == 0
                          ? "it has launched nothing since"
                          : absl::StrFormat("since it issued that call it has launched work %s, last %s",
                                            Times(*r.launches_since), Ago(r.last_launch_ago_ns.value_or(0))));
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
  if (r.state != HangRank::State::kWaiting && r.state != HangRank::State::kHalted) {
    for (std::string& clause : HostDeeds(r)) deeds.push_back(std::move(clause));
    if (!r.halt.has_value() && !r.python.empty())
      deeds.push_back(absl::StrCat("in Python it is in ", PythonPlace(r.python)));
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

// "Rank 3 has been stopped (SIGSTOP) since 18:02:11 UTC"
std::string WhoIsHalted(const Hang& hang) {
  constexpr size_t kTold = 3;
  std::vector<std::string> who;
  for (const HangRank& r : hang.ranks) {
    if (who.size() < kTold && r.halt.has_value())
      who.push_back(absl::StrCat(HangRankName(r), " ", HaltText(*r.halt)));
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

// "rank 3", "ranks 0-2", "pid 4711, pid 4712"
std::string WaiterNames(const Hang& hang) {
  std::vector<int> ranks;
  std::vector<std::string> labels;
  for (const HangWaiter& w : hang.waiting) {
    int rank = 0;
    if (absl::SimpleAtoi(w.label, &rank)) ranks.push_back(rank);
    labels.push_back(w.label);
  }
  if (ranks.size() < labels.size()) return absl::StrJoin(labels, ", ");
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankList(ranks, 8));
}

// "Ranks 0, 1, 3 have been in ncclCommInitRank of communicator 9c1e2a44 (4 ranks) for 20.1 s; rank 2 has not
// called it."
std::string CreationStatement(const Hang& hang) {
  std::string text =
      absl::StrCat(WaiterNames(hang), hang.waiting.size() == 1 ? " has" : " have",
                   hang.background ? " been waiting for nccl" : " been in nccl", hang.shape.op, " of ",
                   WhereItIs(hang), hang.background ? " to complete in the background for " : " for ",
                   Duration(static_cast<double>(hang.waiting_ns)));
  if (IsHalted(hang)) return absl::StrCat(WhoIsHalted(hang), "; ", text, ".");
  text = Capital(std::move(text));
  if (hang.ranks.empty() || hang.ranks.front().state == HangRank::State::kWaiting)
    return hang.absent.empty()
               ? absl::StrCat(text, hang.background ? ": all of them, but it does not complete."
                                                    : ": all of them, but it does not return.")
               : absl::StrCat(text, "; nobody is known to have called it for its rank",
                              hang.not_heard == 1 ? " " : "s ", hang.absent, ".");
  const bool refused = std::all_of(hang.ranks.begin(), hang.ranks.end(),
                                   [](const HangRank& r) { return r.refused_result != 0; });
  const bool one = hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out) == 1;
  return absl::StrCat(text, "; ", HangRankNames(hang),
                      refused ? (one ? " called it and got an error." : " called it and got errors.")
                              : (one ? " has not called it." : " have not called it."));
}

std::string NoWorkStatement(const Hang& hang) {
  std::string text = absl::StrCat(
      "No rank has given its GPU work for ", Duration(static_cast<double>(hang.waiting_ns)), ", ",
      hang.steps == 0 ? std::string("and no step has begun")
                      : absl::StrCat("after ", Count(hang.steps), hang.steps == 1 ? " step" : " steps"));
  if (!AllHostsAreIdle(hang))
    return absl::StrCat(text, "; the job may be waiting for input or working on the host.");
  return absl::StrCat(text, "; no call is open, and the hosts are idle, too. ",
                      hang.idle ? "It was not seen to train: it may wait for a request, or for something "
                                  "that never comes."
                                : "The cause is unknown.");
}

// "0-3, 5"; with the pids of processes that say they are the same rank.
std::string Labels(const std::vector<const HangRank*>& ranks) {
  std::vector<int> numbers;
  std::vector<std::string> labels;
  for (const HangRank* r : ranks) {
    if (r->rank.has_value() && r->label == absl::StrCat(*r->rank)) numbers.push_back(*r->rank);
    labels.push_back(r->label);
  }
  return numbers.size() == ranks.size() ? RankList(numbers, 8) : absl::StrJoin(labels, ", ");
}

// "Rank 1 issued its Send to rank 0 before its Recv from rank 0."
std::string LinkEvidence(const Hang& hang, const HangLink& link) {
  const bool many = absl::StartsWith(link.who, "ranks ");
  const std::string fewer = absl::StrCat(
      " made ", hang.extra_calls == 1 ? "one call" : absl::StrCat(hang.extra_calls, " calls"), " fewer and ");
  switch (link.kind) {
    case HangLink::Kind::kQueued:
      return absl::StrCat(link.who, " issued ", link.call, " before ", link.other);
    case HangLink::Kind::kNotIssued:
      return absl::StrCat(link.who, many ? " wait in " : " waits in ", link.call, " and did not issue ",
                          link.other);
    case HangLink::Kind::kFollows:
      return absl::StrCat(link.who, many ? " wait for " : " waits for ", link.other, " in ", link.call);
    case HangLink::Kind::kSameWork:
      return absl::StrCat(link.who, fewer, many ? "have" : "has", " launched all the work before it");
    default:
      return absl::StrCat(link.who, fewer, "exited with code 0");
  }
}

// What leads from one wait to another: in a circle, or from this hang on.
std::string LinksEvidence(const Hang& hang) {
  constexpr size_t kTold = 4;
  std::string text;
  for (size_t i = 0; i < std::min(kTold, hang.links.size()); ++i)
    absl::StrAppend(&text, " ", Capital(LinkEvidence(hang, hang.links[i])), ".");
  const size_t all = hang.links.size() + static_cast<size_t>(hang.links_left_out);
  if (all > kTold)
    absl::StrAppend(&text, " ", all - kTold, all == kTold + 1 ? " more wait is" : " more waits are",
                    hang.kind == Hang::Kind::kCircular ? " in the circle." : " a consequence.");
  return text;
}

// A clause on what one rank did, without its name.
std::string RankEvidence(const Hang& hang, const HangRank& r) {
  switch (r.state) {
    case HangRank::State::kNotIssued:
      return absl::StrCat(hang.kind == Hang::Kind::kCreation ? " is not in it: " : " did not: ",
                          LastDeeds(hang, r));
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
    const std::string who = ranks.size() == 1 ? Capital(HangRankName(*ranks.front()))
                                              : absl::StrCat("Ranks ", Labels(ranks), ", each");
    absl::StrAppend(&text, " ", who, deeds, ".");
  }
  return text;
}

}  // namespace

bool AllHostsAreIdle(const Hang& hang) {
  return std::all_of(hang.ranks.begin(), hang.ranks.end(), [](const HangRank& r) { return IsIdle(r.load); });
}

std::optional<uint64_t> StandstillNs(const std::vector<Hang>& hangs) {
  std::optional<uint64_t> since_ns;
  for (const Hang& hang : hangs) {
    if (!hang.over && !hang.idle) since_ns = std::min(since_ns.value_or(UINT64_MAX), hang.since_ns);
  }
  return since_ns;
}

std::string ShapeText(const CallShape& shape) {
  if (shape.datatype.empty() && shape.count == 0) return absl::StrCat(shape.op, ", ", Bytes(shape.bytes));
  std::string text = absl::StrCat(shape.op, ", ", Count(shape.count), " x ",
                                  shape.datatype.empty() ? "unknown type" : shape.datatype);
  if (shape.root >= 0) absl::StrAppend(&text, ", root ", shape.root);
  return text;
}

std::string HangCallText(const Hang& hang) {
  std::string text = absl::StrCat(hang.shape.op, " seq ", hang.seq);
  if (hang.kind == Hang::Kind::kCreation) text = absl::StrCat("nccl", hang.shape.op);
  if (hang.transfer.has_value()) {
    const HangTransfer& t = *hang.transfer;
    text = absl::StrCat(hang.shape.op, nccl::IsSend(hang.shape.op) ? " to " : " from ",
                        t.peer.has_value() ? "rank " : "", t.peer_label);
  }
  if (hang.replay.has_value())
    text = absl::StrCat("replay ", hang.replay->number, " of the CUDA graph with ", text);
  return absl::StrCat(text, " on communicator ", ShortComm(hang.comm));
}

std::string HangStatement(const Hang& hang) {
  if (hang.kind == Hang::Kind::kCreation) return CreationStatement(hang);
  if (hang.kind == Hang::Kind::kNoWork) return NoWorkStatement(hang);
  std::string call = absl::StrCat(hang.shape.op, " seq ", hang.seq, " on ", WhereItIs(hang));
  if (hang.replay.has_value())
    call = absl::StrCat("Replay ", hang.replay->number, " of the CUDA graph with ", call);
  const std::string waiting = Duration(static_cast<double>(hang.waiting_ns));
  if (hang.kind == Hang::Kind::kCircular)
    return absl::StrCat(Capital(HangRankNames(hang)), " have been waiting for each other for ", waiting,
                        ", in ", hang.links.size() + static_cast<size_t>(hang.links_left_out),
                        " calls that each wait behind another.");
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
        return absl::StrCat(WhoIsHalted(hang), "; ", call, " has been waiting for ",
                            hang.ranks.size() == 1 ? "it" : "them", " for ", waiting, ".");
      const bool called = hang.ranks.front().state == HangRank::State::kLaunchedNothing;
      return absl::StrCat(call, " has been waiting for ", waiting, ": ", HangRankNames(hang),
                          called                    ? " issued the call but launched no kernel."
                          : hang.replay.has_value() ? " did not launch it."
                                                    : " did not issue it.");
    }
    case Hang::Kind::kMismatch:
      return absl::StrCat(call, " was issued differently by ", HangRankNames(hang),
                          hang.over ? ", and finished all the same."
                                    : absl::StrCat("; it has been waiting for ", waiting, "."));
    case Hang::Kind::kExtraCall:
      return absl::StrCat(call, " has been waiting for ", waiting, ": ", HangRankNames(hang), " issued it, ",
                          hang.extra_calls == 1 ? "one call" : absl::StrCat(hang.extra_calls, " calls"),
                          " more than ", hang.links.empty() ? "the others" : hang.links.front().who, ".");
    default:
      return absl::StrCat(call, " has been waiting for ", waiting, ": all ", hang.issued,
                          hang.not_heard > 0 ? " recorded ranks " : " ranks ",
                          hang.replay.has_value() ? "launched it" : "issued it", ", but it does not finish.");
  }
}

std::string HangOverStatement(const Hang& hang) {
  const std::string waited = Duration(static_cast<double>(hang.waiting_ns));
  if (hang.kind == Hang::Kind::kNoWork)
    return absl::StrCat(hang.idle ? "IDLE" : "HANG", " over: ranks give their GPUs work again after ", waited,
                        " or slightly more.");
  return absl::StrCat(
      "HANG over: ",
      hang.replay.has_value() ? absl::StrCat("replay ", hang.replay->number, " of the CUDA graph with ") : "",
      hang.kind == Hang::Kind::kCreation ? absl::StrCat("nccl", hang.shape.op)
                                         : absl::StrCat(hang.shape.op, " seq ", hang.seq),
      " on communicator ", ShortComm(hang.comm),
      hang.background                      ? " completed after "
      : hang.kind == Hang::Kind::kCreation ? " returned after "
                                           : " continued after ",
      waited, " or slightly more.");
}

std::string PastHangStatement(const PastHang& past) {
  const Hang& hang = past.hang;
  const std::string when =
      absl::StrCat(Duration(static_cast<double>(past.until_ns - past.since_ns)), ", from ",
                   ClockTime(past.since_ns), " to ", ClockTime(past.until_ns));
  if (hang.kind == Hang::Kind::kNoWork) return absl::StrCat("No rank gave its GPU work for ", when, ".");
  if (hang.kind == Hang::Kind::kCreation)
    return absl::StrCat(Capital(WaiterNames(hang)), hang.waiting.size() == 1 ? " was" : " were", " in nccl",
                        hang.shape.op, " of ", WhereItIs(hang), " for ", when, ".");
  const std::string call = absl::StrCat(hang.shape.op, " seq ", hang.seq, " on ", WhereItIs(hang));
  const std::string who =
      hang.kind == Hang::Kind::kAllIssued   ? std::string(", although all ranks had issued it.")
      : hang.kind == Hang::Kind::kExtraCall ? absl::StrCat(", issued by ", HangRankNames(hang), " alone.")
                                            : absl::StrCat(", waiting for ", HangRankNames(hang), ".");
  return absl::StrCat(
      hang.replay.has_value() ? absl::StrCat("Replay ", hang.replay->number, " of the CUDA graph with ") : "",
      call, " hung for ", when, who);
}

std::string HangEvidence(const Hang& hang) {
  const std::string shape =
      hang.replay.has_value() ? absl::StrCat(hang.shape.op, " of ", Bytes(hang.shape.bytes), " when captured")
                              : ShapeText(hang.shape);
  if (hang.kind == Hang::Kind::kCircular) {
    const std::string links = LinksEvidence(hang);
    return absl::StrCat(links.substr(std::min<size_t>(1, links.size())), RanksEvidence(hang));
  }
  if (hang.kind == Hang::Kind::kNoWork) {
    const std::string ranks = RanksEvidence(hang);
    return ranks.substr(std::min<size_t>(1, ranks.size()));
  }
  std::string text;
  if (hang.kind == Hang::Kind::kCreation) {
    text = hang.background ? "NCCL completes it when all ranks have called it."
                           : "NCCL returns from it when all ranks have called it.";
  } else if (hang.kind == Hang::Kind::kMismatch && !hang.culprit_known) {
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
  const bool may_work = std::any_of(hang.ranks.begin(), hang.ranks.end(), [](const HangRank& r) {
    return r.state == HangRank::State::kNotIssued && !r.last_op.empty() && !r.launches_since.has_value();
  });
  if (may_work)
    text += " What ranks launch is not recorded at level calls: a rank that did not issue it may be at work.";
  text += RanksEvidence(hang);
  text += LinksEvidence(hang);
  if (hang.mismatches_after > 0)
    absl::StrAppend(&text, " ", hang.mismatches_after,
                    hang.mismatches_after == 1 ? " later call on this communicator differs, too."
                                               : " later calls on this communicator differ, too.");
  if (hang.earlier_work)
    absl::StrAppend(&text, " Work launched before it is not known to have finished either.");
  return text;
}

}  // namespace gpuprobe::analysis
