// Makes the rows of one job as it goes on: steps once they are settled, ranks, levels and what was called and
// launched once a minute, findings as reports have them.
//
// Each step is written once, when later ones show that nothing about it will change. Where the steps of a job
// are counted anew, they are written again with a higher revision. Memory: a few bytes for each rank's
// kernels and series of calls, and the findings. Used from one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/clickhouse/rows.h"
#include "collector/clickhouse/writer.h"
#include "collector/model/job/job_model.h"
#include "collector/model/state/archive.h"
#include "collector/report/report.h"

namespace gpuprobe::clickhouse {

class JobRows {
 public:
  // A step is written when so many later ones of its rank are known, and the warm-up is.
  static constexpr uint64_t kSettled = 8;
  static constexpr uint64_t kMinuteNs = 60'000'000'000;
  // Kernels of a rank that have a row in a minute.
  static constexpr size_t kMostKernels = 32;
  // Reports in a row that have a finding before it opens (an error opens at once), and that lack it before it
  // closes.
  static constexpr int kOpensAfter = 2;
  static constexpr int kClosesAfter = 3;

  struct Facts {
    JobKey key;
    std::string hub;  // host of the hub
    std::string run;  // directory, "alice/20261127T101500Z-train" where the hub has several users
    uint64_t begun_ns = 0;
  };
  // The writer outlives it. Goes on where a hub was that ended before the job did.
  JobRows(Facts facts, Writer& writer);

  // The process has gone on: writes its steps before the model forgets them.
  void Follow(const model::JobModel& job, const model::ProcessModel& process);
  // The same, and what is due of everything else. `state`: running or hangs.
  void Look(const model::JobModel& job, const std::vector<std::string>& hosts, const std::string& state,
            uint64_t now_ns);
  // What a report of the job so far says.
  void Judge(const analysis::Report& report, uint64_t now_ns);
  // It is over, and this is its report. `again`: the job was read again from the start.
  void End(const model::JobModel& job, const std::vector<std::string>& hosts, bool again,
           const analysis::Report& report, uint64_t now_ns);

 private:
  struct Sums {
    uint64_t calls = 0;
    uint64_t bytes = 0;
    uint64_t time_ns = 0;
    uint64_t wait_ns = 0;
    uint64_t transfer_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, bytes, time_ns, wait_ns, transfer_ns);
    }
  };
  struct Verdict {
    FindingRow row;
    int seen = 0;      // reports in a row
    int missed = 0;    // reports in a row
    size_t place = 0;  // among the findings of the last report that had it
    bool open = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      std::string bytes;
      if constexpr (!Archive::kReads) AppendRow(row, bytes);
      archive.Members(this, model::Rebuilt(row), seen, missed, place, open);
      archive(bytes);
      if constexpr (Archive::kReads) archive.Require(ReadRow(bytes, row));
    }
  };

  void WriteSteps(const model::JobModel& job, bool all);
  void WriteStepsOf(const model::JobModel& job, const model::Member& member, bool all);
  // Begins to count anew where the job did. False if it has not come as far as the rows yet.
  bool KnowsRevision(const model::JobModel& job);
  void WriteMinute(const model::JobModel& job, uint64_t now_ns);
  void WriteRank(const model::JobModel& job, const model::Member& member, uint64_t now_ns);
  void WriteLevels(const model::Member& member, uint64_t now_ns);
  void WriteCollectives(const model::Member& member, uint64_t now_ns);
  void WriteKernels(const model::Member& member, uint64_t now_ns);
  void WriteLosses(const model::JobModel& job);
  void AddLoss(const std::string& what, const std::string& why, uint64_t count);
  void WriteJob(const model::JobModel& job, const std::vector<std::string>& hosts, const std::string& state,
                uint64_t now_ns, bool over);
  void TakeFindings(const analysis::Report& report, uint64_t now_ns);
  void WriteFinding(Verdict& verdict, uint64_t now_ns);
  // What is new since it was called for this place the last time.
  Sums Since(uint64_t place, const Sums& now);
  // Hands on what was made, with the parts of the state that changed. `over`: nothing will go on.
  void Commit(bool all, bool over = false);
  // What each part of the state is made of.
  template <typename Archive>
  void VisitSteps(Archive& archive) {
    archive(revision_, revisions_, next_);
  }
  template <typename Archive>
  void VisitMinute(Archive& archive) {
    archive(minute_ns_, sums_, losses_, state_, verdicts_);
  }

  const Facts facts_;
  Writer& writer_;
  Batch batch_;
  uint32_t revision_ = 0;
  uint64_t revisions_ = 0;                        // of the members' trackers, in all
  absl::flat_hash_map<uint64_t, uint64_t> next_;  // step to write, by member
  uint64_t minute_ns_ = 0;                        // when the last one was written
  uint64_t window_ns_ = 0;
  absl::flat_hash_map<uint64_t, Sums> sums_;  // by what they are of
  std::map<std::string, uint64_t> losses_;    // by reason
  std::string state_;                         // in the job's last row
  std::map<std::string, Verdict> verdicts_;   // by finding and subject
};

}  // namespace gpuprobe::clickhouse
