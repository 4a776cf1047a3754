// Hangs that were reported while the job ran, as the collector wrote them down.
//
// Example: rank 3 does not issue AllReduce 48211, and the collector reports it after a minute. Ten seconds
// later the job is killed, and records that the waiting ranks had not sent yet are lost. The remaining ones
// would show a wait of 59 s and no hang; the verdict is kept here, and the report shows it.
//
// Fed by the collector (recording/hang_watch.h) or by the log that it wrote. Times are on the model's line.
// Memory: kMost verdicts.
#pragma once

#include <cstddef>
#include <deque>

#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class HangVerdicts {
 public:
  static constexpr size_t kMost = 64;
  static constexpr size_t kMaxBytes = size_t{64} << 10;  // of one; a log may hold anything

  // Replaces the earlier verdict under the same key, unless that was said by who heard more of the ranks:
  // each of a job's hosts says what it knows, and one of them knows all.
  void Apply(const v1::HangVerdict& verdict);
  // In the order in which they were first reported.
  const std::deque<v1::HangVerdict>& all() const { return all_; }

 private:
  std::deque<v1::HangVerdict> all_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, all_);
    archive.Require(all_.size() <= kMost);
  }
};

}  // namespace gpuprobe::model
