#include "tests/sim/core/schedule.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "tests/sim/core/truth.h"

namespace gpusim {

std::atomic<const CuptiHooks*> cupti_hooks{nullptr};
std::atomic<bool> cupti_claimed{false};

namespace {

constexpr uint64_t kNever = ~uint64_t{0};
// How long the records of ended work may lie when nobody waits for it: one wake-up a millisecond instead of
// one a kernel.
constexpr uint64_t kDeliveryLagNs = 1'000'000;
// How often other processes' arrival is looked for. Eight ranks share two cores, so it slows down while
// nothing comes.
constexpr uint64_t kFirstPollNs = 50'000;
constexpr uint64_t kSlowestPollNs = 400'000;

std::atomic<bool> lost_to_fork{false};

std::chrono::system_clock::time_point TimePoint(uint64_t ns) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(ns)));
}

void SleepUntil(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, uint64_t until_ns) {
  if (until_ns == kNever) {
    condition.wait(lock);
  } else {
    condition.wait_until(lock, TimePoint(until_ns));
  }
}

// The application's signals are for its own threads.
void StartThread(const char* name, const std::function<void()>& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([name, body] {
    pthread_setname_np(pthread_self(), name);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    body();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Deliver(const Activity& activity) {
  const CuptiHooks* hooks = cupti_hooks.load(std::memory_order_acquire);
  if (hooks != nullptr && hooks->activity != nullptr) hooks->activity(activity);
}

}  // namespace

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool LostToFork() { return lost_to_fork.load(std::memory_order_relaxed); }

void LoseToForks() {
  pthread_atfork(nullptr, nullptr, [] { lost_to_fork.store(true, std::memory_order_relaxed); });
}

Schedule& Schedule::Get() {
  static auto* schedule =
      new Schedule;  // outlives static destruction: its thread runs until the process ends
  return *schedule;
}

void Schedule::EnsureThread() {
  if (thread_started_) return;
  thread_started_ = true;
  StartThread("gpusim-schedule", [this] { Run(); });
}

void Schedule::Nudge(uint64_t wake_ns) {
  if (wake_ns < sleeping_until_ns_) wake_.notify_one();
}

void Schedule::Submit(const OpPtr& op, const std::vector<OpPtr>& dependencies) {
  EnsureThread();
  op->sequence = ++next_sequence_;
  for (const OpPtr& dependency : dependencies) {
    if (dependency == nullptr) continue;
    if (dependency->resolved) {
      op->ready_ns = std::max(op->ready_ns, dependency->end_ns);
    } else {
      dependency->dependents.push_back(op);
      ++op->blockers;
    }
  }
  if (op->in_flight != nullptr) ++*op->in_flight;
  if (op->blockers != 0) return;
  std::vector<OpPtr> resolved;
  MakeReady(op, &resolved);
}

// Everything that `op` waits for has an end. Timed work gets its own at once and is added to `resolved`.
void Schedule::MakeReady(const OpPtr& op, std::vector<OpPtr>* resolved) {
  switch (op->work.kind) {
    case WorkKind::kTimed:
      op->start_ns = op->ready_ns;
      op->end_ns = op->ready_ns + op->work.duration_ns;
      op->resolved = true;
      ending_.push(op);
      if (op->waiters > 0) awaited_.insert(op->end_ns);
      Nudge(op->waiters > 0 ? op->end_ns : op->end_ns + kDeliveryLagNs);
      resolved->push_back(op);
      break;
    case WorkKind::kRendezvous:
      op->poll_ns = op->ready_ns;
      op->poll_step_ns = kFirstPollNs;
      meetings_.push_back(op);
      Nudge(op->poll_ns);
      break;
    case WorkKind::kHost:
      if (!host_thread_started_) {
        host_thread_started_ = true;
        StartThread("gpusim-host", [this] { RunHostFunctions(); });
      }
      host_queue_.push_back(op);
      host_wake_.notify_one();
      break;
  }
}

void Schedule::Resolve(const OpPtr& op, uint64_t start_ns, uint64_t end_ns) {
  op->start_ns = start_ns;
  op->end_ns = end_ns;
  op->resolved = true;
  ending_.push(op);
  if (op->waiters > 0) awaited_.insert(end_ns);
  Nudge(op->waiters > 0 ? end_ns : end_ns + kDeliveryLagNs);
  std::vector<OpPtr> resolved{op};  // a list, not recursion: a thousand operations may queue behind one
  while (!resolved.empty()) {
    const OpPtr next = resolved.back();
    resolved.pop_back();
    for (const OpPtr& dependent : std::exchange(next->dependents, {})) {
      dependent->ready_ns = std::max(dependent->ready_ns, next->end_ns);
      if (--dependent->blockers == 0) MakeReady(dependent, &resolved);
    }
  }
}

void Schedule::Wait(std::unique_lock<std::mutex>& lock, const OpPtr& op) {
  if (op == nullptr || op->done) return;
  ++op->waiters;
  if (op->resolved) {
    awaited_.insert(op->end_ns);
    Nudge(op->end_ns);
  }
  done_.wait(lock, [&op] { return op->done; });
  --op->waiters;
}

bool Schedule::Finished(std::unique_lock<std::mutex>& lock, const OpPtr& op) {
  if (op == nullptr || op->done) return true;
  if (!op->resolved || op->end_ns > NowNs()) return false;
  Wait(lock, op);
  return true;
}

void Schedule::WaitUntilBelow(std::unique_lock<std::mutex>& lock, const std::shared_ptr<size_t>& in_flight,
                              size_t limit) {
  ++waiting_for_room_;
  if (!ending_.empty()) Nudge(ending_.top()->end_ns);
  done_.wait(lock, [&] { return *in_flight <= limit; });
  --waiting_for_room_;
}

void Schedule::Post(const Activity& activity) {
  if (cupti_hooks.load(std::memory_order_acquire) == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  EnsureThread();
  posted_.push_back(activity);
  if (posted_.size() == 1) Nudge(NowNs() + kDeliveryLagNs);
}

void Schedule::Settle() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!thread_started_ || LostToFork()) return;
  const uint64_t ticket = ++settles_wanted_;
  wake_.notify_one();
  done_.wait(lock, [this, ticket] { return settles_done_ >= ticket; });
}

uint64_t Schedule::NextWake() const {
  uint64_t wake_ns = kNever;
  if (!awaited_.empty()) wake_ns = std::min(wake_ns, *awaited_.begin());
  const uint64_t lag_ns = waiting_for_room_ > 0 ? 0 : kDeliveryLagNs;
  if (!ending_.empty()) wake_ns = std::min(wake_ns, ending_.top()->end_ns + lag_ns);
  if (!posted_.empty()) wake_ns = std::min(wake_ns, posted_.front().end_ns + kDeliveryLagNs);
  for (const OpPtr& op : meetings_) wake_ns = std::min(wake_ns, op->poll_ns);
  return wake_ns;
}

// Everything that ended until then has left its bytes.
bool Schedule::HasPerformedUntil(uint64_t ns) const { return ending_.empty() || ending_.top()->end_ns > ns; }

void Schedule::PollMeetings(uint64_t now_ns) {
  const std::vector<OpPtr> meetings = meetings_;  // resolving one may add others
  for (const OpPtr& op : meetings) {
    if (op->poll_ns > now_ns) continue;
    if (!op->arrived) {
      if (!HasPerformedUntil(op->ready_ns)) continue;  // what it gives to other ranks is not there yet
      op->arrived = true;
      op->meeting->Arrive(op->ready_ns);
    }
    Interval interval;
    if (op->meeting->Resolve(&interval)) {
      meetings_.erase(std::find(meetings_.begin(), meetings_.end(), op));
      Resolve(op, std::max(interval.start_ns, op->ready_ns), std::max(interval.end_ns, op->ready_ns));
    } else {
      op->poll_ns = now_ns + op->poll_step_ns;
      op->poll_step_ns = std::min(kSlowestPollNs, op->poll_step_ns * 5 / 4);
    }
  }
}

// Performs what has ended by `now_ns`; false if there was nothing.
bool Schedule::Perform(std::unique_lock<std::mutex>& lock, uint64_t now_ns) {
  std::vector<OpPtr> ended;
  while (!ending_.empty() && ending_.top()->end_ns <= now_ns) {
    ended.push_back(ending_.top());
    ending_.pop();
  }
  const std::vector<Activity> posted = std::exchange(posted_, {});
  if (ended.empty() && posted.empty()) return false;
  const bool truth = TruthWanted();
  lock.unlock();
  std::string lines;
  for (const OpPtr& op : ended) {
    if (op->work.effect) op->work.effect();
    if (op->meeting != nullptr) op->meeting->MoveBytes();
    if (!op->work.reported) continue;
    op->work.activity.start_ns = op->start_ns;
    op->work.activity.end_ns = op->end_ns;
    if (!truth) continue;
    AppendTruth(op->work.activity, &lines);
    if (op->work.rendezvous == nullptr) continue;
    for (const CollectiveTruth& call : op->work.rendezvous->calls)
      AppendTruth(op->work.activity, call, &lines);
  }
  WriteTruth(lines);
  for (const OpPtr& op : ended) {
    if (op->work.reported) Deliver(op->work.activity);
  }
  for (const Activity& activity : posted) Deliver(activity);
  lock.lock();
  for (const OpPtr& op : ended) {
    op->done = true;
    op->work.effect = nullptr;
    op->meeting.reset();
    if (op->in_flight != nullptr) --*op->in_flight;
  }
  awaited_.erase(awaited_.begin(), awaited_.upper_bound(now_ns));
  done_.notify_all();
  return true;
}

void Schedule::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    sleeping_until_ns_ = 0;  // awake: nobody needs to nudge
    const uint64_t settles = settles_wanted_;
    const uint64_t now_ns = NowNs();
    // Not after a nudge for something later, such as the first of many short kernels.
    const bool is_due = settles_done_ < settles || NextWake() <= now_ns;
    PollMeetings(now_ns);
    if (is_due && Perform(lock, now_ns)) continue;
    if (settles_done_ < settles) {
      settles_done_ = settles;
      done_.notify_all();
    }
    if (settles_wanted_ > settles) continue;
    sleeping_until_ns_ = NextWake();
    SleepUntil(wake_, lock, sleeping_until_ns_);
  }
}

void Schedule::RunHostFunctions() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const auto first =
        std::min_element(host_queue_.begin(), host_queue_.end(),
                         [](const OpPtr& a, const OpPtr& b) { return a->ready_ns < b->ready_ns; });
    if (first == host_queue_.end()) {
      host_wake_.wait(lock);
      continue;
    }
    const uint64_t now_ns = NowNs();
    if ((*first)->ready_ns > now_ns) {
      SleepUntil(host_wake_, lock, (*first)->ready_ns);
      continue;
    }
    const OpPtr op = *first;
    host_queue_.erase(first);
    // What it follows must be visible to it, and the records too.
    lock.unlock();
    Settle();
    if (op->work.host) op->work.host();
    lock.lock();
    Resolve(op, std::max(now_ns, op->ready_ns), NowNs());
  }
}

void SettleFinishedWork() { Schedule::Get().Settle(); }

}  // namespace gpusim
