#include "collector/model/facts/delivery.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::model {
namespace {

// Whether launches may be among the records lost for this reason; device records are missed by their
// launches.
bool MayBeLaunches(v1::LossReason reason) {
  return reason != v1::LOSS_BUFFER_POOL_EMPTY && reason != v1::LOSS_CUPTI_DROPPED &&
         reason != v1::LOSS_INVALID_TIMESTAMP && reason != v1::LOSS_FOREIGN_BUFFER &&
         reason != v1::LOSS_UNFINISHED_AT_FLUSH && reason != v1::LOSS_UNREADABLE;
}

}  // namespace

Delivery::Delivery(const v1::Hello& hello, ProcessTotals& totals, OnLoss on_loss)
    : totals_(totals), on_loss_(std::move(on_loss)) {
  if (hello.first_sequence() > 1) last_sequence_ = hello.first_sequence() - 1;
  records_sent_ = totals_.records_elsewhere = hello.records_before();
}

void Delivery::BeginBatch(const v1::Batch& batch) {
  if (batch.sequence() > last_sequence_ + 1) totals_.batches_missing += batch.sequence() - last_sequence_ - 1;
  last_sequence_ = std::max(last_sequence_, batch.sequence());
  ++totals_.batches;
}

void Delivery::EndBatch(const v1::Batch& batch, bool counted) {
  OnLosses(batch.losses());
  if (!batch.has_self()) return;
  CountMissing(batch.self().records(), batch.records(), counted);
  totals_.self = batch.self();
}

void Delivery::OnBye(const v1::Bye& bye, bool counted) {
  if (bye.batches() > last_sequence_) totals_.batches_missing += bye.batches() - last_sequence_;
  last_sequence_ = std::max(last_sequence_, bye.batches());
  OnLosses(bye.losses());
  if (bye.records() != 0) CountMissing(bye.records(), 0, counted);
  end_state_ =
      bye.reason() == v1::BYE_REASON_EXIT_INCOMPLETE ? EndState::kSaidByeIncomplete : EndState::kSaidBye;
}

template <typename Losses>
void Delivery::OnLosses(const Losses& losses) {
  for (const v1::Loss& loss : losses) {
    uint64_t& known = totals_.losses[static_cast<int>(loss.reason())];
    if (loss.records() > known) on_loss_(MayBeLaunches(loss.reason()));
    known = std::max(known, loss.records());
  }
}

void Delivery::CountMissing(uint64_t sent, uint64_t here, bool counted) {
  if (!counted) return;
  if (sent > records_sent_ + here) {
    totals_.records_missing += sent - records_sent_ - here;
    on_loss_(true);
  }
  records_sent_ = std::max(records_sent_, sent);
}

}  // namespace gpuprobe::model
