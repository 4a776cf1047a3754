// How completely a process's batches arrived: gaps in their numbers, records that were sent and never came,
// losses that the process reports, and how it ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "collector/model/facts/process_totals.h"
#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

// kCutOff: the process ended without Bye. kCollectorLeft: the collector ended, or ended the connection, while
// the process was connected; it may have gone on.
enum class EndState : uint8_t { kConnected, kSaidBye, kSaidByeIncomplete, kCutOff, kCollectorLeft };

class Delivery {
 public:
  // Called when records turn out to be missing. `launches`: launches may be among them.
  using OnLoss = std::function<void(bool launches)>;
  Delivery(const v1::Hello& hello, ProcessTotals& totals, OnLoss on_loss);

  void BeginBatch(const v1::Batch& batch);
  // `counted`: the process counts the records of a batch, which older releases do not.
  void EndBatch(const v1::Batch& batch, bool counted);
  // A roll-up says what there was of its batches in another way.
  void OnRollUp(const v1::Batch& batch) { last_sequence_ = std::max(last_sequence_, batch.sequence()); }
  void OnBye(const v1::Bye& bye, bool counted);
  // It came back.
  void OnRejoin() { end_state_ = EndState::kConnected; }
  void MarkCutOff() {
    if (end_state_ == EndState::kConnected) end_state_ = EndState::kCutOff;
  }
  void OnConnection(const v1::ConnectionState& connection) {
    is_open_ = connection.open();
    if (!is_open_) MarkCutOff();
  }
  // Nothing more will be read.
  void Finish() {
    if (end_state_ == EndState::kConnected)
      end_state_ = is_open_ ? EndState::kCollectorLeft : EndState::kCutOff;
  }

  EndState end_state() const { return end_state_; }
  bool said_bye() const {
    return end_state_ == EndState::kSaidBye || end_state_ == EndState::kSaidByeIncomplete;
  }
  // Sequence number of the last batch that was applied.
  uint64_t last_sequence() const { return last_sequence_; }

 private:
  template <typename Losses>
  void OnLosses(const Losses& losses);
  // The process has sent `sent` records in all, `here` of them in the batch at hand.
  void CountMissing(uint64_t sent, uint64_t here, bool counted);

  ProcessTotals& totals_;
  OnLoss on_loss_;
  EndState end_state_ = EndState::kConnected;
  bool is_open_ = false;  // as the collector noted; earlier releases note nothing
  uint64_t last_sequence_ = 0;
  uint64_t records_sent_ = 0;  // by the process, with the last batch

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(totals_, on_loss_), end_state_, is_open_, last_sequence_, records_sent_);
  }
};

}  // namespace gpuprobe::model
