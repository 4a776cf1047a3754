#include "injector/sampling/host_sampler.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "injector/base/futex.h"
#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/base/text.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/recording.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kMsNs = GapWatch::kMsNs;
constexpr uint64_t kLaunchesNowNs = 2000 * kMsNs;  // a thread that launched so lately is one that launches
constexpr uint64_t kBetweenSearchesNs = 3000 * kMsNs;  // for an interpreter
constexpr uint64_t kMostOfANapNs = 100'000;
constexpr uint64_t kRestUnlessLiveNs = 100 * kMsNs;
constexpr int kMostLookedThrough = 1024;  // threads, for one of a number
constexpr uint64_t kBetweenClockReadingsNs = 900 * kMsNs;

// By the kernel's clocks: a library may replace the C library's.
uint64_t HashOf(std::string_view text) noexcept {
  uint64_t hash = text.size();
  for (const char c : text) hash = MixBits(hash ^ static_cast<unsigned char>(c));
  return hash;
}

bool IsRecordedNow(uint64_t now_ns) noexcept {
  return recording.Holds(now_ns) && (!step_gate.in_use() || step_gate.is_open());
}

}  // namespace

int64_t HostSampler::RestMs(int64_t most_ms) const noexcept {
  if (!enabled_) return most_ms;
  const uint64_t now_ns = KernelClockNs(CLOCK_MONOTONIC);
  const auto left = static_cast<int64_t>((next_ns_ - std::min(next_ns_, now_ns)) / kMsNs);
  return std::min(most_ms, std::max<int64_t>(left, 1));
}

void HostSampler::Tick(const std::atomic<bool>& stop) noexcept {
  if (!enabled_) return;
  const uint64_t monotonic_ns = KernelClockNs(CLOCK_MONOTONIC);
  if (monotonic_ns < next_ns_) return;
  // Going to sleep and waking up cost, too; in between may have been other work.
  const uint64_t nap_ns = KernelClockNs(CLOCK_THREAD_CPUTIME_ID) - ended_cpu_ns_;
  const uint64_t began_ns = nap_ns < kMostOfANapNs ? ended_cpu_ns_ : ended_cpu_ns_ + nap_ns;
  budget_.PassUntil(monotonic_ns);
  const LifecycleState state = CurrentLifecycle();
  if (state == LifecycleState::kClosed) enabled_ = false;
  const bool live = state == LifecycleState::kLive;
  if (!live || !IsRecordedNow(NowNs())) {
    watch_.Skip(NowNs());
  } else if (budget_.Allows()) {
    Look(stop, monotonic_ns);
  }
  ended_cpu_ns_ = KernelClockNs(CLOCK_THREAD_CPUTIME_ID);
  budget_.TakeCpu(ended_cpu_ns_ - began_ns);
  // Waking up costs as much as a sample: not before there can be one.
  next_ns_ =
      monotonic_ns + (live ? std::max(watch_.RestNs(budget_.PaceNs()), budget_.RestNs()) : kRestUnlessLiveNs);
}

void HostSampler::Look(const std::atomic<bool>& stop, uint64_t monotonic_ns) noexcept {
  if (monotonic_ns - clock_read_ns_ >= kBetweenClockReadingsNs) {
    clock_read_ns_ = monotonic_ns;
    const Lock lock(stream_->mutex);
    host_clock.Read(false);
  }
  const uint64_t now_ns = NowNs();
  FindLaunchers(now_ns);
  GapWatch::Sample sample;
  if (!watch_.Look(now_ns, launched_ns_, &sample)) return;
  Target targets[kMostTargets];
  const size_t count = ChooseTargets(now_ns, targets);
  FindPython(targets, count, monotonic_ns);
  // A thread that is at work, or waits for something else than a thread, explains the gap alone, unless only
  // the line at which the main thread waits for it says what for.
  uint64_t holder = 0;
  bool works = false;
  bool has_line = false;
  for (size_t i = 0; i < count && !(works && has_line); ++i) {
    if (stop.load(std::memory_order_relaxed)) return;
    budget_.TakeSample();
    const Seen seen = Sample(targets[i], now_ns, monotonic_ns, sample);
    holder = std::max(holder, seen.lock_holder);
    works = works || !seen.waits;
    has_line = has_line || seen.has_line;
  }
  const bool is_sampled = std::any_of(targets, targets + count,
                                      [&](const Target& target) { return target.python.state == holder; });
  Target other;
  if (holder == 0 || is_sampled || !FindHolder(holder, &other)) return;
  budget_.TakeSample();
  Sample(other, now_ns, monotonic_ns, sample);
}

// All threads of most programs; of the others a part at a time, and those that are known to launch.
void HostSampler::FindLaunchers(uint64_t now_ns) noexcept {
  for (Launcher& launcher : launchers_) {
    if (launcher.thread == nullptr) continue;
    if (!launcher.thread->in_use.load(std::memory_order_acquire)) {
      launcher = {};
      continue;
    }
    const uint64_t stamp = launcher.thread->launch_entered_ns;
    if (stamp != 0 && stamp != launcher.stamp)
      launcher = {launcher.thread, stamp, host_clock.RealtimeNs(stamp)};
    launcher.launched_ns = std::min(now_ns, launcher.launched_ns);  // the clock may have been set back
  }
  std::sort(std::begin(launchers_), std::end(launchers_),
            [](const Launcher& a, const Launcher& b) { return a.launched_ns > b.launched_ns; });
  const int used = UsedThreads();
  for (int i = 0; i < std::min(used, kLooksAtOnce); ++i) {
    if (next_place_ >= used) next_place_ = 0;
    NoteLauncher(ThreadAt(next_place_++), now_ns);
  }
  launched_ns_ = std::max(std::min(launched_ns_, now_ns), launchers_[0].launched_ns);
}

void HostSampler::NoteLauncher(ThreadState& thread, uint64_t now_ns) noexcept {
  if (!thread.in_use.load(std::memory_order_acquire)) return;
  if (thread.tid == pid_) main_ = &thread;
  const uint64_t stamp = thread.launch_entered_ns;
  if (stamp == 0) return;
  for (const Launcher& launcher : launchers_) {
    if (launcher.thread == &thread) return;
  }
  const Launcher found{&thread, stamp, std::min(now_ns, host_clock.RealtimeNs(stamp))};
  size_t place = kMostTargets - 1;  // the oldest makes room
  if (launchers_[place].launched_ns >= found.launched_ns) return;
  for (; place > 0 && launchers_[place - 1].launched_ns < found.launched_ns; --place)
    launchers_[place] = launchers_[place - 1];
  launchers_[place] = found;
}

bool HostSampler::AddTarget(ThreadState* thread, Target* targets, size_t* count) const noexcept {
  const uint32_t tid = thread == nullptr ? pid_ : uint32_t{thread->tid};
  const uint32_t id = thread == nullptr ? main_id_ : uint32_t{thread->thread_id};
  for (size_t i = 0; i < *count; ++i) {
    if (targets[i].tid == tid) return true;
  }
  if (tid == 0 || id == 0 || *count == kMostTargets) return false;
  Target& target = targets[(*count)++];
  target.thread = thread;
  target.tid = tid;
  target.id = id;
  return true;
}

size_t HostSampler::ChooseTargets(uint64_t now_ns, Target* targets) noexcept {
  size_t count = 0;
  if (launchers_[0].thread != nullptr) AddTarget(launchers_[0].thread, targets, &count);
  if (main_ != nullptr && (!main_->in_use.load(std::memory_order_acquire) || main_->tid != pid_)) {
    // It has left by pthread_exit.
  } else if (main_ == nullptr || !AddTarget(main_, targets, &count)) {
    if (main_id_ == 0) DefineMainThread();
    AddTarget(nullptr, targets, &count);
  }
  for (const Launcher& launcher : launchers_) {
    if (launcher.thread != nullptr && launcher.launched_ns + kLaunchesNowNs > now_ns)
      AddTarget(launcher.thread, targets, &count);
  }
  return count;
}

// A thread that has emitted nothing has no definition.
void HostSampler::DefineMainThread() noexcept {
  main_id_ = NewThreadId();
  DefineThread(main_id_, pid_, "/proc/self/comm");
}

void HostSampler::DefineThread(uint32_t id, uint32_t tid, const char* comm) noexcept {
  char name[32];
  size_t length = ReadOwnFile(comm, name, sizeof(name));
  if (length > 0 && name[length - 1] == '\n') --length;
  const Lock lock(stream_->mutex);
  stream_->builder.DefineThread(id, tid, {name, length}, tid == pid_);
}

// Of all Python's threads.
bool HostSampler::FindHolder(uint64_t state, Target* target) noexcept {
  python_.ForEachThread([&](const stacks::PythonThread& thread) noexcept {
    if (thread.state != state) return true;
    target->python = thread;
    target->has_python = true;
    target->tid = static_cast<uint32_t>(thread.tid);
    return false;
  });
  if (target->tid == 0) return false;
  for (int i = 0; i < std::min(UsedThreads(), kMostLookedThrough) && target->thread == nullptr; ++i) {
    ThreadState& thread = ThreadAt(i);
    if (thread.in_use.load(std::memory_order_acquire) && thread.tid == target->tid && thread.thread_id != 0)
      target->thread = &thread;
  }
  if (target->thread != nullptr) {
    target->id = target->thread->thread_id;
    return true;
  }
  for (size_t i = 0; i < other_count_; ++i) {
    if (others_[i].tid == target->tid) target->id = others_[i].id;
  }
  if (target->id != 0) return true;
  if (other_count_ == std::size(others_)) return false;
  const Other& other = others_[other_count_++] = {target->tid, NewThreadId()};
  target->id = other.id;
  TextBuffer<64> comm;
  comm.Add("/proc/self/task/").AddNumber(other.tid).Add("/comm");
  DefineThread(other.id, other.tid, comm.c_str());
  return true;
}

void HostSampler::FindPython(Target* targets, size_t count, uint64_t monotonic_ns) noexcept {
  if (unreadable_ == stacks::Unreadable::kNoInterpreter &&
      (searched_ns_ == 0 || monotonic_ns - searched_ns_ >= kBetweenSearchesNs)) {
    searched_ns_ = search_.Look(&python_, &unreadable_) ? monotonic_ns : 0;
  }
  if (unreadable_ != stacks::Unreadable::kNo) return;
  size_t found = 0;
  python_.ForEachThread([&](const stacks::PythonThread& thread) noexcept {
    for (size_t i = 0; i < count; ++i) {
      if (targets[i].has_python || static_cast<uint32_t>(thread.tid) != targets[i].tid) continue;
      targets[i].has_python = true;
      targets[i].python = thread;
      ++found;
    }
    return found < count;
  });
}

void HostSampler::TakeCall(const ThreadState& thread, const char** name, uint64_t* since) noexcept {
  const auto take = [&](const CurrentCall& call, uint64_t launched) noexcept {
    *name = call.name;
    if (*name == nullptr) return false;
    *since = call.since;
    // What is no launch began later than the latest launch.
    *since = std::max(*since, launched);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (call.name == *name && std::max<uint64_t>(call.since, launched) == *since) return true;
    *name = nullptr;
    return false;
  };
  if (!take(thread.nccl_call, 0)) take(thread.driver_call, thread.launch_entered_ns);
}

stacks::PythonStack& HostSampler::StackFor(uint32_t tid) noexcept {
  for (Reading& reading : readings_) {
    if (reading.tid == tid) return reading.stack;
  }
  next_reading_ = 1 - next_reading_;
  readings_[next_reading_].tid = tid;
  return readings_[next_reading_].stack;
}

wire::StackState HostSampler::ReadPython(const Target& target, stacks::PythonStack& stack) noexcept {
  using wire::StackState;
  if (unreadable_ == stacks::Unreadable::kNoInterpreter) return StackState::kStackStateNoPython;
  if (unreadable_ != stacks::Unreadable::kNo || python_.refused()) return StackState::kStackStateNotReadable;
  if (!target.has_python) return StackState::kStackStateNoPython;
  const auto find = [](const void* places, const stacks::PythonPlace& place) {
    return static_cast<const KnownPlaces*>(places)->Find(place);
  };
  if (!python_.ReadStack(target.python, stack, find, &places_, stacks::PythonProcess::Torn::kOuter))
    return StackState::kStackStateUnknown;
  if (python_.refused()) return StackState::kStackStateNotReadable;
  switch (stack.quality()) {
    case stacks::StackQuality::kWhole:
      return stack.size() == 0 ? StackState::kStackStateNoPython : StackState::kStackStateWhole;
    case stacks::StackQuality::kOuterMissing:
      return StackState::kStackStateOuterMissing;
    case stacks::StackQuality::kTorn:
      break;
  }
  return StackState::kStackStateTorn;
}

// Of the stack that was read; under the builder's lock. 0: no room.
uint32_t HostSampler::DefineFrames(const stacks::PythonStack& stack) noexcept {
  BatchBuilder& builder = stream_->builder;
  uint32_t id = 0;
  for (size_t i = stack.size(); i > 0; --i) {
    const stacks::PythonFrame& frame = stack[i - 1];
    const KnownPlaces::Names names =
        frame.known != 0 ? places_.Of(frame.known)
                         : KnownPlaces::Names{builder.String(frame.function), builder.String(frame.file),
                                              static_cast<uint32_t>(frame.line)};
    id = names.function == 0 ? 0 : builder.Frame({id, names.function, names.file, names.line});
    if (id == 0) return 0;
  }
  for (size_t i = 0; i < stack.size(); ++i) {
    const stacks::PythonFrame& frame = stack[i];
    if (frame.known == 0 && frame.place.code != 0)
      places_.Add(frame.place, {builder.String(frame.function), builder.String(frame.file),
                                static_cast<uint32_t>(frame.line)});
  }
  return id;
}

// Only so many: a program may read a million files.
uint32_t HostSampler::DefineFile(int32_t descriptor) noexcept {
  char room[1024];
  const std::string_view file = ThreadFiles::FileOf(descriptor, room, sizeof(room));
  if (file.empty()) return 0;
  const uint64_t hash = HashOf(file);
  if (known_files_.Find(hash) == nullptr && known_files_.Insert(hash, 1) == nullptr) return 0;
  const Lock lock(stream_->mutex);
  return stream_->builder.String(file);
}

HostSampler::Seen HostSampler::Sample(const Target& target, uint64_t now_ns, uint64_t monotonic_ns,
                                      const GapWatch::Sample& sample) noexcept {
  const char* call = nullptr;
  uint64_t call_since = 0;
  if (target.thread != nullptr) TakeCall(*target.thread, &call, &call_since);
  const KernelView view = files_.Look(target.tid, target.id, monotonic_ns);
  if (view.ended) return {.waits = true};
  stacks::PythonStack& stack = StackFor(target.tid);
  const wire::StackState state = ReadPython(target, stack);
  Seen seen{.waits = call == nullptr &&
                     (view.sleeps_on != 0 || view.state == wire::ThreadState::kThreadStateUnknown)};
  if (call == nullptr && target.has_python && python_.IsLock(target.python, view.sleeps_on)) {
    call = "take_gil";  // CPython's own name of it
    seen.lock_holder = python_.HolderOfLock(target.python);
  }
  // By now the thread may have ended, and another one may have its place or its number.
  if (target.thread != nullptr && (!target.thread->in_use.load(std::memory_order_acquire) ||
                                   target.thread->tid != target.tid || target.thread->thread_id != target.id))
    return {.waits = true};
  wire::HostSampleRow row{.time_ns = now_ns,
                          .since_ns = sample.since_ns,
                          .thread = target.id,
                          .in_gap = sample.in_gap,
                          .state = view.state,
                          .system_call = view.system_call,
                          .file = DefineFile(view.descriptor),
                          .run_delay_ns = std::min(view.run_delay_ns, now_ns - sample.since_ns),
                          .stack = state};
  const Lock lock(stream_->mutex);
  if (call != nullptr) {
    row.call = stream_->builder.String(call);
    row.call_since_ns = call_since == 0 ? 0 : std::min(now_ns, host_clock.RealtimeNs(call_since));
  }
  // Of a torn stack the outer functions may be known.
  if (stack.size() > 0 &&
      (state == wire::StackState::kStackStateWhole || state == wire::StackState::kStackStateOuterMissing ||
       state == wire::StackState::kStackStateTorn)) {
    last_stack_.Record(target.tid, now_ns, call, stack);
    row.frame = DefineFrames(stack);
    if (row.frame == 0) row.stack = wire::StackState::kStackStateUnknown;
  }
  stream_->builder.Add(row);
  seen.has_line = row.frame != 0 || unreadable_ != stacks::Unreadable::kNo || python_.refused();
  return seen;
}

}  // namespace gpuprobe::injector
