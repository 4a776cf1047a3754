// Rows of RangePayloads: numbers that the program passed with its ranges in layouts of its own.
//
// Separate from records.h because few programs have any.
#pragma once

#include "collector/model/records.h"

namespace gpuprobe::model {

struct RangePayload {
  uint64_t range;
  uint64_t value;
  uint32_t field;  // StringDef
  v1::PayloadKind kind;
};

template <typename Visitor>
absl::Status ForEachRangePayload(const v1::Batch& batch, Visitor&& visit) {
  const v1::RangePayloads& m = batch.range_payloads();
  const int rows = internal::Rows(m.range_delta(), m.field(), m.value(), m.kind());
  if (rows < 0) return internal::Ragged("RangePayloads");
  const internal::Column range(m.range_delta());
  const internal::Column field(m.field());
  const internal::Column value(m.value());
  const internal::Column kind(m.kind());
  RangePayload r{};
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.range, range[i]);
    r.field = field[i];
    r.value = value[i];
    r.kind = static_cast<v1::PayloadKind>(kind[i]);
    visit(r);
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::model
