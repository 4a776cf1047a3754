// Records into a Batch's columns: the counterpart of collector/records/rows.h, which reads them.
//
// Example: RowWriter<model::CopyRecord> copies(batch); copies.Append(copy). A batch without rows of a kind
// gets no message for it; a column that is all zero is left out, except for the first one, by which readers
// count rows.
#pragma once

#include <algorithm>

#include "gpuprobe/v1/wire.pb.h"
#include "gpuprobe/v1/wire_writers.h"

namespace gpuprobe::model {

template <typename Record>
class RowWriter {
 public:
  explicit RowWriter(v1::Batch& batch) : batch_(batch) {}
  ~RowWriter() { Close(); }
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  // Rows with the same key (launches: of the same thread) come one after the other.
  void Append(const Record& r) {
    if (message_ == nullptr || IsOther(r)) Open(r);
    Writer::Fields(*message_, [&](auto&... columns) { Put(r, typename Table::Columns{}, columns...); });
    before_ = r;
  }

 private:
  using Table = wire::TableOf<Record>;
  using Writer = wire::WriterOf<Record>;

  bool IsOther(const Record& r) const {
    if constexpr (Table::kKey != nullptr) return r.*Table::kKey != before_.*Table::kKey;
    return false;
  }
  void Open(const Record& first) {
    Close();
    message_ = &Writer::In(batch_, first);
    before_ = Record{};
    if constexpr (Table::kPrevious != nullptr) before_.*Table::kPrevious = batch_.base_ns();
  }
  void Close() {
    if (message_ == nullptr) return;
    Writer::Fields(*message_, [](auto& /*first*/, auto&... others) { (DropZeros(others), ...); });
  }
  static void DropZeros(auto& column) {
    if (std::all_of(column.begin(), column.end(), [](auto value) { return value == 0; })) column.Clear();
  }

  template <typename... Specs>
  void Put(const Record& r, wire::ColumnList<Specs...> /*specs*/, auto&... columns) const {
    (columns.Add(
         static_cast<typename std::remove_reference_t<decltype(columns)>::value_type>(Value<Specs>(r))),
     ...);
  }
  // proto/gpuprobe/v1/columns.proto defines the roles.
  template <typename Spec>
  auto Value(const Record& r) const {
    using wire::Role;
    const auto& member = r.*Spec::kMember;
    if constexpr (Spec::kRole == Role::kDelta || Spec::kRole == Role::kTime) {
      return member - before_.*Spec::kMember;
    } else if constexpr (Spec::kRole == Role::kStart) {
      return member - before_.*Table::kPrevious;
    } else if constexpr (Spec::kRole == Role::kBefore) {
      return Spec::kMayBeNone && member == 0 ? 0 : r.*Spec::kOf - member;
    } else if constexpr (wire::IsTime(Spec::kRole)) {
      return member - r.*Spec::kOf;
    } else if constexpr (Spec::kCoding == wire::Coding::kPlusOne) {
      return member + 1;
    } else {
      return member;
    }
  }

  v1::Batch& batch_;
  typename Table::Message* message_ = nullptr;
  Record before_{};
};

}  // namespace gpuprobe::model
