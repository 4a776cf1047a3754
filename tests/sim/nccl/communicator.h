// One rank's end of a communicator, and the ways to make one.
//
// The exported functions deal with handles, the group decides what is launched. Ownership is shared: kernels
// that wait for other ranks keep it alive after the application has destroyed its handle.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/nccl/segment.h"

namespace gpusim::nccl {

// djb2a over the unique id.
uint64_t HashUniqueId(const ncclUniqueId& id);
// The hash of a communicator made from another: from the parent's hash, the number of children that the
// parent had before, and the color.
uint64_t HashChild(uint64_t parent, uint32_t ordinal, int32_t color);
// NCCL does not count those: all communicators that are shrunk from one have one hash.
uint64_t HashShrunk(uint64_t parent);

ncclUniqueId NewUniqueId();

class Communicator;
// Under the name that follows from the unique id; and from the parent's and from which child of it it is.
bool JoinById(Communicator& communicator, const ncclUniqueId& id);
bool JoinChild(Communicator& child, const Communicator& parent, uint32_t ordinal, int color);
constexpr int32_t kShrinkColor = -2;  // no split has it

class Communicator {
 public:
  Communicator(int rank, int ranks, int device, CUcontext context, uint64_t hash)
      : rank_(rank), ranks_(ranks), device_(device), context_(context), hash_(hash) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Until the ranks are known (a split), rank() and ranks() are -1 and 0.
  void Become(int rank, int ranks, uint64_t hash);
  // Takes part under the segment's name; true if it could.
  bool Join(uint32_t maker_pid, uint64_t first, uint64_t second);
  // Sleeps until all ranks are there; false if aborted meanwhile.
  bool WaitForAll();

  int Rank() const { return rank_; }
  int Ranks() const { return ranks_; }
  int Device() const { return device_; }
  CUcontext Context() const { return context_; }
  uint64_t Hash() const { return hash_; }
  std::string HashText() const;
  void SetParent(const Communicator& parent) { parent_ = parent.HashText(); }
  const std::string& Name() const { return name_; }
  void SetName(std::string name) { name_ = std::move(name); }
  // Into the truth, with what became of it.
  void Log(const char* state) const;
  const Segment& Shared() const { return *segment_; }
  std::shared_ptr<const Segment> KeepShared() const { return segment_; }
  uint32_t MakerPid() const { return maker_pid_; }
  uint64_t NameHash() const { return name_hash_; }

  // ncclInProgress while it is being made, then ncclSuccess or what went wrong.
  ncclResult_t State() const { return state_; }
  void SetState(ncclResult_t state) { state_ = state; }
  bool IsAborted() const { return aborted_; }
  void Abort() { aborted_ = true; }
  // A kernel of this rank waits, and some rank's process is gone without having left.
  bool LostRank() const;
  void BeginWait() { ++waiting_; }
  void EndWait() { --waiting_; }

  // Numbers of calls, as the truth tells them: collectives and point-to-point calls apart.
  uint64_t NextCollective() { return collectives_++; }
  uint64_t NextTransfer() { return transfers_++; }
  void TakeBackCollective() { --collectives_; }
  void TakeBackTransfer() { --transfers_; }
  uint64_t CollectivesSoFar() const { return collectives_; }
  uint64_t TransfersSoFar() const { return transfers_; }
  uint32_t NextChild() { return children_++; }
  uint32_t NextShrunk() { return shrunk_++; }
  // A sum, multiplied by this; its operator. Scale: 1 for the others.
  int AddReduction(double scale);
  double ScaleOf(int reduction) const;
  // Numbers of kernel instances: what matches one rank's kernel with the others'.
  uint64_t NextMeeting() { return meetings_++; }
  uint64_t NextMessageTo(int peer) { return sent_[static_cast<size_t>(peer)]++; }
  uint64_t NextMessageFrom(int peer) { return received_[static_cast<size_t>(peer)]++; }

  // The mailboxes of the ranks, opened while all of them are there; then a rank's, -1: it has none. The
  // scheduler's thread.
  void OpenMailboxes();
  int MailboxOf(int rank) const { return mailboxes_[static_cast<size_t>(rank)]; }

  // Device memory of its own, taken and given back on the calling thread; false if there was none.
  bool AllocateBuffers();
  void FreeBuffers();

  // What its profiler plugin knows it by; null without a plugin.
  void OpenProfiler();
  void* Profiler() const { return profiler_; }

  bool IsBlocking() const { return blocking_; }
  void SetBlocking(bool blocking) { blocking_ = blocking; }

 private:
  int rank_;
  int ranks_;
  const int device_;
  const CUcontext context_;
  uint64_t hash_;
  std::string parent_;  // its hash; empty: none
  std::string name_;    // as the configuration gives it
  bool blocking_ = true;
  void* profiler_ = nullptr;
  CUdeviceptr buffers_ = 0;
  uint32_t maker_pid_ = 0;
  uint64_t name_hash_ = 0;
  std::shared_ptr<Segment> segment_;
  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> aborted_{false};
  std::atomic<int> waiting_{0};  // kernels that have arrived and not met
  std::atomic<uint64_t> collectives_{0};
  std::atomic<uint64_t> transfers_{0};
  std::atomic<uint64_t> meetings_{0};
  std::atomic<uint32_t> children_{0};
  std::atomic<uint32_t> shrunk_{0};
  mutable std::mutex reductions_mutex_;
  std::vector<double> scales_;  // of the operators from ncclNumOps on
  std::vector<int> mailboxes_;  // of the ranks
  // By peer; written at launch, which is serialised.
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

// The making of one communicator, in steps that a group takes for all of its members in turn, so that one
// thread can be several ranks.
class Creation {
 public:
  explicit Creation(CommunicatorPtr communicator) : communicator_(std::move(communicator)) {}
  virtual ~Creation() = default;
  virtual void Announce() {}        // does not block
  virtual ncclResult_t Join() = 0;  // may wait for what others announce
  ncclResult_t Finish();            // waits until all have joined
  const CommunicatorPtr& Target() const { return communicator_; }

 protected:
  CommunicatorPtr communicator_;
};

// From a unique id (several ids count as their first).
std::unique_ptr<Creation> CreateFromId(CommunicatorPtr communicator, const ncclUniqueId& id);
// All ranks of `parent` with the same color, ordered by key and rank.
std::unique_ptr<Creation> CreateBySplit(CommunicatorPtr communicator, CommunicatorPtr parent, int color,
                                        int key);
// `parent` without the ranks in `excluded`.
std::unique_ptr<Creation> CreateByShrink(CommunicatorPtr communicator, CommunicatorPtr parent,
                                         const std::vector<int>& excluded);

// What a configuration calls a communicator; empty where it says nothing, as before 2.27.
std::string NameOf(const ncclConfig_t* config);

}  // namespace gpusim::nccl

struct ncclComm {
  gpusim::nccl::CommunicatorPtr self;
};
