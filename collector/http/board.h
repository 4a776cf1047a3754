// Passes snapshots from the collector's thread to the threads that serve them.
//
// The collector's thread never waits here: it takes a lock that is held for the copy of a pointer. Readers
// wait for the next snapshot, each for as long as it wants. Without viewers no documents are made.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collector/http/snapshots.h"

namespace gpuprobe::http {

class Board {
 public:
  using Clock = std::chrono::steady_clock;
  // Documents are kept up to date for this long after the last request.
  static constexpr std::chrono::seconds kInterest{10};
  // Without a moment for this long the collector is stuck.
  static constexpr std::chrono::seconds kStuck{10};

  // Steps that viewers asked for: each is read from the logs anew with every set of documents.
  static constexpr size_t kMostWanted = 4;

  // What a viewer has seen.
  struct Seen {
    uint64_t moment = 0;
    uint64_t documents = 0;
    bool ended = false;
  };
  struct News {
    std::shared_ptr<const Moment> moment;        // null: no newer one
    std::shared_ptr<const Documents> documents;  // likewise
    bool ended = false;                          // the run is over: nothing more comes
    bool closed = false;                         // the server is shutting down
  };

  // -- of the collector's thread
  void Put(std::shared_ptr<const Moment> moment);
  // Also of the thread that makes documents. Ignores documents that are older than those there are.
  void Put(std::shared_ptr<const Documents> documents);
  // The run is over, or was from the start; the last snapshots stay.
  void End();
  // The last steps that viewers asked a timeline for, at most kMostWanted.
  std::vector<uint64_t> wanted_steps() const;
  // Whether the documents were made before one of them was asked for.
  bool LacksWantedStep() const;
  // Whether documents are wanted: a viewer watches, or asked within kInterest.
  bool WantsDocuments() const;

  // -- of the threads that serve
  // Null before the first.
  std::shared_ptr<const Moment> moment() const;
  // As they are; null before the first.
  std::shared_ptr<const Documents> documents() const;
  // Asks for documents and waits up to `patience` for some that are not older than the moment. If there are
  // viewers already, the current ones are new enough. Null: there are none yet.
  std::shared_ptr<const Documents> FreshDocuments(std::chrono::milliseconds patience);
  // Asks for the timeline of a step, and waits up to `patience` for documents that were made with it. Null:
  // there are none yet.
  std::shared_ptr<const Documents> DocumentsWith(uint64_t step, std::chrono::milliseconds patience);
  // Waits up to `patience` for something that is not in `seen`, and notes it there.
  News Await(Seen& seen, std::chrono::milliseconds patience);
  bool ended() const;
  // The collector's thread shows signs of life, or has ended in order.
  bool IsAlive() const;

  // Who watches.
  void Enter();
  void Leave();
  size_t viewers() const;
  // Wakes all waiting threads; from now on Await returns at once.
  void Close();

 private:
  bool IsFresh() const;
  bool Has(uint64_t step) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Moment> moment_;
  std::shared_ptr<const Documents> documents_;
  std::vector<uint64_t> wanted_steps_;  // the newest last
  Clock::time_point moment_at_ = Clock::now();
  Clock::time_point asked_at_;
  bool asked_ = false;
  bool ended_ = false;
  bool closed_ = false;
  size_t viewers_ = 0;
};

}  // namespace gpuprobe::http
