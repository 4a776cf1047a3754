// What `gpuprobe capture` had one process record, at GPUPROBE_LEVEL=idle.
//
// Example: captures of steps 120 to 124 and 300 to 304 are two windows. Bounded: of more than kMost windows,
// the oldest are forgotten. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "collector/model/state/members.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class Captures {
 public:
  static constexpr size_t kMost = 256;

  // Of the program's steps, or of time.
  struct Window {
    bool has_steps = false;
    uint64_t first = 0;  // step
    uint64_t last = 0;
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, has_steps, first, last, start_ns, end_ns);
    }
  };

  void On(const v1::CaptureState& state);
  void On(const RecordedStepRecord& step);

  // As the process reported last.
  const v1::CaptureState& state() const { return state_; }
  // The clock of the last capture that began; NONE: none did.
  v1::CaptureClock clock() const { return static_cast<v1::CaptureClock>(clock_); }
  const std::deque<Window>& windows() const { return windows_; }

 private:
  v1::CaptureState state_;
  uint32_t clock_ = 0;
  bool begins_ = false;  // a capture that has reported no step
  std::deque<Window> windows_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, state_, clock_, begins_, windows_);
  }
};

}  // namespace gpuprobe::model
