#include "tests/sim/nccl/watched_kernel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "tests/sim/core/cupti_seam.h"

namespace gpusim::nccl {
namespace {

struct Notice {
  uint64_t time_ns = 0;
  uint64_t number = 0;  // in the order in which they came to be known
  bool end = false;
  std::shared_ptr<KernelWatcher> watcher;
};

struct Later {
  bool operator()(const Notice& a, const Notice& b) const {
    return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.number > b.number;
  }
};

// Never destroyed: its thread goes on until the process ends.
class Notices {
 public:
  static Notices& Get() {
    static auto* notices = new Notices;
    return *notices;
  }

  void Add(uint64_t time_ns, bool end, std::shared_ptr<KernelWatcher> watcher) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) std::thread([this] { Run(); }).detach();
    started_ = true;
    notices_.push({time_ns, next_number_++, end, std::move(watcher)});
    wake_.notify_all();
  }

  void Settle() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t now_ns = NowNs();
    idle_.wait(lock, [&] { return !busy_ && (notices_.empty() || notices_.top().time_ns > now_ns); });
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      idle_.notify_all();
      if (notices_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const uint64_t now_ns = NowNs();
      if (notices_.top().time_ns > now_ns) {
        wake_.wait_for(lock, std::chrono::nanoseconds(notices_.top().time_ns - now_ns));
        continue;
      }
      const Notice next = notices_.top();
      notices_.pop();
      busy_ = true;
      lock.unlock();
      next.end ? next.watcher->OnEnd(next.time_ns) : next.watcher->OnStart(next.time_ns);
      lock.lock();
      busy_ = false;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  bool started_ = false;
  bool busy_ = false;
  uint64_t next_number_ = 0;
  std::priority_queue<Notice, std::vector<Notice>, Later> notices_;
};

class WatchedMeeting : public Rendezvous {
 public:
  WatchedMeeting(std::shared_ptr<Rendezvous> meeting, std::shared_ptr<KernelWatcher> watcher)
      : meeting_(std::move(meeting)), watcher_(std::move(watcher)) {}

  void Arrive(uint64_t ready_ns) override {
    ready_ns_ = ready_ns;
    meeting_->Arrive(ready_ns);
    Notices::Get().Add(ready_ns, false, watcher_);
  }
  bool Resolve(Interval* interval) override {
    if (!meeting_->Resolve(interval)) return false;
    Notices::Get().Add(std::max(interval->end_ns, ready_ns_), true, watcher_);
    return true;
  }
  void MoveBytes() override { meeting_->MoveBytes(); }

 private:
  const std::shared_ptr<Rendezvous> meeting_;
  const std::shared_ptr<KernelWatcher> watcher_;
  uint64_t ready_ns_ = 0;
};

struct WatchedState {
  RendezvousFactory factory = nullptr;
  std::shared_ptr<void> state;
  std::shared_ptr<KernelWatcher> watcher;
};

std::shared_ptr<Rendezvous> MakeWatched(void* opaque) {
  const auto& watched = *static_cast<const WatchedState*>(opaque);
  return std::make_shared<WatchedMeeting>(watched.factory(watched.state.get()), watched.watcher);
}

}  // namespace

void WatchKernel(RendezvousLaunch& launch, std::shared_ptr<KernelWatcher> watcher) {
  launch.state = std::make_shared<WatchedState>(
      WatchedState{launch.factory, std::move(launch.state), std::move(watcher)});
  launch.factory = MakeWatched;
}

void SettleWatchers() { Notices::Get().Settle(); }

}  // namespace gpusim::nccl
