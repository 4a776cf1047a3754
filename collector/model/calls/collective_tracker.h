// NCCL calls of one process, joined to the GPU time of the plan that carried them, as series per (operation,
// communicator, size).
//
// Three streams meet here in any order: calls (Collectives), plan-to-launch pairs (Plans) and kernels. A plan
// waits until its kernels have ended and nothing more can come for it, or until enough later ones exist, or
// until Finish; then it is settled into its series and handed to the job, which compares ranks. A plan's time
// is from the start of its first kernel to the end of its last.
//
// The calls of a plan that was captured into a CUDA graph are a pattern: each launch of a graph that carries
// it is a plan of its own, with the pattern's calls and its own time. Ranks are matched by the captured
// call's sequence number and the number of the replay, which all ranks count alike because they launch the
// same graphs in the same order. Replays of one pattern settle in the order of their launches.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "collector/model/calls/first_plan.h"
#include "collector/model/calls/graph_replays.h"
#include "collector/model/calls/transfers.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// Calls of one operation within a series.
struct CollectivePart {
  uint32_t op = 0;     // StringDef
  uint64_t calls = 0;  // in all
  uint64_t bytes = 0;  // in all: count x element size
  // As above, of the calls whose GPU time is known: what a bandwidth may be computed from.
  uint64_t timed_bytes = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, op, calls, bytes, timed_bytes);
  }
};

// How NCCL ran calls of a series, where it said so.
struct RanAs {
  uint32_t algorithm = 0;  // StringDef
  uint32_t protocol = 0;   // StringDef
  uint32_t channels = 0;
  uint64_t calls = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, algorithm, protocol, channels, calls);
  }
};

// One side of a send and its receive, as a plan carries it.
struct TransferEnd {
  uint32_t op = 0;       // StringDef
  int32_t peer = -1;     // its rank in the communicator
  uint64_t ordinal = 0;  // among those between the two ranks in this direction, which both sides count alike
};

// How sends and receives are combined in plans; distinguishes exchanges from pipelines. Example: {send to 2,
// receive from 0} goes both ways, meets two peers, and is mutual with none of them.
struct TransferShapes {
  uint64_t one_way = 0;    // plans that only send or only receive
  uint64_t both_ways = 0;  // plans that do both
  // The most of any plan that goes both ways; a rank that sends to itself is one of its peers.
  uint32_t peers = 0;
  uint32_t mutual = 0;  // peers that it sends to and receives from
  bool with_itself = false;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, one_way, both_ways, peers, mutual, with_itself);
  }
};

struct CollectiveSeries {
  static constexpr size_t kMaxRanAs = 8;  // beyond, calls are not counted there
  uint32_t place = 0;                     // in CollectiveTracker::series
  uint32_t comm = 0;                      // Communicator.id of this process
  uint64_t size_bytes = 0;                // bytes of one plan's calls; 0 for plans of mixed sizes
  uint32_t calls_per_plan = 1;            // above 1: fused
  bool mixed_sizes = false;               // the overflow series: too many distinct sizes
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint32_t element_bytes = 0;  // of its calls; 0: none yet
  bool mixed_elements = false;
  uint64_t failed_calls = 0;
  uint64_t untimed_calls = 0;  // launched nothing, or their kernel was not captured
  // Untimed calls with nothing to launch: refused, without elements, or on a communicator of one rank.
  uint64_t unlaunched_calls = 0;
  std::vector<CollectivePart> parts;
  std::vector<RanAs> ran_as;
  // One sample per plan. Kept small: each of a thousand ranks has several series.
  static constexpr size_t kExactLimit = 1024;
  Distribution time_ns{kExactLimit};
  FirstPlan first;
  TransferShapes shapes;  // of its plans that the job matched

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(place), comm, size_bytes, calls_per_plan, mixed_sizes, calls, bytes,
                    element_bytes, mixed_elements, failed_calls, untimed_calls, unlaunched_calls, parts,
                    ran_as, time_ns, first, shapes);
  }
};

// A settled plan of collectives, as the job compares it across ranks.
struct SettledPlan {
  CollectiveSeries* series;
  uint32_t comm;
  uint64_t seq;     // of its first call
  uint64_t replay;  // from 1: the n-th launch of the captured plan; 0: launched at once
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t issue_ns;     // of its first call; 0: replayed
  uint64_t correlation;  // of its first launch
  uint64_t batch;        // in which its last kernel came, from 0
  uint64_t bytes;
  // It was launched, and its kernel's record will not come: without times.
  bool lost;
  // Its sends and receives, if it consists of nothing else; valid during the event.
  std::span<const TransferEnd> transfers;
  // Where its communicator's device is in DeviceSteps, and by how much the clock had been set forward before:
  // its owner's to say.
  size_t device = 0;
  int64_t clock_shift_ns = 0;
};

// What the tracker reports to its owner as records come.
struct CollectiveEvents {
  // A call was issued; not yet known whether it was captured.
  std::function<void(const CollectiveRecord&)> issued = [](const CollectiveRecord&) {};
  // The first kernel of the call's plan has ended, or the call was captured and so never launched.
  std::function<void(uint32_t comm, uint64_t seq, uint64_t end_ns)> finished = [](uint32_t, uint64_t,
                                                                                  uint64_t) {};
  std::function<void(const SettledPlan&)> settled = [](const SettledPlan&) {};
};

class CollectiveTracker {
 public:
  static constexpr size_t kMaxWaiting = 65536;
  static constexpr size_t kMaxSeries = 2048;
  // More captured plans than a program has; beyond, their calls count as untimed.
  static constexpr size_t kMaxCaptured = 65536;

  // A group's calls and launches are spread over two batches at most.
  static constexpr uint64_t kSettleBatches = 2;
  // How many of the plans that were settled without a launch are remembered: the latest.
  static constexpr size_t kMaxUnlaunched = 1024;

  explicit CollectiveTracker(CollectiveEvents events);

  // `point_to_point`: its sequence number says nothing about other ranks; the ranks of a pair are counted.
  void AddCall(const CollectiveRecord& record, bool point_to_point);
  // The plan was launched with this correlation id.
  void AddLaunch(uint64_t plan, uint64_t correlation);
  // `last_word`: this kernel will not be reported again.
  void AddKernel(uint64_t plan, uint64_t start_ns, uint64_t end_ns, bool last_word);
  // The record of one of its kernels was lost.
  void AddLostKernel(uint64_t plan);
  // The plan's calls were captured, not launched.
  void MarkCaptured(uint64_t plan);
  // A kernel of a captured plan, this node's, ran in the graph launch with this correlation id.
  void AddReplayedKernel(CarriedPlan carried, uint64_t node, uint64_t correlation, uint64_t start_ns,
                         uint64_t end_ns);
  // An executable graph carries the captured plan, was launched, and has ended as a whole.
  void AddToGraph(const PlanRecord& r) {
    replays_.Carries(r.graph, r.graph_node, {r.plan, r.copy}, r.from_correlation);
  }
  void AddGraphLaunch(const LaunchRecord& r) { replays_.Launched(r.graph, r.correlation, r.time_ns); }
  void EndGraphLaunch(uint64_t correlation) { replays_.Over(correlation); }
  // A kernel of NCCL's that no call explains: a record of its own, of an unknown communicator.
  void AddUnexplained(uint32_t op, uint64_t start_ns, uint64_t end_ns);
  // From a roll-up, in place of all of the above.
  void Define(const v1::PlanSeries& series);
  // One plan's calls of each series, as they were defined: in no state.
  using Defined = std::vector<std::vector<CollectivePart>>;
  const Defined& defined() const { return parts_; }
  void Define(Defined defined) { parts_ = std::move(defined); }
  absl::Status AddSettled(const ArrivalRecord& r, std::span<const TransferEnd> transfers);
  // A batch was applied: settles plans that were complete kSettleBatches ago.
  void EndBatch();
  // `goes_on`: calls whose kernels have not ended are left out.
  void Finish(bool goes_on = false);

  // The calls of a plan that waits or was captured; all zero if it is not known (any more).
  struct Calls {
    uint32_t op = 0;  // of the first call
    uint32_t comm = 0;
    uint64_t seq = 0;
    uint32_t count = 0;
    uint64_t bytes = 0;  // of all
  };
  Calls CallsOf(uint64_t plan) const;
  // A send or receive of a plan that was captured; `pair` as TransferEnd's ordinal.
  struct CapturedTransfer {
    uint32_t op = 0;
    int32_t peer = -1;
    uint64_t pair = 0;
    uint64_t seq = 0;
    uint64_t bytes = 0;
  };
  std::vector<CapturedTransfer> TransfersOf(uint64_t plan) const;
  bool IsCaptured(uint64_t plan) const;
  // visit(plan) for all that were captured, in no order.
  template <typename Visitor>
  void ForEachCaptured(Visitor&& visit) const {
    for (const auto& [plan, captured] : captured_) visit(plan);
  }
  // The plan's calls were reported, but so far no launch that carries it.
  bool LaunchedNothing(uint64_t plan) const;

  const std::vector<std::unique_ptr<CollectiveSeries>>& series() const { return series_; }
  uint64_t calls() const { return calls_; }
  const Transfers& transfers() const { return transfers_; }
  const GraphReplays& replays() const { return replays_; }

 private:
  struct Call {
    uint32_t op;
    uint64_t seq;
    uint64_t bytes;
    uint32_t element_bytes = 0;
    bool failed;
    bool point_to_point;
    int32_t peer = -1;
    uint32_t algorithm = 0;
    uint32_t protocol = 0;
    uint32_t channels = 0;
    uint64_t pair = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, op, seq, bytes, element_bytes, failed, point_to_point, peer, algorithm, protocol,
                      channels, pair);
    }
  };
  struct Plan {
    uint32_t comm = 0;
    uint64_t start_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    uint64_t issue_ns = 0;
    uint64_t correlation = 0;
    uint64_t batch = 0;  // in which its last kernel came
    uint32_t launches = 0;
    uint32_t kernels = 0;  // of these launches, ended
    bool complete = false;
    bool lost = false;  // a kernel's record
    std::vector<Call> calls;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, comm, start_ns, end_ns, issue_ns, correlation, batch, launches, kernels, complete,
                      lost, calls);
    }
  };

  struct Captured {
    Plan pattern;
    // Correlation, copy -> start, end.
    std::map<std::pair<uint64_t, uint32_t>, std::pair<uint64_t, uint64_t>> open;
    uint64_t batch = 0;  // in which the last of these came
    uint64_t settled = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, pattern, open, batch, settled);
    }
  };
  struct Complete {
    uint64_t plan = 0;
    bool replayed = false;
    uint64_t batch = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, plan, replayed, batch);
    }
  };

  Plan& Get(uint64_t plan);
  void Advance(uint64_t number, Plan& plan);
  void TellFinished(const Plan& plan);
  void TellCaptured(uint32_t comm, const Call& call);
  void TellFinished(uint32_t comm, const Call& call, uint64_t end_ns);
  void SettleWaiting(uint64_t number);
  void SettleReplay(uint64_t number);
  void SettlePlan(const Plan& plan, uint64_t replay);
  CollectiveSeries& SeriesFor(const Plan& plan);
  CollectiveSeries& AddSeries(uint32_t comm, uint64_t size_bytes, uint32_t calls_per_plan, bool mixed);
  static void CountHow(const Call& call, CollectiveSeries& series);

  CollectiveEvents events_;
  uint64_t calls_ = 0;
  uint64_t batch_ = 0;
  absl::flat_hash_map<uint64_t, Plan> waiting_;
  absl::flat_hash_map<uint64_t, Captured> captured_;
  std::deque<uint64_t> order_;     // plans by arrival; those that are settled stay until they come first
  std::deque<Complete> complete_;  // in the order in which they became so
  std::deque<uint64_t> unlaunched_;
  Transfers transfers_;
  GraphReplays replays_;
  // Calls so far, by communicator, operation and peer; at most kMaxPeers.
  static constexpr size_t kMaxPeers = 65536;
  std::map<std::tuple<uint32_t, uint32_t, int32_t>, uint64_t> pairs_;
  absl::flat_hash_map<std::string, CollectiveSeries*> by_key_;
  std::vector<std::unique_ptr<CollectiveSeries>> series_;
  Defined parts_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(by_key_, events_, parts_), calls_, batch_, waiting_, captured_, order_,
                    complete_, unlaunched_, transfers_, replays_, pairs_, series_);
    // Series by key, as their places in series_.
    std::vector<std::pair<std::string, uint64_t>> keys;
    if constexpr (!Archive::kReads) {
      absl::flat_hash_map<const CollectiveSeries*, uint64_t> index;
      for (const auto& series : series_) index.emplace(series.get(), index.size());
      for (const auto& [key, series] : by_key_) keys.emplace_back(key, index.at(series));
    }
    archive(keys);
    if constexpr (Archive::kReads) {
      for (size_t i = 0; i < series_.size(); ++i) series_[i]->place = static_cast<uint32_t>(i);
      by_key_.clear();
      for (const auto& [key, index] : keys) {
        archive.Require(index < series_.size());
        if (archive.ok()) by_key_[key] = series_[index].get();
      }
    }
  }
};

}  // namespace gpuprobe::model
