// A collective that does not finish, or that its ranks issued differently: plain data of the report.
//
// Separate from the search for them (hangs.h) so that rendering does not depend on the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/process_state.h"

namespace gpuprobe::analysis {

// From when on a collective that waits is called a hang.
inline constexpr uint64_t kDefaultHangAfterNs = 60'000'000'000;

// How a rank issued a collective.
struct CallShape {
  std::string op;
  uint64_t count = 0;
  std::string datatype;  // empty: not known
  uint64_t bytes = 0;    // count x element size
  int root = -1;         // -1: the operation has none
};

// A rank's launches of a CUDA graph.
struct HangRankReplays {
  uint64_t launches = 0;
  std::optional<uint64_t> last_launch_ago_ns;  // absent: it never launched it
};

// One rank of a collective that hangs, and what it did last.
struct HangRank {
  // kHalted: its process cannot run, whatever it issued.
  enum class State { kNotIssued, kLaunchedNothing, kWaiting, kIssuedOtherwise, kHalted };
  std::string label;  // "5", or "pid 4711"
  std::optional<int> rank;
  std::string host;
  uint32_t pid = 0;
  State state = State::kWaiting;
  std::optional<CallShape> shape;  // kIssuedOtherwise: what it issued
  bool ended = false;              // the process is gone
  // Its last collective on any communicator; empty op: it issued none.
  std::string last_op;
  std::string last_comm;
  uint64_t last_seq = 0;
  bool last_captured = false;  // into a CUDA graph, instead of launched
  std::optional<uint64_t> last_issue_ago_ns;
  std::optional<uint64_t> last_done_ago_ns;  // absent: it is not known to have ended
  uint64_t launches_since = 0;               // after that call returned, at least
  std::optional<uint64_t> last_launch_ago_ns;
  std::optional<uint64_t> silent_ns;  // connected, but it has sent nothing for this long
  std::string blocked_in;             // the call that its main thread waits in; empty: none, or not known
  std::string open_range;             // ranges open on its main thread, joined by '/'
  std::optional<HangRankReplays> replays;
  std::optional<Halt> halt;  // why it cannot run
  HostLoad load;             // while it was waited for
};

// A send or receive: who waits in it for whom.
struct HangTransfer {
  std::optional<int> rank;  // that waits
  std::string label;
  std::optional<int> peer;
  std::string peer_label;
  std::string counterpart;  // what the peer has to call: "Send"
  int others_waiting = 0;   // further transfers that wait for the same peer
};

// Collectives that a CUDA graph carries.
struct HangReplay {
  uint64_t number = 0;       // of the graph's launches, from 1
  uint64_t collectives = 0;  // of the communicator, in the graph
  uint64_t ended = 0;        // of these, known to have ended in this launch
  uint64_t first_seq = 0;    // of these, captured first
  int communicators = 1;     // on which ranks wait in the same launches
};

// A rank that waits.
struct HangWaiter {
  std::string label;
  std::string host;
  uint32_t pid = 0;
};

struct Hang {
  enum class Kind { kMissingRank, kMismatch, kAllIssued };
  Kind kind = Kind::kAllIssued;
  std::string comm;  // 16 hex digits
  std::string comm_name;
  int comm_ranks = 0;
  uint64_t seq = 0;  // of a transfer: as the waiting rank counts
  std::optional<HangTransfer> transfer;
  std::optional<HangReplay> replay;  // `seq` and `shape` are then of the call when it was captured
  CallShape shape;                   // as most ranks issued it
  uint64_t since_ns = 0;
  uint64_t waiting_ns = 0;
  bool over = false;  // a mismatch whose kernels ended all the same
  int issued = 0;     // ranks that issued it (in the majority's way)
  int not_heard = 0;  // ranks of the communicator that do not record here
  // The ranks at fault, as far as that is known; for kAllIssued all that wait, at most kMaxRanks.
  static constexpr size_t kMaxRanks = 16;
  std::vector<HangRank> ranks;
  int ranks_left_out = 0;
  bool culprit_known = true;        // false: kAllIssued, and a mismatch without a majority
  bool earlier_work = false;        // kAllIssued: work launched before it is not known to have ended either
  uint64_t mismatches_after = 0;    // further calls of this communicator that differ
  std::vector<HangWaiter> waiting;  // at most kMaxRanks
};

// A hang that was reported while the job ran, and was over before its end.
struct PastHang {
  Hang hang;
  uint64_t since_ns = 0;  // as the clock said
  uint64_t until_ns = 0;
};

// "AllReduce (6,553,600 x float32)"
std::string ShapeText(const CallShape& shape);
// As screens show it: what hangs; who issued it and who did not, and what those did last; what to look at.
std::string HangStatement(const Hang& hang);
// "From 18:02:11 UTC to 18:03:40 UTC ranks waited for rank 3: ..."
std::string PastHangStatement(const PastHang& past);
std::string HangEvidence(const Hang& hang);
std::string HangAdvice(const Hang& hang);
// "missing_rank", "mismatch", "all_issued"
std::string HangKindName(Hang::Kind kind);
std::string HangStateName(HangRank::State state);

}  // namespace gpuprobe::analysis
