// Sends frames from the queue to the collector, and reads the collector's few replies.
//
// Batches are kept until the collector acknowledges them. When it dies, the sender is `broken()` until its
// owner has connected again and calls Greet:
//
//   probe:     Hello(instance, first_sequence 31)          batches from 31 on are kept
//   collector: Welcome(last_sequence 33)                   31 to 33 were written before the other one died
//   probe:     restated definitions, batch 34, 35, ...     nothing twice, nothing missing
//   collector: acknowledged 35
//
// A collector that sends no Welcome never acknowledges; then batches are dropped once they are sent.
//
// Thread: the probe's own. Allocation: none. Failure: if the collector refuses us or exits cleanly, sending
// ends for good; queued batches are dropped and counted as LOSS_NOT_CONNECTED.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "injector/base/text.h"
#include "injector/core/identity.h"
#include "injector/probe/capture_order.h"
#include "injector/rows/definition_history.h"
#include "injector/rows/frames.h"
#include "injector/send/connection.h"
#include "injector/send/send_queue.h"

namespace gpuprobe::injector {

class Sender {
 public:
  // A collector that has not answered Hello after this time will not acknowledge anything.
  static constexpr int64_t kWelcomeWaitMs = 5000;
  // The same after a reconnection, where nothing can be sent before it answers.
  static constexpr int64_t kWelcomeBackWaitMs = 2000;

  // `history` may be null: then nothing is restated.
  Sender(SendQueue* queue, Connection* connection, DefinitionHistory* history = nullptr) noexcept
      : queue_(queue), connection_(connection), history_(history) {}

  // Queues Hello, which goes before everything else. Call for every new connection.
  bool Greet(const Identity& identity, const HelloFacts& facts) noexcept;

  // Sends as much of Hello as the socket takes at once. For the starting thread: takes no lock.
  void SendGreeting() noexcept;

  // Sends what waits, for at most `milliseconds`; 0: what the socket takes at once. True when nothing waits
  // any more.
  bool Pump(int milliseconds) noexcept;

  // Sends Bye behind what waits. True when it went out in time.
  bool SayBye(const ByeFacts& facts, int milliseconds) noexcept;
  // After Bye: waits until the collector has everything on disk. False when it says nothing for `silence_ms`,
  // when the time is over, or when the connection broke.
  bool AwaitComplete(int milliseconds, int silence_ms) noexcept;

  // Reads the collector's replies. True when it requests all complete records now.
  bool ListenForFlush() noexcept;
  // Whether, since the last call, the collector requested records that are held back by work that still runs.
  bool TakeUnfinished() noexcept {
    const bool asked = unfinished_;
    unfinished_ = false;
    return asked;
  }

  // The run's directory, once the collector has asked us to report it to the user; null before.
  const char* recording_to() const noexcept {
    return recording_to_.empty() ? nullptr : recording_to_.c_str();
  }

  // The collector asks us to end recording, while the process goes on.
  bool asked_to_detach() const noexcept { return asked_to_detach_; }
  // The collector's last order of a capture, once. False: there is none.
  bool TakeOrder(CaptureOrder* order) noexcept {
    *order = order_;
    order_ = {};
    return order->id != 0;
  }
  bool ended() const noexcept { return ended_; }
  // The collector is gone without an announcement: connect again and call Greet.
  bool broken() const noexcept { return broken_; }
  // The collector answered the last Hello.
  bool welcomed() const noexcept { return welcomed_; }
  // The collector's reason for refusing us, else empty.
  const char* refusal() const noexcept { return refusal_.c_str(); }
  // Where the collector records, as reported by it; empty: not reported.
  const char* run_directory() const noexcept { return run_directory_.c_str(); }

 private:
  enum class Step { kSent, kAgain, kBroken, kIdle, kMustWait };
  Step SendNext() noexcept;
  Step SendSome(const char* data, size_t size, size_t* offset) noexcept;
  bool MaySendBatches() noexcept;
  bool IsSilentFor(int64_t milliseconds) const noexcept;
  void Break() noexcept;
  void End() noexcept;
  bool TakeControl(const uint8_t* data, size_t size) noexcept;
  void TakeWelcome(const uint8_t* data, size_t size) noexcept;
  void TakeCapture(const uint8_t* data, size_t size) noexcept;

  SendQueue* queue_;
  Connection* connection_;
  DefinitionHistory* history_;
  bool ended_ = false;
  bool broken_ = false;
  bool unfinished_ = false;
  bool first_ = true;  // no connection was lost
  bool welcomed_ = false;
  bool keeps_nothing_ = false;  // the collector does not acknowledge
  bool complete_ = false;
  bool said_ended_ = false;
  bool asked_to_detach_ = false;
  CaptureOrder order_;              // id 0: none
  bool lacks_definitions_ = false;  // the collector does not know us, and they cannot be restated
  int64_t greeted_ms_ = 0;
  int64_t heard_ms_ = 0;
  char words_[12288];  // Hello, later Bye
  size_t words_size_ = 0;
  size_t words_sent_ = 0;
  size_t frame_sent_ = 0;           // of the queue's front
  const char* restated_ = nullptr;  // after a reconnection, goes before the batches
  size_t restated_size_ = 0;
  size_t restated_sent_ = 0;
  uint8_t heard_[4096];
  size_t heard_size_ = 0;
  TextBuffer<512> refusal_;
  TextBuffer<2049> run_directory_;
  TextBuffer<PATH_MAX> recording_to_;
};

}  // namespace gpuprobe::injector
