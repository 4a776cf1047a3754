// Decides, at level calls, when ranks record some steps in full: detail where it is needed.
//
// Example: from one look to the next, 3 s apart, rank 1 is late at collectives for 20 % of the time, and from
// that to the one after again. Ranks 0, 1 and 2, its neighbours, and rank 5, which is not late, then record
// five steps in full. The rank is not captured again before it has been on time for two looks.
//
// A rank is late by what CallTrace compares; steps are long if the job's mean is above its usual one, or,
// where no marker says what a step is, the time from one collective to the next. What has to hold for two
// looks in a row is in thresholds.h, what bounds captures here. Nothing is decided while a rank is gone or no
// collective ends: then the job ends, or hangs. Pure; used from one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::recording {

class DetailWatch {
 public:
  static constexpr uint64_t kLookNs = 3'000'000'000;
  static constexpr uint64_t kLeastCalls =
      20;                           // compared; with fewer, a look says nothing, and the next has them, too
  static constexpr int kLooks = 2;  // in a row that something must hold
  static constexpr size_t kMostInHour = 6;  // captures
  static constexpr uint64_t kApartNs = 60'000'000'000;
  static constexpr uint64_t kSteps = 5;
  static constexpr size_t kUsualLooks = 5;  // that say what a usual step is

  struct Decision {
    v1::DetailRaise raise;  // without an outcome
    v1::CaptureRequest request;
  };

  // Call a few times a second. `may_raise`: all ranks are connected, none hangs, and no capture goes on.
  std::optional<Decision> Look(const model::JobModel& job, bool may_raise, uint64_t monotonic_ns,
                               uint64_t now_ns);

 private:
  // Of one process since the look before.
  struct Seen {
    int rank = -1;
    uint64_t compared = 0;
    uint64_t late_ns = 0;
    uint64_t calls = 0;
    uint64_t steps = 0;
    uint64_t steps_ns = 0;
    uint64_t last_ns = 0;  // when its last call was; since the look before: how much later than then
    uint64_t pauses_us2 = 0;
  };
  static std::vector<Seen> Sums(const model::JobModel& job);
  // What is new since the look before; none if they cannot be compared.
  std::vector<Seen> Since(const std::vector<Seen>& sums);
  // The time that is new: of the job, as calls of some hosts may come late.
  static uint64_t SpanOf(const std::vector<Seen>& since);
  void NoteLate(const std::vector<Seen>& since, uint64_t span_ns);
  void NoteSteps(const std::vector<Seen>& since);
  // Of the process that calls most, as soon as no pause between two calls makes a difference to the mean: a
  // look ends anywhere in a step.
  void NoteCalls(const std::vector<Seen>& since);
  void NoteRound(bool is_step, double mean_ns);
  // The rank, its neighbours, and the one of the others that is least late.
  static std::set<int> RanksFor(int late_rank, const std::vector<Seen>& since);
  double UsualNs() const;
  bool MayRaise(uint64_t monotonic_ns);
  std::optional<Decision> Decide(const std::vector<Seen>& since, uint64_t span_ns, uint64_t monotonic_ns,
                                 uint64_t now_ns);

  uint64_t looked_ns_ = 0;
  std::vector<Seen> before_;
  int late_rank_ = -1;  // at the last look
  int late_looks_ = 0;
  std::set<int> captured_;  // ranks that were late then, and have not been on time since
  int on_time_looks_ = 0;
  bool has_steps_ = false;       // else collectives are counted
  Seen calls_;                   // what has been counted of them since the last mean
  std::deque<double> usual_ns_;  // means of looks
  double round_ns_ = 0;          // of the last one
  int long_looks_ = 0;
  bool long_captured_ = false;
  std::deque<uint64_t> raised_ns_;
};

}  // namespace gpuprobe::recording
