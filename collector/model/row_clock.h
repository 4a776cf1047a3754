// Moves a record's times from the clock to the line (continuous_clock.h), by the roles of its columns.
//
// Which times a record has, and what tells whether it is from before or after the clock was set back, is said
// where the record kind is described (columns.proto's Table.clock).
#pragma once

#include <cstdint>

#include "collector/model/continuous_clock.h"
#include "collector/model/records.h"

namespace gpuprobe::model {

namespace internal {

template <typename Spec, typename Record>
void MoveTime(Record& r, uint64_t by_ns) {
  if constexpr (wire::IsTime(Spec::kRole)) {
    if (r.*Spec::kMember != 0) r.*Spec::kMember += by_ns;  // 0: there was none
  }
}

template <typename Record, typename... Specs>
void MoveTimes(Record& r, uint64_t by_ns, wire::ColumnList<Specs...> /*specs*/) {
  (MoveTime<Specs>(r, by_ns), ...);
}

template <typename Record>
uint64_t ThreadOf(const Record& r) {
  if constexpr (requires { r.thread; }) return r.thread;
  return 0;
}

}  // namespace internal

// Records in their order in the batch. `stream`: of a record of the device's, where it ran.
template <typename Record>
void MoveToLine(ContinuousClock& line, uint32_t stream, Record& r) {
  using Table = wire::TableOf<Record>;
  constexpr v1::Table::Clock kClock = Table::kClock;
  if constexpr (Table::kInOrderOf != nullptr) {
    const uint64_t clock_ns = r.*Table::kInOrderOf;
    uint64_t line_ns = 0;
    if constexpr (kClock == v1::Table::DEVICE) {
      line_ns = line.Device(uint64_t{stream} << 8 | Table::kField, r.correlation, r.start_ns, r.end_ns) +
                (r.end_ns - r.start_ns);
    } else if constexpr (kClock == v1::Table::LAUNCH) {
      line_ns = line.Launch(r.correlation, clock_ns);
    } else if constexpr (kClock == v1::Table::RANGE) {
      line_ns = line.Range(r.id, clock_ns);
    } else {
      line_ns = line.Host(Table::kField, static_cast<uint32_t>(internal::ThreadOf(r)), clock_ns);
    }
    internal::MoveTimes(r, line_ns - clock_ns, typename Table::Columns{});
  }
}

}  // namespace gpuprobe::model
