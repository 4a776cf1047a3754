// The probe's own thread: it collects, encodes and sends while the program computes, and sends Bye when the
// program ends.
//
// It calls the capture parts, the CUPTI session, drain, builder, sender and autostart in turn, and samples
// the program's threads while it waits. Thread: Start on the starting thread, Finish on the one that calls
// exit(), everything else on itself; all signals are blocked there, and the guard keeps its own CUDA
// callbacks out. Allocation: its stack. Failure: without a collector it closes the probe and ends.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "injector/capture/cupti/session.h"
#include "injector/core/governor.h"
#include "injector/core/identity.h"
#include "injector/ledgers/stream.h"
#include "injector/probe/on_demand.h"
#include "injector/probe/sender.h"
#include "injector/sampling/host_sampler.h"
#include "injector/send/autostart.h"
#include "injector/send/connection.h"

namespace gpuprobe::injector {

class ProbeThread {
 public:
  struct Options {
    int flush_ms = 500;
    int exit_wait_ms = 2000;
    bool exit_wait_is_set = false;  // by the user
    int connect_wait_ms = 10000;    // for a collector that was started
    bool verbose = false;
    uint32_t budget_percent = 0;  // 0: no limit
    bool samples_host = true;
  };

  // All of these outlive the thread. `connection` may be open already; otherwise `autostart` was prepared.
  ProbeThread(Stream* stream, CuptiSession* session, Connection* connection, Autostart* autostart,
              const SocketPlaces* places, const Identity* identity) noexcept
      : stream_(stream),
        session_(session),
        connection_(connection),
        autostart_(autostart),
        places_(places),
        identity_(identity),
        on_demand_(session, stream),
        sampler_(getpid(), stream),
        sender_(&stream->queue, connection, &stream->builder.history()) {}

  // False when the process cannot have another thread.
  [[nodiscard]] bool Start(const Options& options, const HelloFacts& facts) noexcept;

  // What ends the recording.
  enum class End {
    kExit,    // of the process
    kFilter,  // a system-call filter that would kill the process for our calls; the process continues
  };
  // Waits until the last records are sent, at most exit_wait_ms; never joins. Once.
  void Finish(End end) noexcept;
  bool finish_requested() const noexcept { return finish_requested_.load(std::memory_order_acquire); }

 private:
  static void* Main(void* self) noexcept;
  void Run() noexcept;
  bool Connect() noexcept;
  bool ConnectToStarted() noexcept;
  bool MayStillConnect() noexcept;
  void AwaitRing() noexcept;
  void TakeRing() noexcept;
  void Loop() noexcept;
  void SayGoodbye() noexcept;
  void LeaveSandbox() noexcept;
  void PrepareToDetach() noexcept;
  bool IsAttached() const noexcept { return facts_.loaded_by == wire::LoadedBy::kLoadedByAttach; }
  bool TryAgain() noexcept;
  void StartAnother() noexcept;
  void RestUntil(int64_t deadline_ms, uint32_t seen) noexcept;
  void Sample() noexcept;
  void Flush() noexcept;
  void Collect(bool final) noexcept;
  void FinalFlush() noexcept;
  void RefreshVersions() noexcept;
  void RefreshNcclIdentity(bool final) noexcept;
  void HoldBudget() noexcept;
  uint64_t CuptiNs() noexcept;
  void GiveUp() noexcept;
  void SayPlace() noexcept;
  void SayEnd() noexcept;
  void AwaitPlace() noexcept;
  bool Called(uint32_t* seen) noexcept;
  void SleepUntil(int64_t deadline_ms, uint32_t seen) noexcept;
  void PumpUntil(int64_t deadline_ms, uint32_t seen) noexcept;
  bool finishing() const noexcept { return finish_requested(); }
  int64_t ExitTimeLeftMs() noexcept;

  Stream* stream_;
  CuptiSession* session_;
  Connection* connection_;
  Autostart* autostart_;
  const SocketPlaces* places_;
  const Identity* identity_;
  OnDemand on_demand_;
  HostSampler sampler_;
  Sender sender_;
  Options options_;
  HelloFacts facts_;
  VersionsRow versions_;
  bool versions_known_ = false;
  int64_t sealed_ms_ = 0;
  Governor governor_;
  uint64_t launches_then_ = 0;     // when the budget was looked at last
  bool kernels_recorded_ = false;  // until then
  uint64_t cupti_ns_ = 0;
  int32_t nccl_world_size_ = 0;  // reported last
  int32_t nccl_seen_size_ = 0;   // waits to be reported
  int64_t nccl_seen_ms_ = 0;     // since when
  bool awaits_place_ = false;    // this process started the collector
  bool said_place_ = false;
  bool flush_complete_ = true;
  bool detaches_ = false;    // recording ends, and the process goes on
  bool greeted_ = false;     // Hello went out, or waits, on a connection that was open at the start
  int64_t next_try_ms_ = 0;  // to reach a collector after the one that died
  int64_t backoff_ms_ = 0;   // 0: the connection has not been missed yet
  int starts_ = 0;           // of collectors in the place of one that died

  std::atomic<bool> finish_requested_{false};
  std::atomic<bool> for_filter_{false};
  int64_t finish_deadline_ms_ = 0;             // set by the thread itself
  std::atomic<uint32_t> done_word_{0};         // 1: the thread has ended its work (futex)
  std::atomic<uint32_t> final_flush_word_{0};  // 1: the helper's flush came back (futex)
};

}  // namespace gpuprobe::injector
