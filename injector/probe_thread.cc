#include "injector/probe_thread.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "injector/guard.h"
#include "injector/lifecycle.h"
#include "injector/parts.h"
#include "injector/recording.h"
#include "injector/step_gate.h"
#include "injector/stream/event_ring.h"
#include "injector/stream/lock.h"
#include "injector/stream/losses.h"
#include "injector/stream/self_report.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kLineBytes = size_t{2} * PATH_MAX;
constexpr size_t kStackBytes = size_t{512} << 10;
constexpr uint64_t kEventSettleNs =
    1'000'000;  // an event is published at most about this long after its clock was read
// Counters and the host's state go out this often although there is nothing else to say: a collector takes a
// silence of 10 s for a process that is stopped.
constexpr int64_t kReportEveryMs = 2000;
constexpr int64_t kIdentitySettlesMs = 5000;
constexpr int kPumpSliceMs = 20;       // longest wait for the socket before the rings are looked at again
constexpr int64_t kPlaceWaitMs = 300;  // at exit, for the collector to say where it records
constexpr int kByeReserveMs = 300;     // of the exit wait, kept for sending when CUPTI's flush hangs

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

int64_t MonotonicMs() noexcept { return static_cast<int64_t>(MonotonicNs() / 1'000'000); }

// Sleeps while `word` is `value`, at most `milliseconds`.
void FutexWait(std::atomic<uint32_t>& word, uint32_t value, int64_t milliseconds) noexcept {
  if (milliseconds <= 0) return;
  const timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
}

void SetAndWake(std::atomic<uint32_t>& word) noexcept {
  word.store(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Waits until `word` is set; false when the time is over.
bool WaitForSet(std::atomic<uint32_t>& word, int64_t deadline_ms) noexcept {
  while (word.load(std::memory_order_acquire) == 0) {
    const int64_t left = deadline_ms - MonotonicMs();
    if (left <= 0) return false;
    FutexWait(word, 0, left);
  }
  return true;
}

// A detached thread with every signal blocked, so that the program's handlers run on the program's threads.
bool StartDetached(void* (*main)(void*), void* argument) noexcept {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, main, argument) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

int32_t AskVersion(const char* library, const char* function) noexcept {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  auto* ask = reinterpret_cast<int (*)(int*)>(dlsym(handle, function));
  int version = 0;
  const bool known = ask != nullptr && ask(&version) == 0;
  dlclose(handle);
  return known ? version : 0;
}

}  // namespace

void SayLine(std::string_view text) noexcept {
  TextBuffer<kLineBytes> line;
  line.Add("gpuprobe: ").Add(text).Add("\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.c_str(), line.size());
}

bool ProbeThread::Start(const Options& options, const HelloFacts& facts) noexcept {
  options_ = options;
  facts_ = facts;
  governor_.Init(options.budget_percent, recording.kinds & kRecordGraphsWhole
                                             ? wire::DetailLevel::kDetailLevelGraphs
                                             : wire::DetailLevel::kDetailLevelFull);
  // Who this is goes out before the program runs on, if a collector is there: a process that dies within a
  // millisecond is then one that was cut off, not one that was never seen. The socket does not block.
  greeted_ = connection_->open() && sender_.Greet(*identity_, facts_);
  if (greeted_) sender_.Pump(0);
  return StartDetached(Main, this);
}

void* ProbeThread::Main(void* self) noexcept {
  prctl(PR_SET_NAME, "gpuprobe", 0, 0, 0);
  CurrentThread().guard_depth = 1;  // for good: what this thread makes CUDA do is not the program's
  auto* thread = static_cast<ProbeThread*>(self);
  thread->Run();
  SetAndWake(thread->done_word_);
  return nullptr;
}

void ProbeThread::Run() noexcept {
  if (!Connect()) {
    GiveUp();
    return;
  }
  Loop();
}

int64_t ProbeThread::ExitTimeLeftMs() const noexcept {
  return finishing() ? finish_deadline_ms_.load(std::memory_order_relaxed) - MonotonicMs() : INT64_MAX;
}

// True when somebody called for a flush since the wake word was `seen`. A call for a look at new objects is
// answered here, and updates it.
bool ProbeThread::Called(uint32_t* seen) noexcept {
  const uint32_t word = wake_word.load(std::memory_order_acquire);
  if (AsksForFlush(word, *seen)) return true;
  if (word != *seen) LookParts();
  *seen = word;
  return false;
}

// `seen` is the wake word from before the work: a wake that came during it ends the sleep at once.
void ProbeThread::SleepUntil(int64_t deadline_ms, uint32_t seen) noexcept {
  while (!finishing() && !Called(&seen)) {
    const int64_t left = deadline_ms - MonotonicMs();
    if (left <= 0) return;
    FutexWait(wake_word, seen, left);
  }
}

// --- the collector
// ---------------------------------------------------------------------------------------------------------

bool ProbeThread::Connect() noexcept {
  if (sender_.ended()) return false;
  if (connection_->open()) return greeted_;
  return ConnectToStarted() && sender_.Greet(*identity_, facts_);
}

bool ProbeThread::ConnectToStarted() noexcept {
  const int64_t deadline = MonotonicMs() + options_.connect_wait_ms;
  bool started = false;
  while (MonotonicMs() < deadline && ExitTimeLeftMs() > kByeReserveMs) {
    // Who holds the lock looks once more before it starts one: the collector of whoever held it before may
    // just have come up.
    if (connection_->TryPlaces(*places_) >= 0) break;
    if (!started) {
      const Autostart::Result result = autostart_->TryStart();
      if (result == Autostart::Result::kFailed) {
        TextBuffer<512> line;
        line.Add("no collector answers and none could be started (").Add(autostart_->problem());
        line.Add("); recording nothing. Remedy: gpuprobe collect, or GPUPROBE_AUTOSTART=0.");
        SayLine(line.view());
        return false;
      }
      started = result == Autostart::Result::kStarted;
    }
    LookParts();
    timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
  autostart_->ReleaseLock();
  if (!connection_->open()) {
    CountSelf(SelfCounter::kConnectFailures);
    if (started) {
      TextBuffer<512> line;
      line.Add("the collector that was started does not answer at ").Add(autostart_->socket());
      line.Add("; recording nothing. Remedy: gpuprobe collect.");
      SayLine(line.view());
    }
    return false;
  }
  awaits_place_ = started;
  return true;
}

// The first process of a run says where it is, once the collector has said so.
void ProbeThread::SayPlace() noexcept {
  if (said_place_ || sender_.recording_to() == nullptr) return;
  said_place_ = true;
  const char* shown = autostart_->Shown(sender_.recording_to());
  TextBuffer<kLineBytes> line;
  line.Add("recording to ").Add(shown).Add("; read it with: gpuprobe report ").Add(shown);
  SayLine(line.view());
}

// Why nothing is recorded any more.
void ProbeThread::SayEnd() noexcept {
  const bool refused = sender_.refusal()[0] != '\0';
  if (!options_.verbose && !refused) return;
  TextBuffer<640> line;
  line.Add("the collector ").Add(refused ? "refused: " : "is gone; recording ended").Add(sender_.refusal());
  SayLine(line.view());
}

// A program that is over before the collector has answered: whoever started it waits, being its first
// process.
void ProbeThread::AwaitPlace() noexcept {
  const int64_t wait = ExitTimeLeftMs() < kPlaceWaitMs ? ExitTimeLeftMs() : kPlaceWaitMs;
  const int64_t deadline = MonotonicMs() + wait;
  for (;;) {
    sender_.ListenForFlush();
    SayPlace();
    if (!awaits_place_ || said_place_ || sender_.ended() || MonotonicMs() >= deadline) return;
    timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
}

// Nobody will read what is captured: let go of CUPTI, once the driver is up, and of everything else now.
void ProbeThread::GiveUp() noexcept {
  CloseLifecycle();
  while (session_->capturing() && !session_->driver_is_up() && !finishing()) {
    const uint32_t seen = wake_word.load(std::memory_order_acquire);
    if (session_->driver_is_up()) break;
    SleepUntil(MonotonicMs() + 60'000, seen);
  }
  if (!finishing()) session_->Stop();
  {
    const Lock lock(stream_->mutex);
    stream_->drain.Drain(UINT64_MAX);
  }
  CountLoss(wire::LossReason::kLossNotConnected, stream_->queue.Clear());
}

// --- the work
// --------------------------------------------------------------------------------------------------------------

void ProbeThread::Loop() noexcept {
  while (!finishing()) {
    const uint32_t seen = wake_word.load(std::memory_order_acquire);
    const int64_t next = MonotonicMs() + options_.flush_ms;
    TickParts();
    HoldBudget();
    session_->Tick();
    if (sender_.TakeUnfinished()) {
      session_->FlushUnfinished();
    } else {
      session_->Flush(false);
    }
    RefreshVersions();
    RefreshNcclIdentity(false);
    Collect(false);
    PumpUntil(next, seen);
    const bool flush_now = sender_.ListenForFlush();
    SayPlace();
    if (sender_.ended()) {
      SayEnd();
      GiveUp();
      return;
    }
    if (!flush_now) SleepUntil(next, seen);
  }
  FinishParts();
  HoldBudget();
  FinalFlush();
  RefreshVersions();
  RefreshNcclIdentity(true);
  Collect(true);
  CloseLifecycle();
  const int64_t left = ExitTimeLeftMs();
  const wire::ByeReason reason =
      flush_complete_ ? wire::ByeReason::kByeReasonExit : wire::ByeReason::kByeReasonExitIncomplete;
  sender_.SayBye(reason, stream_->builder.sequence(), left > 0 ? static_cast<int>(left) : 0);
  AwaitPlace();
  if (sender_.refusal()[0] != '\0') SayEnd();
  connection_->Close();
}

// Sends in slices, so that a collector that reads slowly does not keep the rings from being drained when one
// is half full.
void ProbeThread::PumpUntil(int64_t deadline_ms, uint32_t seen) noexcept {
  bool sent = false;
  while (!sent && !sender_.ended()) {
    const int64_t left = deadline_ms - MonotonicMs();
    sent = sender_.Pump(left < kPumpSliceMs ? static_cast<int>(left > 0 ? left : 0) : kPumpSliceMs);
    if (left <= 0 || finishing() || Called(&seen)) return;
  }
}

void ProbeThread::Collect(bool final) noexcept {
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  SetBackgroundCpuNs(static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(cpu.tv_nsec));
  const Lock lock(stream_->mutex);
  stream_->drain.Drain(final ? UINT64_MAX : NowNs() - kEventSettleNs);
  if (step_gate.in_use()) step_gate.TellSteps(final, &stream_->builder);
  if (final) stream_->drain.CloseOpenRanges(NowNs());
  const int64_t now_ms = MonotonicMs();
  if (stream_->builder.HasContent() || final || now_ms - sealed_ms_ >= kReportEveryMs) {
    stream_->drain.NoteHostState();
    stream_->builder.Seal();
    sealed_ms_ = now_ms;
  }
}

// The last flush may hang in a driver that is being torn down: it gets a thread of its own, which is left
// behind if it does.
void ProbeThread::FinalFlush() noexcept {
  const auto flush = [](void* self) noexcept -> void* {
    CurrentThread().guard_depth = 1;
    auto* thread = static_cast<ProbeThread*>(self);
    thread->session_->Tick();  // a short program may end before the first one
    thread->session_->Flush(false);
    if (thread->session_->pool().outstanding() != 0) thread->session_->Flush(true);
    SetAndWake(thread->final_flush_word_);
    return nullptr;
  };
  // What was parked before the capture ended is read all the same.
  if (!session_->capturing()) return session_->Tick();
  if (!session_->pool().ever_taken()) return;
  const int64_t deadline = MonotonicMs() + ExitTimeLeftMs() - kByeReserveMs;
  flush_complete_ = StartDetached(flush, this) && WaitForSet(final_flush_word_, deadline);
}

void ProbeThread::RefreshVersions() noexcept {
  if (!session_->driver_is_up()) return;
  const int32_t nccl = NcclVersion();
  if (versions_known_ && versions_.nccl == nccl && versions_.cuda_runtime != 0) return;
  VersionsRow now;
  now.cupti = session_->api().version;
  now.cupti_path = session_->api().path;
  now.nccl = nccl;
  now.cuda_driver =
      versions_known_ ? versions_.cuda_driver : AskVersion("libcuda.so.1", "cuDriverGetVersion");
  for (const char* runtime : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    if (now.cuda_runtime == 0) now.cuda_runtime = AskVersion(runtime, "cudaRuntimeGetVersion");
  }
  if (versions_known_ && now.nccl == versions_.nccl && now.cuda_runtime == versions_.cuda_runtime) return;
  versions_ = now;
  versions_known_ = true;
  const Lock lock(stream_->mutex);
  stream_->builder.DefineVersions(versions_);
}

// What the probe has cost decides how much of the device's work is recorded from now on.
void ProbeThread::HoldBudget() noexcept {
  const uint64_t now_ns = MonotonicNs();
  const uint64_t cost_ns = TotalHostCost().judged_ns * kHostCostSampling + session_->completion_ns();
  const wire::DetailLevel level = governor_.Judge(now_ns, cost_ns);
  session_->ComeBack(now_ns);
  if (level == wire::DetailLevel::kDetailLevelOff) {
    if (session_->capturing() && session_->driver_is_up()) session_->Stop();
    Transition(LifecycleState::kLive, LifecycleState::kYielded);
  } else {
    session_->SetDetail(level, now_ns);
  }
  SetDetailReport({static_cast<int32_t>(level), governor_.reductions(), governor_.reduced_ns(),
                   session_->yields(), session_->YieldedNs(now_ns)});
}

// Hello is sent before there is a communicator: what the communicators say comes later, and only if nothing
// else says who this is. A process may turn out to be several ranks: it is told when nothing has changed for
// a while, and at the end.
void ProbeThread::RefreshNcclIdentity(bool final) noexcept {
  int32_t rank = -1;
  int32_t world_size = 0;
  if (identity_->rank_source != wire::RankSource::kRankSourceNone || event_names.nccl_identity == nullptr ||
      !event_names.nccl_identity(&rank, &world_size) || world_size == nccl_world_size_) {
    nccl_seen_size_ = 0;
    return;
  }
  const int64_t now_ms = MonotonicMs();
  if (nccl_seen_size_ != world_size) {
    nccl_seen_size_ = world_size;
    nccl_seen_ms_ = now_ms;
  }
  if (!final && now_ms - nccl_seen_ms_ < kIdentitySettlesMs) return;
  nccl_world_size_ = world_size;
  const Lock lock(stream_->mutex);
  stream_->builder.DefineNcclIdentity(rank, world_size);
}

void ProbeThread::Finish() noexcept {
  if (InForkedChild() || finish_requested_.load(std::memory_order_relaxed)) return;
  const int64_t deadline = MonotonicMs() + options_.exit_wait_ms;
  finish_deadline_ms_.store(deadline, std::memory_order_relaxed);
  finish_requested_.store(true, std::memory_order_release);
  WakeProbeThread();
  WaitForSet(done_word_, deadline);
  CloseLifecycle();
}

}  // namespace gpuprobe::injector
