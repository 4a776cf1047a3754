// Compares the ranks of each collective once it is over: who made whom wait, how long the transfer took, and
// how far their clocks are apart.
//
// All ranks leave a collective at nearly the same time, so the shortest kernel is the transfer and belongs to
// the rank that came last; what the others took longer is waiting, and that rank caused it. The same moment
// read from two clocks is a sample of their offset. A send and its receive show the same for two ranks. In an
// exchange, which is a group of sends and receives, ranks may move different amounts, so where they share a
// clock, the last one is the one that started last; the others waited until then. A call with a lost record
// is not compared: the rank whose record it was may have come last. Memory: a line of windows for each pair
// of clocks, statistics for each rank and each (communicator, operation, size), and what happened in each
// rank's open steps.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "collector/model/calls/call_blocks.h"
#include "collector/model/calls/collective_tracker.h"
#include "collector/model/calls/compared_series.h"
#include "collector/model/job/late_steps.h"
#include "collector/model/job/member.h"
#include "collector/model/job/step_alignment.h"
#include "collector/model/job/step_spread.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_series.h"

namespace gpuprobe::model {

// How far one clock is ahead of another, over time: medians over windows that grow with the run.
class ClockLink {
 public:
  static constexpr size_t kMaxWindows = 64;
  static constexpr size_t kSamples = 15;  // of a window

  struct Window {
    uint64_t time_ns = 0;  // on the reference's clock
    int64_t ahead_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, ahead_ns);
    }
  };

  void Add(uint64_t reference_ns, int64_t ahead_ns);
  // Including the open window so far.
  std::vector<Window> Windows() const;
  uint64_t samples() const { return samples_; }

 private:
  Window Median() const;

  std::vector<Window> windows_;
  uint64_t length_ns_ = 0;  // least length of a window
  uint64_t begin_ns_ = 0;   // of the open one
  std::vector<int64_t> open_;
  uint64_t samples_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, windows_, length_ns_, begin_ns_, open_, samples_);
    archive.Require(windows_.size() < kMaxWindows && open_.size() <= kSamples);
  }
};

class RankComparison {
 public:
  static constexpr size_t kMaxTransfers = 16384;
  static constexpr size_t kMaxPending = 16384;
  // A rank is blamed for a step when each other rank waited this share of the step for it.
  static constexpr double kBlamedShare = 0.05;

  enum class Kind : uint8_t {
    kCollective,
    kExchange,  // sends and receives that ranks make at once
    kPair,      // a send and its receive, by themselves or in a pipeline
  };
  // One rank's part in a collective that is over.
  struct Participant {
    uint32_t member = 0;  // index into JobModel::members
    int32_t comm_rank = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    int64_t clock_shift_ns = 0;  // by how much its clock was stepped before
    uint64_t bytes = 0;
    uint32_t series = 0;  // CollectiveSeries.place

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, member, comm_rank, start_ns, end_ns, clock_shift_ns, bytes, series);
    }
  };
  // The time that the link took, for one communicator, operation and size.
  struct Transfers {
    static constexpr size_t kExactLimit = 256;
    uint64_t hash = 0;
    int32_t ranks = 0;                            // 2 for sends and receives between any two
    std::map<std::string, uint64_t> bytes_of_op;  // of one plan, count x element size by operation
    uint32_t calls_per_plan = 1;
    Distribution time_ns{kExactLimit};
    CallBlocks blocks;      // of the same calls
    uint64_t usual_ns = 0;  // the median of `usual_of` calls
    uint64_t usual_of = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, hash, ranks, bytes_of_op, calls_per_plan, time_ns, blocks, usual_ns, usual_of);
    }
  };
  // How long one rank made the others wait, and waited itself.
  struct Blame {
    static constexpr size_t kExactLimit = 512;
    uint64_t caused_ns = 0;       // sum over the ranks that waited
    uint64_t caused_mean_ns = 0;  // sum over calls of the mean over these ranks; without sends and receives
    absl::uint128 caused_squares = 0;  // of these means
    uint64_t compared = 0;             // collectives in which it took part
    uint64_t skipped = 0;              // and those not compared because records of other ranks were lost
    // Those in which the last arrival was estimated from the other ranks, and the variance of what it caused
    // in them.
    uint64_t estimated = 0;
    absl::uint128 estimated_variance = 0;  // ns squared
    uint64_t waited_ns = 0;
    uint64_t last_arrivals = 0;
    // Per step of this rank: the mean over the ranks that waited. Includes steps in which it caused nothing.
    Distribution step_ns{kExactLimit};
    // Sends and receives alone: the sum over the ranks that waited, and this rank's own waiting in them.
    uint64_t pairs = 0;  // that were compared
    uint64_t pair_caused_ns = 0;
    uint64_t pair_waited_ns = 0;
    Distribution pair_step_ns{kExactLimit};
    uint64_t steps_blamed = 0;
    uint64_t first_blamed = 0;  // index of the step
    uint64_t last_blamed = 0;
    CausedSeries caused_by_step;  // by index of the step; without sends and receives, with the warm-up

    struct Pending {
      uint64_t end_ns = 0;
      uint64_t mean_ns = 0;
      bool pair = false;

      template <typename Archive>
      void Visit(Archive& archive) {
        archive.Members(this, end_ns, mean_ns, pair);
      }
    };
    std::deque<Pending> pending;  // of steps that are not complete
    uint64_t next_step = 0;       // first one that is not in step_ns
    uint64_t compared_ns = 0;     // how far its collectives have been compared
    // The same up to the end of its first step: who comes late to a job's start says nothing about its steps.
    uint64_t start_compared_ns = 0;
    uint64_t start_caused_mean_ns = 0;
    uint64_t start_waited_ns = 0;
    bool start_is_over = false;
    uint64_t revisions = 0;  // of its steps, when these were counted
    std::map<uint64_t, uint64_t> open_steps;
    std::map<uint64_t, uint64_t> open_pair_steps;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, caused_ns, caused_mean_ns, caused_squares, compared, skipped, estimated,
                      estimated_variance, waited_ns, last_arrivals, step_ns, pairs, pair_caused_ns,
                      pair_waited_ns, pair_step_ns, steps_blamed, first_blamed, last_blamed, caused_by_step,
                      pending, next_step, compared_ns, start_compared_ns, start_caused_mean_ns,
                      start_waited_ns, start_is_over, revisions, open_steps, open_pair_steps);
    }
  };

  // The last arrival is known even if the record of one rank in this many was lost.
  static constexpr size_t kRanksForOneLost = 64;
  // Calls of at least so many ranks wait until so many are counted together, or until CountWaiting.
  static constexpr size_t kManyRanks = 256;
  static constexpr size_t kMostWaiting = 16;
  // `participants`: at least two, of one call. `lost`: members that took part, too, at unknown times.
  // `absent`: ranks that reported nothing.
  void Add(uint64_t hash, const Members& members, std::vector<Participant> participants,
           const std::vector<uint32_t>& lost, size_t absent, Kind kind);
  // Counts the calls that wait for it. Before anything is read.
  void CountWaiting(const Members& members);
  // Counts a call whose last rank cannot be determined.
  void Skip(const std::vector<Participant>& participants, const std::vector<uint32_t>& lost);
  // Adds the waiting in complete steps to these steps' statistics; `all`: in incomplete ones, too.
  void AccountSteps(const Member& member, uint32_t number, bool all);

  // No more calls come, and the steps of all are known.
  void FinishSeries(const Members& members);
  // Aligns what is left, at the end.
  void AlignSteps(const Members& members) { alignment_.Settle(members, true); }

  // Of a series of a process, by its place there.
  const ComparedSeries& Compared(uint32_t process, uint32_t series) const;
  // By member; empty where one was in no comparison.
  const std::vector<Blame>& blame() const { return blame_; }
  const std::vector<Transfers>& transfers() const { return transfers_; }
  const StepAlignment& alignment() const { return alignment_; }
  // By (reference, process), indexes of processes.
  const std::map<std::pair<uint32_t, uint32_t>, ClockLink>& clocks() const { return clocks_; }
  // From sends and receives, whose ends coincide less exactly.
  const std::map<std::pair<uint32_t, uint32_t>, ClockLink>& pair_clocks() const { return pair_clocks_; }
  const StepSpread& spread() const { return spread_; }
  const LateSteps& late_steps() const { return late_steps_; }

 private:
  static constexpr size_t kMaxWhole = 65536;
  static constexpr uint32_t kNoTransfers = UINT32_MAX - 1;
  // Of the series whose plan this is.
  uint32_t TransfersOf(uint64_t hash, const Members& members, const Participant& participant, bool pair);
  uint32_t FindTransfers(uint64_t hash, const ProcessModel& process, const CollectiveSeries& series,
                         bool pair);
  ComparedSeries& ComparedOf(const Members& members, const Participant& participant);
  struct ComparedCall {
    Kind kind = Kind::kCollective;
    bool by_start = false;     // the last rank is the one that started last, and all share its clock
    bool has_clocks = false;   // it ends on all ranks at one moment
    bool has_waiting = false;  // who came last is known
    std::vector<Participant> participants;
    Participant last;
    Participant reference;   // whose clock the others are compared with
    uint64_t caused_ns = 0;  // the sum of what the others waited
  };
  // Sets its last participant and the reference. Returns the highest member.
  static uint32_t FindLast(ComparedCall& call);
  static uint64_t WaitedIn(const ComparedCall& call, const Participant& p);
  // What one of its participants waited, and how far its clock is ahead.
  void Count(const Members& members, const ComparedCall& call, const Participant& p);
  void AddWaiting(const Members& members, const ComparedCall& call, const Participant& p);
  void AddCaused(const ComparedCall& call);
  void AddClock(const Members& members, const ComparedCall& call, const Participant& p);
  // Compares a call in which the records of some ranks were lost, using the usual time of such a transfer.
  // False if that is not known.
  bool Estimate(const Members& members, Transfers& transfers, const std::vector<Participant>& participants,
                const Participant& last, const std::vector<uint32_t>& lost, size_t absent);
  // Remembers how much of a member's waiting was in its start, as the call is the first one after it.
  void NoteStart(const Members& members, const Participant& participant);
  // The member's steps were redefined: forgets those counted so far.
  void ForgetSteps(Blame& blame, uint64_t revisions);
  void Cause(uint32_t member, uint64_t end_ns, double mean_ns, double others, double variance);

  std::vector<Blame> blame_;
  StepSpread spread_;
  LateSteps late_steps_;
  StepAlignment alignment_;
  // Communicators all of whose ranks reported some call together: a rank absent from another call may have
  // come last there. Where some ranks never report, the others are compared.
  absl::flat_hash_map<uint64_t, uint8_t> whole_;
  std::vector<Transfers> transfers_;
  std::map<std::string, uint32_t> transfers_by_key_;
  std::vector<std::vector<ComparedSeries>> compared_;  // by process, then by place of the series
  std::map<std::pair<uint32_t, uint32_t>, ClockLink> clocks_;
  std::map<std::pair<uint32_t, uint32_t>, ClockLink> pair_clocks_;
  // By member: the last one of clocks_ that it was in.
  std::vector<std::pair<std::pair<uint32_t, uint32_t>, ClockLink*>> links_;
  std::vector<ComparedCall> waiting_;  // to be counted; none between batches

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(waiting_, links_), blame_, spread_, late_steps_, alignment_, whole_,
                    transfers_, transfers_by_key_, compared_, clocks_, pair_clocks_);
    if constexpr (Archive::kReads) {
      links_.clear();
      for (const auto& [key, index] : transfers_by_key_) archive.Require(index < transfers_.size());
      for (const auto& of_process : compared_) {
        for (const ComparedSeries& series : of_process) {
          const uint32_t transfers = series.transfers - 1;
          archive.Require(series.transfers == 0 || transfers == kNoTransfers ||
                          transfers < transfers_.size());
        }
      }
    }
  }
};

}  // namespace gpuprobe::model
