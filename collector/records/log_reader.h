// Reads the log of a process again, after the model has: its records, with their times on the process's line.
//
// The timeline and the page read through it, so that they agree with the model about when something was. Not
// thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "collector/records/definitions.h"
#include "collector/records/process_clock.h"
#include "collector/records/row_clock.h"
#include "collector/records/rows.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class LogReader {
 public:
  // `known`: the model's clock of the process.
  explicit LogReader(const ProcessClock& known, Definitions definitions = Definitions())
      : definitions_(std::move(definitions)),
        moves_(known.SetBackAt(UINT64_MAX) != 0 || known.device_ahead_ns() != 0) {
    clock_.KnowDevice(known.device_ahead_ns());
  }

  // Before a batch's records. Batches in their order.
  void Begin(const v1::Batch& batch) {
    definitions_.Learn(batch);
    if (batch.restated()) return;
    clock_.BeginBatch(batch, {}, device_until_ns_);
    clock_.EndBatch(batch);
  }
  // Hands each row to visit(record), which may change it, kind by kind. Ends at the first that is ragged.
  template <typename... Records, typename Visitor>
  absl::Status Read(const v1::Batch& batch, const Visitor& visit) {
    absl::Status status;
    (void)((status = ReadKind<Records>(batch, visit)).ok() && ...);
    return status;
  }

  const Definitions& definitions() const { return definitions_; }
  // When the batch was sealed, on the line; 0: not known.
  uint64_t Now(const v1::Batch& batch) const {
    return batch.clock().realtime_ns() == 0 ? 0 : clock_.Now(batch);
  }
  // Whether times are moved somewhere in the log, so that rows must be read from its beginning.
  bool moves() const { return moves_; }

 private:
  template <typename Record, typename Visitor>
  absl::Status ReadKind(const v1::Batch& batch, const Visitor& visit) {
    return ForEachRow<Record>(batch, [&](Record r) {
      if (clock_.line().moved()) MoveToLine(clock_.line(), StreamOf(r), r);
      if constexpr (wire::TableOf<Record>::kClock == v1::Table::DEVICE)
        device_until_ns_ = std::max(device_until_ns_, r.end_ns);
      visit(r);
    });
  }
  template <typename Record>
  uint32_t StreamOf(const Record& r) const {
    if constexpr (requires { r.stream; }) return r.stream;
    if constexpr (requires { r.site; }) {
      const Site* site = definitions_.FindSite(r.site);
      return site == nullptr ? 0 : site->geometry.stream();
    }
    return 0;
  }

  Definitions definitions_;
  ProcessClock clock_;
  bool moves_;
  uint64_t device_until_ns_ = 0;  // the latest end of any work on the device, on the line
};

}  // namespace gpuprobe::model
