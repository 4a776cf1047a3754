#include "tests/sim/nccl/communicator.h"

#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/nccl/group.h"
#include "tests/sim/nccl/mail.h"
#include "tests/sim/nccl/profiler.h"

namespace gpusim::nccl {
namespace {

// The finaliser of MurmurHash3.
uint64_t Mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  return value ^ (value >> 33);
}

// As NCCL hashes since 2.19, so that communicators have the names that its log prints.
class NcclHash {
 public:
  NcclHash& Add(const void* bytes, size_t size) {
    sum_ ^= size;
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
      sum_ += mix_;
      mix_ ^= sum_;
      sum_ = (sum_ ^ sum_ >> 31) * 0x9de62bbc8cef3ce3ULL;
      mix_ = (mix_ ^ mix_ >> 32) * 0x485cd6311b599e79ULL;
      uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(bytes) + at, std::min(size - at, sizeof(word)));
      sum_ += word;
    }
    return *this;
  }
  uint64_t Digest() const {
    const uint64_t folded = (sum_ ^ sum_ >> 31) * 0xbac3bd562846de6bULL + mix_;
    return (folded ^ folded >> 32) * 0x995a187a14e7b445ULL;
  }

 private:
  uint64_t sum_ = 1;
  uint64_t mix_ = 1;
};

uint64_t SecondHash(const ncclUniqueId& id) {
  uint64_t hash = 0;
  for (const char byte : id.internal) {
    hash = Mix(hash ^ static_cast<unsigned char>(byte)) + 0x9e3779b97f4a7c15ULL;
  }
  return hash;
}

// How long to sleep while waiting for other processes: short at first, as they usually come together.
class Patience {
 public:
  void Wait() {
    std::this_thread::sleep_for(std::chrono::microseconds(step_us_));
    step_us_ = std::min<int64_t>(step_us_ * 2, 2000);
  }

 private:
  int64_t step_us_ = 50;
};

}  // namespace

uint64_t HashUniqueId(const ncclUniqueId& id) {
  return NcclHash().Add(id.internal, sizeof(id.internal)).Digest();
}

namespace {

// `count`: of the parent's splits, from 1.
uint64_t HashOfChild(uint64_t parent, uint32_t count, int32_t color) {
  return NcclHash()
      .Add(&parent, sizeof(parent))
      .Add(&count, sizeof(count))
      .Add(&color, sizeof(color))
      .Digest();
}

}  // namespace

uint64_t HashChild(uint64_t parent, uint32_t ordinal, int32_t color) {
  return HashOfChild(parent, ordinal + 1, color);
}

uint64_t HashShrunk(uint64_t parent) { return HashOfChild(parent, 0, 0); }

ncclUniqueId NewUniqueId() {
  ncclUniqueId id;
  size_t filled = 0;
  while (filled < sizeof(id.internal)) {
    const ssize_t got = getrandom(id.internal + filled, sizeof(id.internal) - filled, 0);
    if (got > 0) {
      filled += static_cast<size_t>(got);
    }
  }
  const auto maker = static_cast<uint32_t>(getpid());
  std::memcpy(id.internal, &maker, sizeof(maker));
  RemoveStaleSegments();
  return id;
}

Communicator::~Communicator() {
  CloseProfiler(profiler_);
  if (segment_ != nullptr) {
    segment_->Rank(rank_).left = 1;
    segment_->Abandon();
  }
}

void Communicator::Become(int rank, int ranks, uint64_t hash) {
  rank_ = rank;
  ranks_ = ranks;
  hash_ = hash;
}

bool Communicator::Join(uint32_t maker_pid, uint64_t first, uint64_t second) {
  maker_pid_ = maker_pid;
  name_hash_ = first;
  sent_.assign(static_cast<size_t>(ranks_), 0);
  received_.assign(static_cast<size_t>(ranks_), 0);
  mailboxes_.assign(static_cast<size_t>(ranks_), -1);
  auto segment = Segment::Open(SegmentName(maker_pid, first, second), ranks_);
  if (segment == nullptr || !segment->Join(rank_, Mailbox::OfProcess().File())) {
    return false;
  }
  segment_ = std::move(segment);
  return true;
}

bool Communicator::AllocateBuffers() {
  const uint64_t bytes = NcclBufferBytes();
  const ContextScope scope(context_);
  return bytes == 0 || cuMemAlloc(&buffers_, bytes) == CUDA_SUCCESS;
}

void Communicator::FreeBuffers() {
  if (buffers_ == 0) {
    return;
  }
  const ContextScope scope(context_);
  cuMemFree(buffers_);
  buffers_ = 0;
}

int Communicator::AddReduction(double scale) {
  const std::lock_guard<std::mutex> lock(reductions_mutex_);
  scales_.push_back(scale);
  return ncclNumOps + static_cast<int>(scales_.size()) - 1;
}

double Communicator::ScaleOf(int reduction) const {
  const std::lock_guard<std::mutex> lock(reductions_mutex_);
  const auto index = static_cast<size_t>(reduction - ncclNumOps);
  return reduction >= ncclNumOps && index < scales_.size() ? scales_[index] : 1;
}

void Communicator::OpenMailboxes() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankState& state = segment_->Rank(rank);
    int& mailbox = mailboxes_[static_cast<size_t>(rank)];
    if (mailbox < 0 && state.mailbox > 0) mailbox = OpenMailbox(state.pid, state.mailbox - 1);
  }
}

void Communicator::OpenProfiler() { profiler_ = nccl::OpenProfiler(*this); }

bool Communicator::WaitForAll() {
  Patience patience;
  while (!segment_->Complete()) {
    if (aborted_) {
      return false;
    }
    patience.Wait();
  }
  return true;
}

std::string Communicator::HashText() const {
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash_);
  return text;
}

void Communicator::Log(const char* state) const {
  LogCommunicator({HashText(), parent_, name_, rank_, ranks_, device_, state});
}

bool Communicator::LostRank() const {
  if (waiting_ == 0) {
    return false;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankState& state = segment_->Rank(rank);
    const int32_t pid = state.pid;
    if (pid > 0 && state.left == 0 && kill(pid, 0) != 0 && errno == ESRCH) {
      return true;
    }
  }
  return false;
}

ncclResult_t Creation::Finish() {
  if (communicator_->Ranks() == 0) {
    return ncclSuccess;  // a split without color: this rank is no member
  }
  if (!communicator_->WaitForAll()) {
    return ncclInternalError;
  }
  if (!communicator_->AllocateBuffers()) {
    return ncclUnhandledCudaError;
  }
  communicator_->OpenProfiler();
  communicator_->Log("created");
  return ncclSuccess;
}

bool JoinById(Communicator& communicator, const ncclUniqueId& id) {
  uint32_t maker = 0;
  std::memcpy(&maker, id.internal, sizeof(maker));
  return communicator.Join(maker, HashUniqueId(id), SecondHash(id));
}

bool JoinChild(Communicator& child, const Communicator& parent, uint32_t ordinal, int color) {
  const uint64_t first = HashChild(parent.NameHash(), ordinal, color);
  return child.Join(parent.MakerPid(), first, Mix(first ^ parent.Hash()));
}

namespace {

class FromId : public Creation {
 public:
  FromId(CommunicatorPtr communicator, const ncclUniqueId& id) : Creation(std::move(communicator)), id_(id) {}
  ncclResult_t Join() override { return JoinById(*communicator_, id_) ? ncclSuccess : ncclInvalidUsage; }

 private:
  const ncclUniqueId id_;
};

class BySplit : public Creation {
 public:
  BySplit(CommunicatorPtr communicator, CommunicatorPtr parent, int color, int key)
      : Creation(std::move(communicator)),
        parent_(std::move(parent)),
        color_(color),
        key_(key),
        ordinal_(parent_->NextChild()) {}

  void Announce() override {
    RankState::SplitVote& vote = VoteOf(parent_->Rank());
    vote.color = color_;
    vote.key = key_;
    vote.tag.store(uint64_t{ordinal_} + 1, std::memory_order_release);
  }

  ncclResult_t Join() override {
    struct Member {
      int key;
      int parent_rank;
    };
    std::vector<Member> members;
    Patience patience;
    for (int rank = 0; rank < parent_->Ranks(); ++rank) {
      RankState::SplitVote& vote = VoteOf(rank);
      while (vote.tag.load(std::memory_order_acquire) != uint64_t{ordinal_} + 1) {
        if (communicator_->IsAborted() || parent_->IsAborted()) {
          return ncclInternalError;
        }
        patience.Wait();
      }
      if (vote.color == color_) {
        members.push_back({vote.key, rank});
      }
    }
    if (color_ == NCCL_SPLIT_NOCOLOR) {
      return ncclSuccess;
    }
    std::stable_sort(members.begin(), members.end(),
                     [](const Member& a, const Member& b) { return a.key < b.key; });
    const auto mine = std::find_if(members.begin(), members.end(), [this](const Member& member) {
      return member.parent_rank == parent_->Rank();
    });
    communicator_->Become(static_cast<int>(mine - members.begin()), static_cast<int>(members.size()),
                          HashChild(parent_->Hash(), ordinal_, color_));
    return JoinChild(*communicator_, *parent_, ordinal_, color_) ? ncclSuccess : ncclSystemError;
  }

 private:
  RankState::SplitVote& VoteOf(int rank) const {
    return parent_->Shared().Rank(rank).votes[ordinal_ % kSplitSlots];
  }

  const CommunicatorPtr parent_;
  const int color_;
  const int key_;
  const uint32_t ordinal_;
};

class ByShrink : public Creation {
 public:
  ByShrink(CommunicatorPtr communicator, CommunicatorPtr parent, const std::vector<int>& excluded)
      : Creation(std::move(communicator)), parent_(std::move(parent)), ordinal_(parent_->NextShrunk()) {
    int rank = 0;
    int ranks = 0;
    for (int of_parent = 0; of_parent < parent_->Ranks(); ++of_parent) {
      if (std::find(excluded.begin(), excluded.end(), of_parent) != excluded.end()) {
        continue;
      }
      rank = of_parent == parent_->Rank() ? ranks : rank;
      ++ranks;
    }
    communicator_->Become(rank, ranks, HashShrunk(parent_->Hash()));
  }

  ncclResult_t Join() override {
    return JoinChild(*communicator_, *parent_, ordinal_, kShrinkColor) ? ncclSuccess : ncclSystemError;
  }

 private:
  const CommunicatorPtr parent_;
  const uint32_t ordinal_;
};

}  // namespace

std::unique_ptr<Creation> CreateFromId(CommunicatorPtr communicator, const ncclUniqueId& id) {
  return std::make_unique<FromId>(std::move(communicator), id);
}

std::unique_ptr<Creation> CreateBySplit(CommunicatorPtr communicator, CommunicatorPtr parent, int color,
                                        int key) {
  return std::make_unique<BySplit>(std::move(communicator), std::move(parent), color, key);
}

std::unique_ptr<Creation> CreateByShrink(CommunicatorPtr communicator, CommunicatorPtr parent,
                                         const std::vector<int>& excluded) {
  return std::make_unique<ByShrink>(std::move(communicator), std::move(parent), excluded);
}

std::string NameOf(const ncclConfig_t* config) {
  const bool has = config != nullptr && config->version >= NCCL_VERSION(2, 27, 0) &&
                   config->size >= offsetof(ncclConfig_t, commName) + sizeof config->commName &&
                   config->commName != nullptr;
  return has ? config->commName : "";
}

}  // namespace gpusim::nccl
