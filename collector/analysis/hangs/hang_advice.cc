// What to do about a hang, by its cause.
#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/hangs/hang_words.h"
#include "collector/analysis/hangs/process_state.h"

namespace gpuprobe::analysis {
namespace {

// Where it is, or how to find out: "it is in Loader.fetch (train.py:14)", "gpuprobe stacks 4711 --native
// shows where it is".
std::string WhereIsIt(const HangRank& r) {
  return r.python.empty() ? absl::StrCat("gpuprobe stacks ", r.pid, " --native shows where it is")
                          : absl::StrCat("it is in ", PythonPlace(r.python));
}

// Empty: its host has nothing remarkable to say.
std::string HostAdvice(const HangRank& r) {
  if (r.halt.has_value() || r.state != HangRank::State::kNotIssued) return "";
  if (r.blocked_in.empty() && !r.load.waits_for.empty())
    return absl::StrCat("Find out why ", HangRankName(r), " waits in ", r.load.waits_for,
                        r.python.empty() ? "" : absl::StrCat(", in ", PythonPlace(r.python)),
                        ", for example for a file system or a peer that does not respond.");
  if (IsBusyOnHost(r))
    return absl::StrCat(Capital(HangRankName(r)), " is computing or looping on the host: ", WhereIsIt(r),
                        ".");
  return HostLoadAdvice(r.load, nullptr, HangRankName(r));
}

// Fewer ranks issued it than did not.
bool FewIssued(const Hang& hang) {
  return !hang.transfer.has_value() && hang.issued > 0 &&
         hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out) > static_cast<size_t>(hang.issued);
}

// Ranks exited with code 0 without the call.
std::string FewerCallsAdvice(const Hang& hang) {
  return absl::StrCat(Capital(HangRankNames(hang)),
                      " made fewer calls than the others and ended normally: give all "
                      "ranks the same number of batches and steps",
                      hang.issued > static_cast<int>(hang.ranks.size())
                          ? "."
                          : ", and look for a call that only some ranks make.");
}

std::string ExtraCallAdvice(const Hang& hang) {
  std::string text = absl::StrCat("Look for a collective that only ", HangRankNames(hang),
                                  hang.ranks.size() == 1 ? " calls" : " call",
                                  ": a save, an evaluation or a barrier under a condition on the rank.");
  const auto there = std::find_if(hang.links.begin(), hang.links.end(), [](const HangLink& link) {
    return link.kind == HangLink::Kind::kSameWork;
  });
  if (there != hang.links.end())
    absl::StrAppend(&text, " If ", there->who, " should have issued it, too, gpuprobe stacks shows where ",
                    absl::StartsWith(there->who, "ranks ") ? "they are." : "it is.");
  return text;
}

// Ranks are in the call that creates a communicator.
std::string CreationAdvice(const Hang& hang) {
  if (hang.ranks.empty() || hang.ranks.front().state == HangRank::State::kWaiting) {
    return hang.absent.empty() ? "Check that the ranks' hosts reach each other: NCCL_DEBUG=INFO shows the "
                                 "interface that NCCL chose "
                                 "(NCCL_SOCKET_IFNAME), and a firewall may close its ports."
                               : "Check that all ranks were started and are recorded, and what the log of "
                                 "the missing ones says: they "
                                 "may have ended, or not have come to this call.";
  }
  const HangRank& r = hang.ranks.front();
  if (r.halt.has_value()) return HaltAdvice(*r.halt, HangRankName(r), r.pid);
  if (r.refused_result != 0)
    return absl::StrCat("Look in the log of ", HangRankName(r),
                        " for why (NCCL_DEBUG=WARN), and let a rank that fails end the job.");
  return absl::StrCat(
      "Look in the log of ", HangRankName(r),
      " for an error before the call that it survived, such as a failed allocation, and for control "
      "flow that depends on the rank; ",
      WhereIsIt(r), ".");
}

std::string NoWorkAdvice(const Hang& hang) {
  if (hang.ranks.empty()) return "";
  const std::string dump =
      absl::StrCat("gpuprobe stacks ", hang.ranks.front().pid, " --native, on each rank, shows what it ");
  constexpr char kWaits[] = "waits for: a lock file, a download, another process, a key in a store.";
  if (!hang.idle) return absl::StrCat(dump, kWaits);
  if (AllHostsAreIdle(hang))
    return absl::StrCat("A server without requests is no fault. If the job should be training, ", dump,
                        kWaits);
  return absl::StrCat(dump,
                      "does: a server that waits for requests, an evaluation or a compilation is no fault.");
}

}  // namespace

std::string HangAdvice(const Hang& hang) {
  const std::string who = hang.ranks.empty() ? "it" : Capital(HangRankName(hang.ranks.front()));
  std::string near;
  if (!hang.ranks.empty() && !hang.ranks.front().open_range.empty())
    near = absl::StrCat(" near \"", hang.ranks.front().open_range, "\"");
  switch (hang.kind) {
    case Hang::Kind::kMissingRank:
      if (const std::optional<Halt>& halt = hang.ranks.front().halt; halt.has_value()) {
        if (halt->exit_code == 0U) return FewerCallsAdvice(hang);
        if (IsHalted(hang))
          return HaltAdvice(*halt, HangRankName(hang.ranks.front()), hang.ranks.front().pid);
      }
      if (hang.ranks.front().ended && !hang.ranks.front().halt.has_value())
        return absl::StrCat(who, " ended; its own log says why.");
      if (hang.ranks.front().state == HangRank::State::kLaunchedNothing)
        return absl::StrCat("Check the NCCL log (NCCL_DEBUG=WARN) of ", HangRankName(hang.ranks.front()),
                            ".");
      if (std::string advice = HostAdvice(hang.ranks.front()); !advice.empty()) return advice;
      if (IsIdle(hang.ranks.front().load) && !FewIssued(hang))
        return absl::StrCat(who, " does nothing on its host", near, ": ", WhereIsIt(hang.ranks.front()),
                            ". It waits there for something (its data loader, a lock, a store), or left the "
                            "common code path.");
      return absl::StrCat(FewIssued(hang) ? absl::StrCat(Capital(HangRankNames(hang)),
                                                         " left the common code path, or those that "
                                                         "issued it made a call too many")
                                          : absl::StrCat(who, " left the common code path"),
                          "; look for control flow that depends on the rank or its data", near, ".");
    case Hang::Kind::kMismatch:
      return "A rank skipped or added a call, or its data has a different shape: make sizes and order equal "
             "on all ranks.";
    case Hang::Kind::kCircular:
      return hang.transfer.has_value()
                 ? "Put the sends and receives of one exchange into one group (ncclGroupStart and "
                   "ncclGroupEnd; batch_isend_irecv in PyTorch), or let one side receive first."
                 : "Issue the calls of different communicators in the same order on all ranks, and let a "
                   "stream wait for one before the next is issued on another stream.";
    case Hang::Kind::kExtraCall:
      return ExtraCallAdvice(hang);
    case Hang::Kind::kCreation:
      return CreationAdvice(hang);
    case Hang::Kind::kNoWork:
      return NoWorkAdvice(hang);
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
