// Maps a process's wall-clock times onto a monotonic timeline (the line): if the clock is set back by d,
// later times are shifted forward by d.
//
// Setting a clock forward only leaves a gap in which nothing happens (ClockSteps corrects durations for it).
// Setting it back repeats times, so comparing two of them could give the wrong order; so times are mapped
// before anything else reads them. The order of events shows on which side of the change a record is:
// launches are numbered, a stream runs its operations one after the other, and the host's calls of one kind
// are reported in order. A record that began before counts as before. Times leave the model through Realtime.
// Memory: the last kMax changes, and a place for each stream since the last one. Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class ContinuousClock {
 public:
  static constexpr size_t kMax = 64;
  static constexpr size_t kMaxStreams = 1024;  // beyond, the number of a launch alone decides

  bool moved() const { return shift_ns_ != 0 || device_ahead_ns_ != 0; }
  // CUPTI's clock is `by_ns` ahead of the system's (device_clock.h): its records are moved back by that.
  void SetDeviceAhead(int64_t by_ns) { device_ahead_ns_ = by_ns; }
  uint64_t FromDevice(uint64_t time_ns) const { return time_ns - static_cast<uint64_t>(device_ahead_ns_); }
  // The clock was set `by_ns` back before this batch was sealed, and after the one before, which was at
  // `sealed_ns`. `device_until_ns`: latest end of any work on the device. Both on the line.
  void SetBack(const v1::Batch& batch, uint64_t by_ns, uint64_t sealed_ns, uint64_t device_until_ns);
  // Before the host's records of every batch.
  void BeginBatch(const v1::Batch& batch, bool set_back);

  // From the clock to the line, for records in their order in the batch (row_clock.h).
  uint64_t Launch(uint64_t correlation, uint64_t time_ns) const {
    return time_ns + (After(correlation) ? shift_ns_ : shift_ns_ - by_ns_);
  }
  uint64_t Device(uint64_t stream, uint64_t correlation, uint64_t start_ns, uint64_t end_ns);
  // `kind`: the host's records are in order within each.
  uint64_t Host(uint8_t kind, uint32_t thread, uint64_t time_ns);
  uint64_t Range(uint64_t id, uint64_t start_ns) const {
    return start_ns + (id > last_range_ ? shift_ns_ : shift_ns_ - by_ns_);
  }
  // For times as late as the batch; for times that are not later.
  uint64_t Now(uint64_t time_ns) const { return time_ns + shift_ns_; }
  uint64_t Before(uint64_t time_ns, uint64_t now_ns) const {
    return time_ns + (time_ns > now_ns ? shift_ns_ - by_ns_ : shift_ns_);
  }

  // How far the clock had been set back at this time of the line.
  uint64_t BackAt(uint64_t line_ns) const;
  uint64_t Realtime(uint64_t line_ns) const { return line_ns - BackAt(line_ns); }

 private:
  struct Set {
    uint64_t at_ns = 0;  // on the line: the last event known to be before it
    uint64_t by_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, at_ns, by_ns);
    }
  };
  struct Stream {
    uint64_t last_ns = 0;  // start of the last operation, on the line
    bool after = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, last_ns, after);
    }
  };
  // Numbers of launches are 32 bits wide on the device's side, and start over.
  bool After(uint64_t correlation) const {
    constexpr uint64_t kWrap = uint64_t{1} << 31;
    return correlation > last_launch_ || correlation + kWrap < last_launch_;
  }
  uint64_t Tolerance() const;

  std::vector<Set> sets_;
  int64_t device_ahead_ns_ = 0;
  uint64_t shift_ns_ = 0;  // in all
  // The last time that it was set:
  uint64_t by_ns_ = 0;
  uint64_t last_launch_ = 0;  // before it
  uint64_t last_range_ = 0;   // that was opened before it
  uint64_t device_until_ns_ = 0;
  uint64_t first_after_ = UINT64_MAX;  // launch of the first work on the device after it
  std::map<uint64_t, Stream> streams_;
  bool launch_unknown_ = false;  // that batch reported no launch: the next one's are after it
  uint64_t sealed_ns_ = 0;       // the batch before, on the clock as it was
  // The current batch:
  bool set_in_batch_ = false;
  std::map<uint64_t, Stream> host_;  // by kind and thread; times of the clock

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: of the batch under way; there is none while a state is saved.
    archive.Members(this, Rebuilt(set_in_batch_, host_), sets_, device_ahead_ns_, shift_ns_, by_ns_,
                    last_launch_, last_range_, device_until_ns_, first_after_, streams_, launch_unknown_,
                    sealed_ns_);
    archive.Require(!sets_.empty() || (shift_ns_ == 0 && by_ns_ == 0));
  }
};

}  // namespace gpuprobe::model
