#include "tests/sim/nccl_witness/work_counters.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tests/sim/nccl_witness/real.h"

namespace gpusim::nccl {
namespace {

constexpr int kFirstRelease = 22700;
constexpr int kBehindLastRelease = 23100;

constexpr int kChannels = 64;
constexpr size_t kSlots = 64;  // of a channel, used in turn

struct Arguments {
  const unsigned char* communicator;
  uint64_t channels;  // bit set
  uint64_t storage[2];
  // Batches follow: a channel's first one is at its place in the set.
};
struct Batch {
  uint32_t next : 14;  // how far the channel's next batch is; 0: none
  uint32_t rest : 18;
  uint32_t offset;
  uint64_t works;  // bit set
};
static_assert(sizeof(Arguments) == 32 && sizeof(Batch) == 16);

constexpr size_t kArgumentBytes = 4096;
constexpr size_t kStartedOffset = 72;  // in the communicator: address of the channels' slots
constexpr size_t kCompletedOffset = 80;

struct Channel {
  struct {
    uint64_t counter;
    uint64_t time_ns;
  } slots[kSlots];
};

bool IsKnownRelease() {
  static const bool kKnown = [] {
    int version = 0;
    return REAL_CALL(ncclGetVersion, &version) == ncclSuccess && version >= kFirstRelease &&
           version < kBehindLastRelease;
  }();
  return kKnown;
}

std::map<int, uint64_t> WorksOf(const void* arguments) {
  Arguments header;
  std::memcpy(&header, arguments, sizeof header);
  constexpr size_t kMostBatches = (kArgumentBytes - sizeof(Arguments)) / sizeof(Batch);
  std::map<int, uint64_t> works;
  size_t first = 0;
  for (int channel = 0; channel < kChannels; ++channel) {
    if ((header.channels >> channel & 1) == 0) continue;
    for (size_t place = first++; place < kMostBatches;) {
      Batch batch;
      std::memcpy(&batch, static_cast<const unsigned char*>(arguments) + sizeof header + place * sizeof batch,
                  sizeof batch);
      works[channel] += static_cast<uint64_t>(std::popcount(batch.works));
      if (batch.next == 0) break;
      place += batch.next;
    }
  }
  return works;
}

class WorkCounters : public KernelWatcher {
 public:
  WorkCounters(const void* arguments, std::shared_ptr<WorkCounts> counts)
      : works_(WorksOf(arguments)), counts_(std::move(counts)) {
    std::memcpy(&communicator_, arguments, sizeof communicator_);
  }

  void OnStart(uint64_t start_ns) override {
    const std::lock_guard<std::mutex> lock(counts_->mutex);
    Write(kStartedOffset, start_ns);
  }
  void OnEnd(uint64_t end_ns) override {
    const std::lock_guard<std::mutex> lock(counts_->mutex);
    Write(kCompletedOffset, end_ns);
    for (const auto& [channel, works] : works_) counts_->by_channel[channel] += works;
  }

 private:
  void Write(size_t offset, uint64_t time_ns) const {
    if (counts_->gone) return;
    Channel* channels = nullptr;
    std::memcpy(&channels, communicator_ + offset, sizeof channels);
    if (channels == nullptr) return;
    for (const auto& [number, works] : works_) {
      const uint64_t before = counts_->by_channel[number];
      for (uint64_t work = before + 1; work <= before + works; ++work) {
        auto& slot = channels[number].slots[work % kSlots];
        slot.time_ns = time_ns;
        __atomic_store_n(&slot.counter, work, __ATOMIC_RELEASE);
      }
    }
  }

  const unsigned char* communicator_ = nullptr;
  const std::map<int, uint64_t> works_;
  const std::shared_ptr<WorkCounts> counts_;
};

}  // namespace

std::shared_ptr<KernelWatcher> CountWorks(const void* arguments, std::shared_ptr<WorkCounts> counts) {
  if (!IsKnownRelease()) return nullptr;
  return std::make_shared<WorkCounters>(arguments, std::move(counts));
}

}  // namespace gpusim::nccl
