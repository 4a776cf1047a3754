// Collectives that do not finish, or that their ranks issued differently.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/processes.h"
#include "collector/report/python_stack.h"

namespace gpuprobe::analysis {

// How a rank issued a collective.
struct CallShape {
  std::string op;
  uint64_t count = 0;
  std::string datatype;
  uint64_t bytes = 0;
  int root = -1;  // -1: the operation has none

  static constexpr void Declare(auto& fields) {
    using S = CallShape;
    fields("op", &S::op, "the operation");
    fields("count", &S::count, "elements; `null`: not known").NullUnless([](const S& s) {
      return s.count != 0 || !s.datatype.empty();
    });
    fields("datatype", &S::datatype, "their type; `null`: not known").NullIfZero();
    fields("bytes", &S::bytes, "count x element size");
    fields("root", &S::root, "the root's rank; `null`: the operation has none").NullUnless([](const S& s) {
      return s.root >= 0;
    });
  }
};

// A rank's launches of a CUDA graph.
struct HangRankReplays {
  uint64_t launches = 0;
  std::optional<uint64_t> last_launch_ago_ns;

  static constexpr void Declare(auto& fields) {
    fields("launches", &HangRankReplays::launches, "of this graph");
    fields("last_launch_ago_ns", &HangRankReplays::last_launch_ago_ns,
           "the last of them; `null`: it never launched it");
  }
};

// One rank of a collective that hangs, and what it did last.
struct HangRank {
  // kHalted: its process cannot run, whatever it issued. kIdle: it waits for no call, and works on nothing.
  enum class State { kNotIssued, kLaunchedNothing, kWaiting, kIssuedOtherwise, kHalted, kIdle };
  std::string label;  // "5", or "pid 4711"
  std::optional<int> rank;
  std::string host;
  uint32_t pid = 0;
  State state = State::kWaiting;
  std::optional<CallShape> shape;
  bool ended = false;
  // Its last collective on any communicator; empty op: it issued none.
  std::string last_op;
  std::string last_comm;
  uint64_t last_seq = 0;
  bool last_captured = false;
  std::optional<uint64_t> last_issue_ago_ns;
  std::optional<uint64_t> last_done_ago_ns;
  std::optional<uint64_t> launches_since;
  std::optional<uint64_t> last_launch_ago_ns;
  std::optional<uint64_t> silent_ns;
  std::string blocked_in;
  std::string open_range;
  std::optional<HangRankReplays> replays;
  int refused_result = 0;  // 0: none failed
  uint64_t refused_ago_ns = 0;
  std::optional<Halt> halt;
  HostLoad load;  // while it was waited for
  std::vector<PythonFrame> python;

  static constexpr void Declare(auto& fields) {
    using R = HangRank;
    fields("rank", &R::rank, "`null` if its process has none");
    fields("host", &R::host, "its host");
    fields("pid", &R::pid, "its process");
    fields("state", &R::state,
           "`not_issued`, `launched_nothing`, `issued_otherwise`, `waiting`, `idle` (for `no_work`), or "
           "`halted`: its process could not run, whether it issued the call or not");
    fields("issued", &R::shape, "what it issued, for `issued_otherwise`; else `null`");
    fields("ended", &R::ended, "the process is gone");
    fields
        .Group("last_call", "its last collective on any communicator; `null`: it issued none",
               [](auto& group) {
                 group("op", &R::last_op, "operation");
                 group("comm", &R::last_comm, "communicator");
                 group("seq", &R::last_seq, "the call's number on it");
                 group("issued_ago_ns", &R::last_issue_ago_ns, "when it was issued");
                 group("done_ago_ns", &R::last_done_ago_ns,
                       "when it ended; `null`: it is not known to have ended");
                 group("captured", &R::last_captured, "into a CUDA graph, instead of launched");
               })
        .NullUnless([](const R& r) { return !r.last_op.empty(); });
    fields(
        "launches_since", &R::launches_since,
        "launches after that call returned, at least; `null`: it issued none, or launches are not recorded");
    fields("last_launch_ago_ns", &R::last_launch_ago_ns, "the last launch");
    fields("silent_ns", &R::silent_ns, "it is connected, and has sent nothing for so long");
    fields("blocked_in", &R::blocked_in, "the call that its main thread waits in; `null`: none, or not known")
        .NullIfZero();
    fields("open_range", &R::open_range, "the ranges open there, joined by `/`").NullIfZero();
    fields("replays", &R::replays, "what it did with this graph");
    fields
        .Group("refused", "for `creation`: its own call failed; else `null`",
               [](auto& group) {
                 group("result", &R::refused_result, "with this `ncclResult_t`");
                 group("ago_ns", &R::refused_ago_ns, "when");
               })
        .NullUnless([](const R& r) { return r.refused_result != 0; });
    fields("halt", &R::halt, "why it cannot run; `null`: it can, or nobody knows");
    fields("host_load", &R::load, "since the others wait");
    fields("python", &R::python,
           "where its main thread is in its Python code, innermost function first; empty: it goes on, or it "
           "is not known");
    fields.Unwritten(&R::label);
  }
};

// A send or receive: who waits in it for whom.
struct HangTransfer {
  std::optional<int> rank;
  std::string label;
  std::optional<int> peer;
  std::string peer_label;
  std::string counterpart;  // "Send"
  int others_waiting = 0;

  static constexpr void Declare(auto& fields) {
    using T = HangTransfer;
    fields("rank", &T::rank, "that waits");
    fields("peer", &T::peer, "that it waits for");
    fields("counterpart", &T::counterpart, "what the peer has to call");
    fields("others_waiting", &T::others_waiting, "further transfers that wait for it");
    fields.Unwritten(&T::label, &T::peer_label);
  }
};

// Collectives that a CUDA graph carries.
struct HangReplay {
  uint64_t number = 0;
  uint64_t collectives = 0;
  uint64_t ended = 0;
  uint64_t first_seq = 0;  // of the collectives, captured first
  int communicators = 1;

  static constexpr void Declare(auto& fields) {
    using R = HangReplay;
    fields("number", &R::number, "of the graph's launches, from 1");
    fields("collectives", &R::collectives, "of this communicator, that the graph carries");
    fields("ended", &R::ended, "how many of them are known to have ended");
    fields("communicators", &R::communicators, "on how many communicators ranks wait in the same launches");
    fields.Unwritten(&R::first_seq);
  }
};

// How one wait leads to another, in the words of screens.
//
// Example: rank 1 issued its Send to rank 0 before its Recv from rank 0: `who` "rank 1", `call` "its Send to
// rank 0", `other` "its Recv from rank 0".
struct HangLink {
  enum class Kind { kQueued, kNotIssued, kFollows, kSameWork, kExited };
  Kind kind = Kind::kFollows;
  std::string who;
  std::string call;
  std::string other;

  static constexpr void Declare(auto& fields) {
    using L = HangLink;
    fields("kind", &L::kind,
           "`who` issued `call` before `other` (`queued`), waits in `call` and did not issue `other` "
           "(`not_issued`), waits in `call` for `other` (`follows`), did the same work without the call "
           "(`same_work`), or exited with code 0 without it (`exited`)");
    fields("who", &L::who, "the rank or ranks");
    fields("call", &L::call, "a call, in the report's words").NullIfZero();
    fields("other", &L::other, "another one").NullIfZero();
  }
};

// A rank that waits.
struct HangWaiter {
  std::string label;
  std::string host;
  uint32_t pid = 0;
};

struct Hang {
  enum class Kind { kMissingRank, kMismatch, kAllIssued, kCircular, kExtraCall, kCreation, kNoWork };
  Kind kind = Kind::kAllIssued;
  std::string comm;  // 16 hex digits
  std::string comm_name;
  int comm_ranks = 0;
  uint64_t seq = 0;
  std::optional<HangTransfer> transfer;
  std::optional<HangReplay> replay;  // `seq` and `shape` are then of the call when it was captured
  CallShape shape;                   // as most ranks issued it
  uint64_t since_ns = 0;
  uint64_t waiting_ns = 0;
  bool over = false;
  int issued = 0;
  int not_heard = 0;
  static constexpr size_t kMaxRanks = 16;
  std::vector<HangRank> ranks;
  int ranks_left_out = 0;
  bool culprit_known = true;
  bool earlier_work = false;
  uint64_t mismatches_after = 0;
  std::vector<HangWaiter> waiting;  // at most kMaxRanks
  // kCircular: the circle, in order. Otherwise what the ranks did that are not in `ranks`, and the waits that
  // follow from this one. At most kMaxLinks.
  static constexpr size_t kMaxLinks = 8;
  std::vector<HangLink> links;
  int links_left_out = 0;
  uint64_t extra_calls = 0;
  std::string absent;       // "2, 5"
  bool background = false;  // kCreation: the calls have returned, and NCCL goes on
  uint64_t steps = 0;
  bool idle = false;

  static constexpr void Declare(auto& fields) {
    using H = Hang;
    fields(
        "kind", &H::kind,
        "`missing_rank`, `mismatch`, `all_issued`, `circular` (each rank's call waits behind another one's), "
        "`extra_call` (most ranks are done, and a few made more calls), `creation` (ranks are in the call "
        "that creates a communicator) or `no_work` (no call is open, and no rank gives its GPU work)");
    fields("comm", &H::comm, "hash of the communicator, as in `collectives[]`");
    fields("comm_name", &H::comm_name, "its name").NullIfZero();
    fields("comm_ranks", &H::comm_ranks, "its size");
    fields("seq", &H::seq, "the call's number on it; with `transfer`, as its `rank` counts");
    fields.Inline(&H::shape);
    fields("replay", &H::replay, "for a launch of a CUDA graph; else `null`");
    fields("transfer", &H::transfer, "for a send or receive; else `null`");
    fields("since_ns", &H::since_ns, "since when");
    fields("waiting_ns", &H::waiting_ns, "for how long");
    fields("over", &H::over, "whether it ended after all");
    fields("issued", &H::issued, "ranks that issued it (in the majority's way)");
    fields("not_heard", &H::not_heard, "ranks of the communicator that do not record here");
    fields("culprit_known", &H::culprit_known,
           "whether `ranks[]` are at fault; false for `all_issued`, `circular` and `no_work`, and for a "
           "mismatch without a majority");
    fields("ranks", &H::ranks,
           "the ranks at fault (for `all_issued` and `circular`: those that wait), 16 at most");
    fields("ranks_left_out", &H::ranks_left_out, "how many more there are");
    fields("links", &H::links,
           "how waits lead to each other, in the report's words; 8 at most. For `circular`: the circle, in "
           "order");
    fields("links_left_out", &H::links_left_out, "how many more there are");
    fields("extra_calls", &H::extra_calls, "for `extra_call`: how many calls more than the others'");
    fields("absent", &H::absent,
           "for `creation`: ranks of the communicator that are not in the call and whose processes are not "
           "known")
        .NullIfZero();
    fields("steps", &H::steps, "for `no_work`: steps that every rank had begun; else `null`")
        .NullUnless([](const H& h) { return h.kind == Kind::kNoWork; });
    fields("idle", &H::idle,
           "for `no_work`: true if the job may be waiting for a request or for input, works on the host, or "
           "was never seen to train");
    fields("mismatches_after", &H::mismatches_after, "further calls of this communicator that differ");
    fields("earlier_work_unfinished", &H::earlier_work,
           "for `all_issued`: work launched before the call is not known to have ended either");
    fields.Unwritten(&H::waiting, &H::background);
  }
};

// A hang that was reported while the job ran, and was over before its end.
struct PastHang {
  Hang hang;  // whose `since_ns` is on the processes' line
  uint64_t since_ns = 0;
  uint64_t until_ns = 0;

  static constexpr void Declare(auto& fields) {
    fields.Inline(&PastHang::hang);
    fields.Replace("since_ns", &PastHang::since_ns, "since when, as the clock said");
    fields.Replace(
        "over", [](const PastHang&) { return true; }, "true");
    fields("until_ns", &PastHang::until_ns, "until when, as the clock said");
  }
};

}  // namespace gpuprobe::analysis
