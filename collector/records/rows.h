// Rows out of a Batch's columns: plain records with absolute times, one visitor per record kind.
//
// Example: ForEachCopy(batch, [](const CopyRecord& copy) {..}). Records, their columns and visitors are
// generated from wire.proto; the reading is here, once, and export and model share it. Every visitor first
// checks that the columns of its messages agree in length (a column may be left out: all zero) and returns
// InvalidArgument otherwise, before it has visited anything. Arithmetic on hostile deltas wraps; records
// whose end lies before their start are the visitor's business.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpuprobe/v1/wire.pb.h"
#include "gpuprobe/v1/wire_records.h"

namespace gpuprobe::model {

namespace internal {

// Values of one column; absent means zero.
template <typename T>
struct ColumnValues {
  const T* data;
  template <typename Field>
  explicit ColumnValues(const Field& field) : data(field.empty() ? nullptr : field.data()) {}
  T operator[](int row) const { return data != nullptr ? data[row] : T{}; }
};
template <typename Field>
ColumnValues(const Field&) -> ColumnValues<typename Field::value_type>;

// The number of rows that all columns agree on, or -1.
template <typename... Fields>
int Rows(const Fields&... fields) {
  int rows = 0;
  bool agree = true;
  const auto look = [&](int size) {
    if (size == 0) return;
    if (rows == 0) rows = size;
    agree = agree && rows == size;
  };
  (look(fields.size()), ...);
  return agree ? rows : -1;
}

// Puts a column's value into `r`, which holds the row before.
template <typename Spec, typename Record, typename T>
void Take(T value, Record& r) {
  using wire::Role;
  auto& member = r.*Spec::kMember;
  if constexpr (Spec::kRole == Role::kDelta || Spec::kRole == Role::kTime) {
    member += static_cast<uint64_t>(value);
  } else if constexpr (Spec::kRole == Role::kStart) {
    member = r.*wire::TableOf<Record>::kPrevious + static_cast<uint64_t>(value);
  } else if constexpr (Spec::kRole == Role::kBefore) {
    member = Spec::kMayBeNone && value == 0 ? 0 : r.*Spec::kOf - static_cast<uint64_t>(value);
  } else if constexpr (wire::IsTime(Spec::kRole)) {
    member = r.*Spec::kOf + static_cast<uint64_t>(value);
  } else if constexpr (Spec::kCoding == wire::Coding::kPlusOne) {
    member = static_cast<int32_t>(static_cast<uint32_t>(value) - 1);
  } else {
    member = static_cast<std::remove_reference_t<decltype(member)>>(value);
  }
}

template <typename Record, typename Visit, typename... Specs, typename... Columns>
void ReadRows(int rows, Record& r, Visit& visit, wire::ColumnList<Specs...> /*specs*/, Columns... columns) {
  for (int i = 0; i < rows; ++i) {
    (Take<Specs>(columns[i], r), ...);
    visit(static_cast<const Record&>(r));
  }
}

template <typename Record>
int RowsOf(const typename wire::TableOf<Record>::Message& message) {
  return wire::TableOf<Record>::Fields(message, [](const auto&... fields) { return Rows(fields...); });
}

template <typename Record, typename Visit>
void ReadMessage(const v1::Batch& batch, const typename wire::TableOf<Record>::Message& message,
                 Visit& visit) {
  using Table = wire::TableOf<Record>;
  Record r{};
  if constexpr (Table::kPrevious != nullptr) r.*Table::kPrevious = batch.base_ns();
  if constexpr (Table::kKey != nullptr) r.*Table::kKey = Table::KeyOf(message);
  const int rows = RowsOf<Record>(message);
  Table::Fields(message, [&](const auto&... fields) {
    ReadRows(rows, r, visit, typename Table::Columns{}, ColumnValues(fields)...);
  });
}

template <typename Record>
absl::Status Ragged() {
  return absl::InvalidArgumentError(
      absl::StrCat("columns of ", wire::TableOf<Record>::kName, " differ in length"));
}

template <typename Spec, typename Record, typename Map>
void MapText(Record& r, const Map& map) {
  if constexpr (Spec::kIsText) {
    if (r.*Spec::kMember != 0) r.*Spec::kMember = map(r.*Spec::kMember);  // 0: none
  }
}

template <typename Record, typename Map, typename... Specs>
void MapTexts(Record& r, const Map& map, wire::ColumnList<Specs...> /*specs*/) {
  (MapText<Specs>(r, map), ...);
}

}  // namespace internal

// Replaces each StringDef's id in a record by map(id).
template <typename Record, typename Map>
void MapTexts(Record& r, const Map& map) {
  internal::MapTexts(r, map, typename wire::TableOf<Record>::Columns{});
}

template <typename Record, typename Visit>
absl::Status ForEachRow(const v1::Batch& batch, Visit&& visit) {
  const auto& in = wire::TableOf<Record>::In(batch);
  if constexpr (wire::TableOf<Record>::kKey == nullptr) {
    if (internal::RowsOf<Record>(in) < 0) return internal::Ragged<Record>();
    internal::ReadMessage<Record>(batch, in, visit);
  } else {
    for (const auto& message : in) {
      if (internal::RowsOf<Record>(message) < 0) return internal::Ragged<Record>();
    }
    for (const auto& message : in) internal::ReadMessage<Record>(batch, message, visit);
  }
  return absl::OkStatus();
}

// The bytes of a tensor that was handed out or, if negative, taken back.
inline uint64_t Magnitude(int64_t change) {
  return change < 0 ? 0 - static_cast<uint64_t>(change) : static_cast<uint64_t>(change);
}

// A process's identity according to its communicators, where its launcher gave none.
inline void AdoptNcclIdentity(const v1::NcclIdentity& from, v1::Identity& identity) {
  const bool open =
      identity.rank_source() == v1::RANK_SOURCE_NONE || identity.rank_source() == v1::RANK_SOURCE_NCCL;
  if (!open || from.rank() < 0 || from.world_size() <= 0) return;
  identity.set_rank(from.rank());
  identity.set_world_size(from.world_size());
  identity.set_rank_source(v1::RANK_SOURCE_NCCL);
}

// A later report of a communicator replaces the earlier one, except for the time at which it was made; its
// end may be reported without repeating the rest.
inline void MergeCommunicator(const v1::Communicator& told, v1::Communicator& known) {
  const v1::Communicator before = known;
  known = told;
  if (known.hash() == 0) known.set_hash(before.hash());
  if (known.ranks() == 0) known.set_ranks(before.ranks());
  if (known.name() == 0) known.set_name(before.name());
  if (known.made_by() == 0) known.set_made_by(before.made_by());
  if (before.time_ns() != 0) known.set_time_ns(before.time_ns());
  if (before.ranks() != 0 && known.rank() < 0) known.set_rank(before.rank());
}

}  // namespace gpuprobe::model
