// Has processes at level idle record the same steps, on this host and on others: `gpuprobe capture`.
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
// over. What they answer comes by Update, from their connection or from the collector of their host. Used
// from one thread. No I/O; times are parameters.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gpuprobe/v1/hub.pb.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::recording {

class CaptureDirector {
 public:
  // Nothing has come from its host for so long: the host is away.
  static constexpr uint64_t kAwayNs = 15'000'000'000;

  struct Process {
    uint64_t instance = 0;  // of its host's collector; 0: this one
    std::string host;       // name of its host; empty: this one
    v1::CapturedProcess facts;
    int64_t clock_ahead_ns = 0;  // of its host's clock, against ours
    uint64_t silent_ns = 0;      // for so long, nothing has come from its host

    bool is_away() const { return silent_ns > kAwayNs; }
  };
  using Processes = std::vector<Process>;
  using Send = std::function<void(const Process& process, const v1::Capture& order)>;

  // Of a request that Check has accepted. `first_id`: above that of every order before.
  CaptureDirector(v1::CaptureRequest request, const Processes& processes, uint64_t first_id, Send send);

  // Why it cannot be captured. AlreadyExists: because everything is recorded anyway.
  static absl::Status Check(const v1::CaptureRequest& request, const Processes& processes);

  // What is known of all processes now. One that is not there, or not connected, has left for good.
  void Update(const Processes& processes);
  // Call a few times a second, after Update. `now_ns`: CLOCK_REALTIME.
  void Tick(uint64_t monotonic_ns, uint64_t now_ns);

  bool over() const { return stage_ == Stage::kOver; }
  // What is new to say; the last one is over.
  std::deque<v1::CaptureProgress>& progress() { return progress_; }

 private:
  enum class Stage : uint8_t { kBegin, kAsked, kOrdered, kRecording, kOver };
  struct Member {
    Process process;
    bool left = false;
    uint64_t first_position = 0;
    uint64_t first_ns = 0;  // when it was there, as of SaidNs; 0: it was not asked yet

    const v1::CaptureState& state() const { return process.facts.state(); }
    bool is_here() const { return !left && !process.is_away(); }
  };

  static Processes Chosen(const v1::CaptureRequest& request, const Processes& processes);
  void Ask(uint64_t monotonic_ns);
  void Order(const v1::Capture& order, uint64_t monotonic_ns);
  // To all that have not left: who is away gets it when it is back.
  void SendToAll(const v1::Capture& order);
  void OnAnswers(uint64_t monotonic_ns, uint64_t now_ns);
  void Choose(uint64_t monotonic_ns, uint64_t now_ns);
  void ChooseSteps(v1::CaptureClock clock, uint64_t monotonic_ns);
  // When a member was where it says: by its host's clock, else when it was asked.
  uint64_t SaidNs(const Member& member) const;
  // So far ahead of where a rank was when it was asked is the first step.
  double LeadSeconds(uint64_t monotonic_ns) const;
  void OnOrdered(uint64_t monotonic_ns);
  void OnRecording(uint64_t monotonic_ns);
  void SayHowFar(uint64_t least, bool begun);
  // CLOCK_NONE: nothing that all ranks have.
  v1::CaptureClock CommonClock() const;
  // How many calls a step has, as most members say; each may be wrong about it, but all number calls alike.
  const v1::CaptureState* Period() const;
  // Asked for the same thing, all members that are here have answered.
  bool AllAnswered() const;
  // It has recorded what was ordered, all of it if `whole`; by its records, so that it may have left since.
  bool HasRecorded(const Member& member, bool whole) const;
  std::string WhoHasNotAnswered() const;
  std::string WhatWasRecorded() const;
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
