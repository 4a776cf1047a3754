#include "injector/probe/probe_thread.h"

#include <dlfcn.h>
#include <unistd.h>

#include <ctime>

#include "injector/base/futex.h"
#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/base/losses.h"
#include "injector/core/event_names.h"
#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/guard.h"
#include "injector/core/own_thread.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/standard_error.h"
#include "injector/core/step_gate.h"
#include "injector/probe/parts.h"
#include "proto/cupti_cost.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kLineBytes = size_t{2} * PATH_MAX;
constexpr uint64_t kEventSettleNs =
    1'000'000;  // an event is published at most about this long after its clock was read
// Counters and the host's state go out this often although there is nothing else to say: a collector takes a
// silence of 10 s for a process that is stopped.
constexpr int64_t kReportEveryMs = 2000;
constexpr int64_t kIdentitySettlesMs = 5000;
constexpr int kRingWaitMs = 100;  // longest wait for the flight recorder's ring at the start
constexpr int kRingSliceMs = 10;
constexpr int kPumpSliceMs = 20;       // longest wait for the socket before the rings are looked at again
constexpr int kExitConnectMs = 200;    // longest wait at exit for a collector that is not there
constexpr int64_t kPlaceWaitMs = 300;  // at exit, for the collector to say where it records
constexpr int kByeReserveMs = 300;     // of the exit wait, kept for sending when CUPTI's flush hangs
// After the collector has died: between two looks for another one.
constexpr int64_t kFirstBackoffMs = 100;
constexpr int64_t kLongestBackoffMs = 2000;
constexpr int64_t kDetachSettleMs = 500;
constexpr int64_t kDetachSliceMs = 50;
constexpr int64_t kDetachSendMs = 8000;  // the program goes on meanwhile; the collector waits 10 s
constexpr int kMaxStarts = 3;            // of collectors by this process, in the place of one that died
// Longest waits at exit, for a collector that is gone and for one that stays silent.
constexpr int64_t kExitReconnectMs = 200;
constexpr int kExitSilenceMs = 500;
// Longest waits for our threads to be gone: once the work is done, and before a filter that may kill the
// process.
constexpr int kThreadEndMs = 500;
constexpr int kFilterWaitMs = 10'000;

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
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

// Here, on a thread of our own, a line is written at once.
void Say(std::string_view text) noexcept {
  SayLine(text);
  WriteLines();
}

}  // namespace

bool ProbeThread::Start(const Options& options, const HelloFacts& facts) noexcept {
  options_ = options;
  facts_ = facts;
  facts_.instance = NowNs() | 1;
  // What a capture costs was asked for, and has a limit of its own.
  governor_.Init(step_gate.on_demand() ? 0 : options.budget_percent,
                 recording.kinds & kRecordGraphsWhole ? wire::DetailLevel::kDetailLevelGraphs
                                                      : wire::DetailLevel::kDetailLevelFull);
  // If a collector is there, Hello is sent before the program continues: a process that dies within a
  // millisecond is then reported as cut off, instead of never seen. The socket does not block.
  if (options.samples_host) sampler_.Enable();
  greeted_ = connection_->open() && sender_.Greet(*identity_, facts_);
  if (greeted_) sender_.SendGreeting();
  return StartOwnThread(Main, this);
}

void* ProbeThread::Main(void* self) noexcept {
  BecomeOwnThread();
  auto* thread = static_cast<ProbeThread*>(self);
  thread->Run();
  SetAndWake(thread->done_word_);
  return nullptr;
}

void ProbeThread::Run() noexcept {
  WriteLines();
  if (!Connect()) {
    GiveUp();
    return;
  }
  Loop();
}

int64_t ProbeThread::ExitTimeLeftMs() noexcept {
  if (!finishing()) return INT64_MAX;
  const int64_t now_ms = MonotonicMs();
  if (finish_deadline_ms_ == 0) finish_deadline_ms_ = now_ms + options_.exit_wait_ms;
  return finish_deadline_ms_ - now_ms;
}

// True when a flush was requested since the wake word was `seen`. A request to look at new objects is handled
// here, and updates it.
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
    Sample();
    const int64_t left = deadline_ms - MonotonicMs();
    if (left <= 0) return;
    FutexWait(wake_word, seen, on_demand_.IsParked() ? left : sampler_.RestMs(left));
  }
}

// --- the collector
// ---------------------------------------------------------------------------------------------------------

bool ProbeThread::Connect() noexcept {
  if (sender_.ended()) return false;
  if (connection_->open()) return greeted_;
  return ConnectToStarted() && sender_.Greet(*identity_, facts_);
}

// A program that ends is not kept for a collector that has not even come up, unless the user asked for that.
bool ProbeThread::MayStillConnect() noexcept {
  if (!finishing()) return true;
  const int64_t left = ExitTimeLeftMs();
  return left > kByeReserveMs && (options_.exit_wait_is_set || options_.exit_wait_ms - left < kExitConnectMs);
}

bool ProbeThread::ConnectToStarted() noexcept {
  const int64_t deadline = MonotonicMs() + options_.connect_wait_ms;
  bool started = false;
  while (MonotonicMs() < deadline && MayStillConnect()) {
    // The lock's holder looks once more before it starts a collector: the one started by the previous holder
    // may just have come up.
    if (connection_->TryPlaces(*places_) >= 0) break;
    if (!started && autostart_->prepared()) {
      const Autostart::Result result = autostart_->TryStart();
      if (result == Autostart::Result::kFailed) {
        TextBuffer<512> line;
        line.Add("no collector answers, and none could be started (").Add(autostart_->problem());
        line.Add("); nothing is recorded. Start gpuprobe collect, or set GPUPROBE_AUTOSTART=0.");
        Say(line.view());
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
      line.Add("the autostarted collector does not answer at ").Add(autostart_->socket());
      line.Add("; nothing is recorded. Start gpuprobe collect.");
      Say(line.view());
    }
    return false;
  }
  awaits_place_ = started;
  return true;
}

// The first process of a run prints where the run is recorded, once the collector has reported it.
void ProbeThread::SayPlace() noexcept {
  if (said_place_ || sender_.recording_to() == nullptr) return;
  said_place_ = true;
  const char* shown = autostart_->Shown(sender_.recording_to());
  TextBuffer<kLineBytes> line;
  line.Add("recording to ").Add(shown).Add("; read it with: gpuprobe report ").Add(shown);
  Say(line.view());
}

// Prints why recording has ended.
void ProbeThread::SayEnd() noexcept {
  const bool refused = sender_.refusal()[0] != '\0';
  if (!options_.verbose && !refused) return;
  TextBuffer<640> line;
  line.Add(refused ? "the collector refused: " : "lost the collector; recording stopped")
      .Add(sender_.refusal());
  Say(line.view());
}

// The program may end before the collector has answered; its first process, which started the collector,
// waits for the answer.
void ProbeThread::AwaitPlace() noexcept {
  const int64_t wait = ExitTimeLeftMs() < kPlaceWaitMs ? ExitTimeLeftMs() : kPlaceWaitMs;
  const int64_t deadline = MonotonicMs() + wait;
  for (;;) {
    sender_.ListenForFlush();
    SayPlace();
    if (!awaits_place_ || said_place_ || sender_.ended() || sender_.broken() || MonotonicMs() >= deadline)
      return;
    timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
}

// No collector will read the records: releases CUPTI, once the driver is up, and everything else now.
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

// The flight recorder's ring comes behind Welcome. It is waited for, so that a process that is killed within
// its first half second leaves its last moments, too.
void ProbeThread::AwaitRing() noexcept {
  const int64_t until = MonotonicMs() + kRingWaitMs;
  while (!finishing() && !sender_.welcomed() && !sender_.ended() && !sender_.broken() &&
         MonotonicMs() < until) {
    sender_.Pump(kPumpSliceMs);
    connection_->WaitReadable(kRingSliceMs);
    sender_.ListenForFlush();
  }
  TakeRing();
}

void ProbeThread::TakeRing() noexcept {
  if (!connection_->passed().open()) return;
  RecordReading();
  AdoptRing(connection_->passed());
}

void ProbeThread::Loop() noexcept {
  AwaitRing();
  while (!finishing()) {
    const uint32_t seen = wake_word.load(std::memory_order_acquire);
    const int64_t next = MonotonicMs() + on_demand_.PeriodMs(options_.flush_ms);
    TickParts();
    HoldBudget();
    session_->Tick();
    on_demand_.Tick();
    Flush();
    RefreshVersions();
    RefreshNcclIdentity(false);
    Collect(false);
    if (sender_.broken() && IsAttached()) return GiveUp();  // nobody follows a collector that attached
    if (sender_.broken()) TryAgain();
    PumpUntil(next, seen);
    const bool flush_now = sender_.ListenForFlush();
    TakeRing();
    SayPlace();
    if (sender_.ended()) {
      SayEnd();
      GiveUp();
      return;
    }
    CaptureOrder order;
    const bool ordered = sender_.TakeOrder(&order);
    if (ordered) on_demand_.Obey(order);
    if (sender_.asked_to_detach()) {
      PrepareToDetach();
    } else if (!flush_now && !ordered) {
      RestUntil(next, seen);
    }
  }
  ExitTimeLeftMs();  // begins to count
  FinishParts();
  HoldBudget();
  FinalFlush();
  if (detaches_) session_->Stop();
  RefreshVersions();
  RefreshNcclIdentity(true);
  Collect(true);
  CloseLifecycle();
  if (for_filter_.load(std::memory_order_relaxed)) return LeaveSandbox();
  SayGoodbye();
  AwaitPlace();
  if (sender_.refusal()[0] != '\0') SayEnd();
  autostart_->ReleaseLock();
  connection_->Close();
}

// What is launched from now on is not recorded. What was launched before gets the time of a flush to finish:
// switching kinds off loses what runs at that moment.
void ProbeThread::PrepareToDetach() noexcept {
  recorded_until_ns.store(NowNs(), std::memory_order_relaxed);
  const int64_t until = MonotonicMs() + kDetachSettleMs;
  while (!finishing() && MonotonicMs() < until) {
    const uint32_t seen = wake_word.load(std::memory_order_acquire);
    session_->Flush(false);
    Collect(false);
    const int64_t next = MonotonicMs() + kDetachSliceMs;
    SleepUntil(next < until ? next : until, seen);
  }
  if (finishing()) return;  // the process exits
  detaches_ = true;
  finish_deadline_ms_ = MonotonicMs() + kDetachSendMs;
  // From here on an exit of the process does not wait for us.
  finish_requested_.store(true, std::memory_order_release);
}

// The process goes on without us: no Bye, so that the report says that the rest is missing.
void ProbeThread::LeaveSandbox() noexcept {
  Say("the program installs a system-call filter (seccomp) that may kill it; recording ends here. "
      "GPUPROBE_IN_SANDBOX=1 goes on.");
  const int64_t left = ExitTimeLeftMs();
  sender_.Pump(left > 0 ? static_cast<int>(left) : 0);
  session_->Stop();
  autostart_->ReleaseLock();
  connection_->Close();
}

// The collector must have everything before the process is gone: its end may be the collector's, too.
void ProbeThread::SayGoodbye() noexcept {
  const ByeFacts facts{.reason = detaches_         ? wire::ByeReason::kByeReasonDetached
                                 : flush_complete_ ? wire::ByeReason::kByeReasonExit
                                                   : wire::ByeReason::kByeReasonExitIncomplete,
                       .batches = stream_->builder.sequence(),
                       .records = stream_->builder.records_sealed(),
                       .ends_collector = getpid() == 1};
  int64_t give_up_ms = MonotonicMs() + kExitReconnectMs;
  while (!sender_.ended()) {
    const auto left = static_cast<int>(ExitTimeLeftMs());
    if (left <= 0) return;
    if (sender_.broken()) {
      if (MonotonicMs() >= give_up_ms) return;
      next_try_ms_ = 0;
      if (!TryAgain()) {
        timespec pause{0, 10'000'000};
        nanosleep(&pause, nullptr);
      }
      continue;
    }
    const bool said = sender_.SayBye(facts, left);
    if (said) {
      // A collector that has not even answered Hello is gone, or finds everything in the socket.
      const int silence = facts.ends_collector ? left
                          : sender_.welcomed() ? kExitSilenceMs
                                               : static_cast<int>(kExitReconnectMs);
      if (sender_.AwaitComplete(static_cast<int>(ExitTimeLeftMs()), silence)) return;
    }
    if (!sender_.broken()) return;
    give_up_ms = MonotonicMs() + kExitReconnectMs;
  }
}

// Looks for the collector that has come after one that died. True when the connection is there.
bool ProbeThread::TryAgain() noexcept {
  const int64_t now_ms = MonotonicMs();
  if (now_ms < next_try_ms_) return false;
  if (sender_.run_directory()[0] == '/') {
    facts_.wanted_directory = sender_.run_directory();
    facts_.resumes = true;
  }
  if (connection_->TryPlaces(*places_) >= 0 && sender_.Greet(*identity_, facts_)) {
    autostart_->ReleaseLock();
    next_try_ms_ = now_ms + kFirstBackoffMs;  // if it breaks at once
    backoff_ms_ = 0;
    return true;
  }
  if (backoff_ms_ > 0 && !finishing()) StartAnother();
  backoff_ms_ = backoff_ms_ == 0                      ? kFirstBackoffMs
                : 2 * backoff_ms_ < kLongestBackoffMs ? 2 * backoff_ms_
                                                      : kLongestBackoffMs;
  next_try_ms_ = now_ms + backoff_ms_;
  if (backoff_ms_ == kLongestBackoffMs) autostart_->ReleaseLock();
  return false;
}

// Only where one was started before, and at most kMaxStarts times: a collector that keeps dying has a reason
// to.
void ProbeThread::StartAnother() noexcept {
  if (!autostart_->prepared() || starts_ >= kMaxStarts) return;
  const Autostart::Result result = autostart_->TryStart();
  if (result != Autostart::Result::kByAnother) ++starts_;
  if (result == Autostart::Result::kStarted) backoff_ms_ = 0;  // it will listen soon
}

// As SleepUntil, and looks for a collector when it is time for that.
void ProbeThread::RestUntil(int64_t deadline_ms, uint32_t seen) noexcept {
  while (sender_.broken() && next_try_ms_ < deadline_ms) {
    SleepUntil(next_try_ms_, seen);
    if (finishing() || AsksForFlush(wake_word.load(std::memory_order_acquire), seen) || TryAgain()) return;
  }
  SleepUntil(deadline_ms, seen);
}

// Sends in slices, so that a collector that reads slowly does not keep the rings from being drained when one
// fills up.
void ProbeThread::PumpUntil(int64_t deadline_ms, uint32_t seen) noexcept {
  bool sent = false;
  while (!sent && !sender_.ended() && !sender_.broken()) {
    const int64_t left = deadline_ms - MonotonicMs();
    sent = sender_.Pump(left < kPumpSliceMs ? static_cast<int>(left > 0 ? left : 0) : kPumpSliceMs);
    if (left <= 0 || finishing() || Called(&seen)) return;
    Sample();
  }
}

// What launching threads are in explains gaps in what is recorded.
void ProbeThread::Sample() noexcept {
  if (!on_demand_.IsParked()) sampler_.Tick(finish_requested_);
}

void ProbeThread::Flush() noexcept {
  if (sender_.TakeUnfinished()) return session_->FlushUnfinished();
  if (on_demand_.IsParked() && session_->has_devices() && session_->pool().outstanding() == 0) return;
  session_->Flush(false);
}

void ProbeThread::Collect(bool final) noexcept {
  timespec cpu{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  RecordReading();
  SetBackgroundCpuNs(static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(cpu.tv_nsec));
  const Lock lock(stream_->mutex);
  stream_->drain.Drain(final ? UINT64_MAX : NowNs() - kEventSettleNs);
  if (step_gate.in_use() && (final || !on_demand_.MustKeepSteps()))
    step_gate.ReportSteps(
        final || on_demand_.IsParked(),
        [](void* builder, const wire::RecordedStepRow& step) noexcept {
          static_cast<BatchBuilder*>(builder)->Add(step);
        },
        &stream_->builder);
  if (final) stream_->drain.CloseOpenRanges(NowNs());
  const int64_t now_ms = MonotonicMs();
  if (stream_->builder.HasContent() || final || now_ms - sealed_ms_ >= kReportEveryMs) {
    stream_->drain.NoteHostState();
    stream_->builder.Seal();
    sealed_ms_ = now_ms;
  }
}

// The last flush may hang in a driver that is being torn down, so it runs on its own thread, which is
// abandoned if it does.
void ProbeThread::FinalFlush() noexcept {
  const auto flush = [](void* self) noexcept -> void* {
    BecomeOwnThread();
    auto* thread = static_cast<ProbeThread*>(self);
    thread->session_->Tick();  // a short program may end before the first one
    thread->session_->Flush(false);
    thread->session_->Tick();  // may ask for devices
    const bool forced = !thread->detaches_ && thread->session_->pool().outstanding() != 0;
    if (forced) thread->session_->Flush(true);
    SetAndWake(thread->final_flush_word_);
    return nullptr;
  };
  // What was parked before the capture ended is read all the same.
  if (!session_->capturing()) return session_->Tick();
  if (!session_->pool().ever_taken()) return;
  flush_complete_ =
      StartOwnThread(flush, this) && WaitForSet(final_flush_word_, ExitTimeLeftMs() - kByeReserveMs);
}

void ProbeThread::RefreshVersions() noexcept {
  if (!session_->driver_is_up()) return;
  const int32_t nccl = NcclVersion();
  const uint32_t precautions = session_->felt_precautions();
  const bool same = versions_known_ && versions_.nccl == nccl && versions_.cupti_precautions == precautions;
  if (same && versions_.cuda_runtime != 0) return;
  VersionsRow now;
  now.cupti = session_->api().version;
  now.cupti_path = session_->api().path;
  now.cupti_precautions = precautions;
  now.nccl = nccl;
  now.cuda_driver =
      versions_known_ ? versions_.cuda_driver : AskVersion("libcuda.so.1", "cuDriverGetVersion");
  for (const char* runtime : {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}) {
    if (now.cuda_runtime == 0) now.cuda_runtime = AskVersion(runtime, "cudaRuntimeGetVersion");
  }
  if (same && now.cuda_runtime == versions_.cuda_runtime) return;
  versions_ = now;
  versions_known_ = true;
  const Lock lock(stream_->mutex);
  stream_->builder.DefineVersions(versions_);
}

// The least that CUPTI is estimated to have added to launches whose kernels it recorded. Called before detail
// changes: the launches since the last time were drained after it, and were made before.
uint64_t ProbeThread::CuptiNs() noexcept {
  const uint64_t launches = SelfCount(SelfCounter::kLaunches);
  if (kernels_recorded_) cupti_ns_ += cupti::kLaunchLeastNs * (launches - launches_then_);
  launches_then_ = launches;
  kernels_recorded_ = session_->records_kernels();
  return cupti_ns_;
}

// Ends recording if the probe has cost too much for a while. What began before that is recorded whole, so
// kinds are switched off one look later: CUPTI loses what runs at that moment.
void ProbeThread::HoldBudget() noexcept {
  const uint64_t now_ns = MonotonicNs();
  const uint64_t cost_ns = TotalHostCost().budgeted_ns() + session_->completion_ns() + CuptiNs();
  const wire::DetailLevel level = governor_.Judge(now_ns, cost_ns);
  if (level == wire::DetailLevel::kDetailLevelOff) {
    if (session_->capturing() && session_->driver_is_up()) session_->Stop();
    Transition(LifecycleState::kLive, LifecycleState::kYielded);
  } else if (level == wire::DetailLevel::kDetailLevelCallbacks) {
    if (recorded_until_ns.load(std::memory_order_relaxed) != UINT64_MAX) {
      session_->StopKinds();
    } else {
      recorded_until_ns.store(NowNs(), std::memory_order_relaxed);
    }
  }
  const uint64_t yielded_ns = session_->yielded_ns();
  SetDetailReport({static_cast<int32_t>(level), governor_.reductions(), governor_.reduced_ns(),
                   yielded_ns != 0 ? uint64_t{1} : uint64_t{0}, yielded_ns});
}

// Hello is sent before any communicator exists, so the identity that communicators imply is reported later,
// and only if nothing else gives the rank. A process may turn out to be several ranks, so we wait until
// nothing has changed for a while, or for the end.
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

void ProbeThread::Finish(End end) noexcept {
  if (InForkedChild() || finish_requested_.load(std::memory_order_relaxed)) return;
  for_filter_.store(end == End::kFilter, std::memory_order_relaxed);
  finish_requested_.store(true, std::memory_order_release);
  WakeProbeThread();
  const bool done = WaitForSet(done_word_, options_.exit_wait_ms);
  // Leak checkers that run after the exit handlers read every thread's memory, and LeakSanitizer fails over a
  // thread that is just freeing its own. A filter would end the process for what a thread does last.
  if (end == End::kFilter) {
    AwaitOwnThreadsEnd(kFilterWaitMs);
  } else if (done && flush_complete_) {
    AwaitOwnThreadsEnd(kThreadEndMs);
  }
  CloseLifecycle();
}

}  // namespace gpuprobe::injector
