// Moves a record's times from the clock to the line (continuous_clock.h), by the roles of its columns.
//
// The description of the record kind (columns.proto's Table.clock) says which times a record has, and what
// shows whether it is from before or after the clock was set back.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collector/records/continuous_clock.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

namespace internal {

template <typename Spec, typename Record, typename Map>
void MapTime(Record& r, const Map& map) {
  if constexpr (wire::IsTime(Spec::kRole)) {
    if (r.*Spec::kMember != 0) r.*Spec::kMember = map(r.*Spec::kMember);  // 0: there was none
  }
}

template <typename Record, typename Map, typename... Specs>
void MapTimes(Record& r, const Map& map, wire::ColumnList<Specs...> /*specs*/) {
  (MapTime<Specs>(r, map), ...);
}

// Whether the record's times come from CUPTI's clock: device work, and what CUPTI measures on the host. The
// probe stamps all others.
template <typename Record>
constexpr bool kIsFromCupti = wire::TableOf<Record>::kClock == v1::Table::DEVICE ||
                              std::is_same_v<Record, SyncRecord> || std::is_same_v<Record, OverheadRecord>;

template <typename Record>
uint64_t ThreadOf(const Record& r) {
  if constexpr (requires { r.thread; }) return r.thread;
  return 0;
}

}  // namespace internal

// Replaces each time of a record by map(time).
template <typename Record, typename Map>
void MapTimes(Record& r, const Map& map) {
  internal::MapTimes(r, map, typename wire::TableOf<Record>::Columns{});
}

// Pass records in their order in the batch. `stream`: where a device record's work ran.
template <typename Record>
void MoveToLine(ContinuousClock& line, uint32_t stream, Record& r) {
  using Table = wire::TableOf<Record>;
  constexpr v1::Table::Clock kClock = Table::kClock;
  if constexpr (internal::kIsFromCupti<Record>)
    MapTimes(r, [&line](uint64_t time_ns) { return line.FromDevice(time_ns); });
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
    MapTimes(r, [by_ns = line_ns - clock_ns](uint64_t time_ns) { return time_ns + by_ns; });
  }
}

}  // namespace gpuprobe::model
