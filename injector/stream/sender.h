// Frames from the queue to the collector, and the collector's few words back.
//
// Separate from the thread that calls it, so that a test can drive it against a socket pair. Thread: the
// probe's own. Allocation: none. Failure: when the collector is gone or refuses us, sending ends for good;
// what waits is dropped and counted as LOSS_NOT_CONNECTED.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/identity.h"
#include "injector/stream/connection.h"
#include "injector/stream/frames.h"
#include "injector/stream/send_queue.h"
#include "injector/stream/text.h"

namespace gpuprobe::injector {

class Sender {
 public:
  Sender(SendQueue* queue, Connection* connection) noexcept : queue_(queue), connection_(connection) {}

  // Queues Hello, which goes before everything else. Once, when the connection is there.
  bool Greet(const Identity& identity, const HelloFacts& facts) noexcept;

  // Sends of Hello what the socket takes at once. For the starting thread: takes no lock.
  void SendGreeting() noexcept;

  // Sends what waits, for at most `milliseconds`; 0: what the socket takes at once. True when nothing waits
  // any more.
  bool Pump(int milliseconds) noexcept;

  // Sends Bye behind what waits. True when it went out in time.
  bool SayBye(wire::ByeReason reason, uint64_t batches, int milliseconds) noexcept;

  // Reads what the collector said. True when it asks for everything that is complete now.
  bool ListenForFlush() noexcept;
  // Since the last call it asked for what is held back because of something that still runs.
  bool TakeUnfinished() noexcept {
    const bool asked = unfinished_;
    unfinished_ = false;
    return asked;
  }

  bool ended() const noexcept { return ended_; }
  // What the collector said when it refused us, else empty.
  const char* refusal() const noexcept { return refusal_.c_str(); }

 private:
  enum class Step { kSent, kAgain, kEnded };
  Step SendSome(const char* data, size_t size, size_t* offset) noexcept;
  void End() noexcept;
  bool TakeControl(const uint8_t* data, size_t size) noexcept;

  SendQueue* queue_;
  Connection* connection_;
  bool ended_ = false;
  bool unfinished_ = false;
  char words_[12288];  // Hello, later Bye
  size_t words_size_ = 0;
  size_t words_sent_ = 0;
  size_t frame_sent_ = 0;  // of the queue's first frame
  uint8_t heard_[4096];
  size_t heard_size_ = 0;
  TextBuffer<512> refusal_;
};

}  // namespace gpuprobe::injector
