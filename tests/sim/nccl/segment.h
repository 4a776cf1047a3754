// The memory that the ranks of one communicator share: who is there, what they agree on, when they arrive.
//
// It is the only state that other processes write: plain lock-free words, valid at every instant, so that a
// rank may be killed anywhere. The name in /dev/shm lives only until the last rank has joined; after that the
// memory goes with the last process that maps it, however that process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gpusim::nccl {

constexpr uint32_t kMeetingSlots = 256;
constexpr uint32_t kPeerSlots = 16;
constexpr uint32_t kSplitSlots = 4;
constexpr int kMaxRanks = 4096;

struct alignas(64) SegmentHeader {
  std::atomic<uint32_t> ranks{0};
  std::atomic<uint32_t> joined{0};
};

struct alignas(64) RankState {
  std::atomic<int32_t> pid{0};
  std::atomic<int32_t> mailbox{0};  // the process' file, and 1
  std::atomic<uint32_t> left{0};
  struct SplitVote {
    std::atomic<uint64_t> tag{0};  // ordinal of the split + 1
    std::atomic<int32_t> color{0};
    std::atomic<int32_t> key{0};
  } votes[kSplitSlots];
};

// One collective kernel: all ranks arrive, all take what they receive, then the slot is free again.
struct alignas(64) MeetingSlot {
  std::atomic<uint64_t> key{0};  // ordinal + 1; 0: free
  std::atomic<uint32_t> arrived{0};
  std::atomic<uint32_t> taken{0};
  std::atomic<uint64_t> last_ready_ns{0};
  std::atomic<uint64_t> duration_ns{0};
};

// One message from one rank to another: each side says when it is there, and when it has seen the other.
struct PeerSide {
  std::atomic<uint64_t> tag{0};  // number of the message + 1
  std::atomic<uint64_t> ready_ns{0};
  std::atomic<uint64_t> seen{0};    // by the sender; taken, by the receiver
  std::atomic<uint64_t> letter{0};  // of the sender
};
struct PeerSlot {
  PeerSide sender;
  PeerSide receiver;
};

class Segment {
 public:
  // Opens or makes the segment `name` ("/gpusim-nccl-..."), or private memory for a single rank. Null: the
  // system refused, or other ranks made it for another number of ranks.
  static std::unique_ptr<Segment> Open(const std::string& name, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // False if somebody else is this rank. The last to join removes the name.
  bool Join(int rank, int mailbox);
  bool Complete() const {
    return Header().joined.load(std::memory_order_acquire) == static_cast<uint32_t>(ranks_);
  }
  // Before everybody was there: gives the name up.
  void Abandon();

  SegmentHeader& Header() const;
  RankState& Rank(int rank) const;
  MeetingSlot& Meeting(uint64_t ordinal) const;
  // What a rank gives to the collectives of that ordinal.
  std::atomic<uint64_t>& LetterTo(uint64_t ordinal, int rank) const;
  PeerSlot& Peer(int sender, int receiver, uint64_t message) const;

 private:
  Segment(std::string name, int ranks, void* memory, size_t size);

  const std::string name_;
  const int ranks_;
  void* const memory_;
  const size_t size_;
};

// Removes segments whose maker is gone: left behind when a job died while its ranks were joining.
void RemoveStaleSegments();
std::string SegmentName(uint32_t maker_pid, uint64_t first, uint64_t second);

}  // namespace gpusim::nccl
