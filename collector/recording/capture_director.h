// Has processes at level idle record the same steps: `gpuprobe capture`.
//
// Example, five steps of two ranks that count them by a marker:
//
//   ask      rank 0 has begun step 97, rank 1 step 96; a second later 117 and 116: 20 a second
//   order    record 188 to 192, which no rank reaches before all have the order
//   answer   both are armed; a rank that had passed 188 says so, and all get a later order
//   done     both have recorded five steps and sent them
//
// Without a marker, collectives on the largest communicator are counted, as many as are repeated in each
// step; a window of time needs neither. The processes end the capture themselves: it needs no collector to be
// over. Used from one thread. No I/O; times are parameters.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collector/model/process/process_model.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::recording {

class CaptureDirector {
 public:
  using Send = std::function<void(const model::ProcessModel& process, const v1::Capture& order)>;

  // Of a request that Check has accepted. `first_id`: above that of every order before.
  CaptureDirector(v1::CaptureRequest request, const std::vector<const model::ProcessModel*>& connected,
                  uint64_t first_id, Send send);

  // Why it cannot be captured. AlreadyExists: because everything is recorded anyway.
  static absl::Status Check(const v1::CaptureRequest& request,
                            const std::vector<const model::ProcessModel*>& connected);

  // Call a few times a second. `now_ns`: CLOCK_REALTIME.
  void Tick(uint64_t monotonic_ns, uint64_t now_ns);
  // Its connection has ended.
  void OnLeft(const model::ProcessModel& process);

  bool over() const { return stage_ == Stage::kOver; }
  // What is new to say; the last one is over.
  std::deque<v1::CaptureProgress>& progress() { return progress_; }

 private:
  enum class Stage : uint8_t { kBegin, kAsked, kOrdered, kRecording, kOver };
  struct Member {
    const model::ProcessModel* process = nullptr;
    bool left = false;
    uint64_t first_position = 0;
    uint64_t first_ns = 0;  // when that was asked for; 0: it was not yet
  };

  static std::vector<const model::ProcessModel*> Chosen(
      const v1::CaptureRequest& request, const std::vector<const model::ProcessModel*>& connected);
  void Ask(uint64_t monotonic_ns);
  void Order(const v1::Capture& order, uint64_t monotonic_ns);
  void OnAnswers(uint64_t monotonic_ns, uint64_t now_ns);
  void Choose(uint64_t monotonic_ns, uint64_t now_ns);
  void ChooseSteps(v1::CaptureClock clock, uint64_t monotonic_ns);
  void OnOrdered(uint64_t monotonic_ns);
  void OnRecording(uint64_t monotonic_ns);
  // CLOCK_NONE: nothing that all ranks have.
  v1::CaptureClock CommonClock() const;
  // How many calls a step has, as most members say; each may be wrong about it, but all number calls alike.
  const v1::CaptureState* Period() const;
  uint64_t PositionOf(const Member& member, v1::CaptureClock clock) const;
  // Asked for the same thing, all members that are here have answered.
  bool AllAnswered() const;
  // It has recorded what was ordered, all of it if `whole`; by its records, so that it may have left since.
  bool HasRecorded(const Member& member, bool whole) const;
  std::string WhoHasNotAnswered() const;
  void Say(const std::string& words);
  void End(const std::string& words, bool failed);
  void Cancel();
  std::string Result() const;

  const v1::CaptureRequest request_;
  std::vector<Member> members_;
  Send send_;
  Stage stage_ = Stage::kBegin;
  uint64_t id_;
  v1::Capture order_;
  uint64_t asked_ns_ = 0;
  uint64_t deadline_ns_ = 0;
  uint64_t said_ns_ = 0;
  uint64_t earliest_ = 0;  // position before which nothing is recorded, for CaptureRequest.wait; 0: not known
  int tries_ = 0;
  std::string said_;
  std::deque<v1::CaptureProgress> progress_;
};

}  // namespace gpuprobe::recording
