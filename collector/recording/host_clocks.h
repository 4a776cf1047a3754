// Whether the clocks of a job's hosts agree with ours well enough to say, while the job runs, how long
// something has waited.
//
// A process that is connected sends something every two seconds, with its clock's time. Where that is far
// from ours when it arrives, the clocks are apart, or it waited on its way; either way, nothing can be said
// of now. After the job, collectives tell how far clocks were apart (analysis/trust/clock_alignment.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"

namespace gpuprobe::recording {

class HostClocks {
 public:
  static constexpr uint64_t kApartNs = 20'000'000'000;
  // A host that sends nothing more says nothing of its clock after this.
  static constexpr uint64_t kKnownNs = 60'000'000'000;
  // What has waited on its way comes within this, and then agrees.
  static constexpr uint64_t kSaidAfterNs = 15'000'000'000;

  // At what was received since the last look. `now_ns`: our clock's time.
  void Look(const model::JobModel& job, uint64_t now_ns);
  bool agree() const { return apart_.empty(); }
  // Lines for people about hosts whose clocks stay apart, once for each.
  std::vector<std::string> TakeLines();

 private:
  struct Apart {
    int64_t ahead_ns = 0;
    uint64_t since_ns = 0;
    uint64_t until_ns = 0;  // the last time
    bool said = false;
  };

  std::map<const model::ProcessModel*, uint64_t> heard_;  // times of their clocks
  std::map<std::string, Apart> apart_;                    // by host
  uint64_t now_ns_ = 0;
};

}  // namespace gpuprobe::recording
