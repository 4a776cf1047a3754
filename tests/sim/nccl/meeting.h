// Where the ranks' kernels wait for each other: the rendezvous of collectives and of point-to-point kernels.
//
// These run on the driver's scheduler thread: they read and write the shared segment and never block. `calls`
// are those of the kernel, in the order in which all ranks made them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/nccl/group.h"

namespace gpusim::nccl {

using CallsPtr = std::shared_ptr<const std::vector<Call>>;

// All ranks; ends for all together `duration_ns` after the last arrival (the longest of what the ranks say).
class CollectiveMeeting : public Rendezvous {
 public:
  CollectiveMeeting(CommunicatorPtr communicator, uint64_t ordinal, uint64_t duration_ns, CallsPtr calls);
  void Arrive(uint64_t ready_ns) override;
  bool Resolve(Interval* interval) override;
  void MoveBytes() override;

 private:
  bool TryArrive();

  const CommunicatorPtr communicator_;
  const uint64_t ordinal_;
  MeetingSlot& slot_;
  const uint64_t key_;
  const uint64_t duration_ns_;
  const CallsPtr calls_;
  uint64_t ready_ns_ = 0;
  bool arrived_ = false;
  bool met_ = false;
};

// A kernel of sends and receives: ends `duration_ns` after the last of its peers came for the matching
// message. `numbers`: each call's among the messages of its pair.
class PeerMeeting : public Rendezvous {
 public:
  PeerMeeting(CommunicatorPtr communicator, const CallsPtr& calls, const std::vector<uint64_t>& numbers,
              uint64_t duration_ns);
  void Arrive(uint64_t ready_ns) override;
  bool Resolve(Interval* interval) override;
  void MoveBytes() override;

 private:
  struct Message {
    Call call;
    PeerSide* own;
    PeerSide* other;
    uint64_t tag;
    bool arrived = false;
    bool met = false;
  };
  void Advance(Message& message);

  const CommunicatorPtr communicator_;
  std::vector<Message> messages_;
  const uint64_t duration_ns_;
  uint64_t ready_ns_ = 0;
  uint64_t last_ready_ns_ = 0;
};

// A kernel of collectives, and of sends and receives besides.
class BothMeetings : public Rendezvous {
 public:
  BothMeetings(std::shared_ptr<Rendezvous> one, std::shared_ptr<Rendezvous> other);
  void Arrive(uint64_t ready_ns) override;
  bool Resolve(Interval* interval) override;
  void MoveBytes() override;

 private:
  struct Part {
    std::shared_ptr<Rendezvous> meeting;
    Interval interval;
    bool over = false;
  } parts_[2];
};

}  // namespace gpusim::nccl
