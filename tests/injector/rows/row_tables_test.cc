// Every kind of row comes back as it went in: written by the injector's tables, read by the collector's
// visitors.
#include "injector/rows/row_tables.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "collector/records/rows.h"
#include "injector/core/guard.h"
#include "injector/rows/batch_builder.h"
#include "tests/injector/support/frames.h"

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kRows = 4;

// A value for the `n`th row's member: another one for each column, going up and down from row to row.
template <typename Spec, typename Row>
void Fill(uint64_t base_ns, uint64_t n, Row& row) {
  using wire::Role;
  auto& member = row.*Spec::kMember;
  using Member = std::remove_reference_t<decltype(member)>;
  const uint64_t value = (n % 2 == 0 ? 1000 : 7) * n + static_cast<uint64_t>(Spec::kNumber);
  if constexpr (Spec::kRole == Role::kStart || Spec::kRole == Role::kTime) {
    member = base_ns + (n == 2 ? 0 : 5000 * n);  // one comes late
  } else if constexpr (Spec::kRole == Role::kBefore) {
    member = Spec::kMayBeNone && n == 1 ? 0 : row.*Spec::kOf - value;
  } else if constexpr (wire::IsTime(Spec::kRole)) {
    const bool after = Spec::kCoding != wire::Coding::kZigZag || n % 2 == 0;
    member = after ? row.*Spec::kOf + value : row.*Spec::kOf - value;
  } else if constexpr (std::is_same_v<Member, bool>) {
    member = n % 2 == 0;
  } else if constexpr (std::is_enum_v<Member>) {
    member = static_cast<Member>(n % 2);
  } else if constexpr (std::is_signed_v<Member>) {
    member = static_cast<Member>(n) - 1;  // -1 first
  } else {
    member = static_cast<Member>(value);
  }
}

template <typename Row, typename... Specs>
Row RowNumber(uint64_t base_ns, uint64_t n, wire::ColumnList<Specs...> /*specs*/) {
  Row row{};
  if constexpr (wire::TableOf<Row>::kKey != nullptr) row.*wire::TableOf<Row>::kKey = 1 + n / 2;
  (Fill<Specs>(base_ns, n, row), ...);
  return row;
}

template <typename Row, typename... Specs>
std::vector<uint64_t> Members(const Row& row, wire::ColumnList<Specs...> /*specs*/) {
  std::vector<uint64_t> members{static_cast<uint64_t>(row.*Specs::kMember)...};
  if constexpr (wire::TableOf<Row>::kKey != nullptr) members.push_back(row.*wire::TableOf<Row>::kKey);
  return members;
}

template <typename Row>
std::vector<uint64_t> Members(const Row& row) {
  return Members(row, typename wire::TableOf<Row>::Columns{});
}

struct Sealed {
  SendQueue queue;
  BatchBuilder builder;
  Sealed() {
    EXPECT_TRUE(queue.Init(size_t{64} << 20));
    EXPECT_TRUE(builder.Init(&queue));
  }
  v1::Batch Seal() {
    EXPECT_TRUE(builder.Seal());
    const auto batches = testing::TakeBatches(&queue);
    return batches.size() == 1 ? batches[0] : v1::Batch();
  }
};

template <typename Row, typename Record>
void ComesBack() {
  SCOPED_TRACE(wire::TableOf<Record>::kName);
  const auto sealed = std::make_unique<Sealed>();
  const uint64_t now = NowNs();
  std::vector<std::vector<uint64_t>> sent;
  for (uint64_t n = 0; n < kRows; ++n) {
    const Row row = RowNumber<Row>(now, n, typename wire::TableOf<Row>::Columns{});
    sent.push_back(Members(row));
    if constexpr (std::is_same_v<Row, wire::KernelRow>) {
      KernelBlock block;
      block.Add(row.start_ns, row.end_ns, row.site, static_cast<uint32_t>(row.correlation), row.graph_node);
      sealed->builder.AddKernels(block);
    } else {
      sealed->builder.Add(row);
    }
  }
  const v1::Batch batch = sealed->Seal();
  EXPECT_EQ(batch.records(), kRows);
  std::vector<std::vector<uint64_t>> received;
  EXPECT_TRUE(
      model::ForEachRow<Record>(batch, [&](const Record& r) { received.push_back(Members(r)); }).ok());
  EXPECT_EQ(received, sent);
}

template <typename Row, typename Record>
void ZerosAreCounted() {
  SCOPED_TRACE(wire::TableOf<Record>::kName);
  const auto sealed = std::make_unique<Sealed>();
  sealed->builder.Add(Row{});
  sealed->builder.Add(Row{});
  size_t received = 0;
  EXPECT_TRUE(model::ForEachRow<Record>(sealed->Seal(), [&](const Record&) { ++received; }).ok());
  EXPECT_EQ(received, 2u);
}

// The two lists are of the same tables, in the same order; those that only collectors write come last.
template <typename... Rows>
struct Sent {
  template <typename... Records>
  struct Received {
    static_assert(sizeof...(Rows) <= sizeof...(Records));
    template <size_t place>
    using Record = std::tuple_element_t<place, std::tuple<Records...>>;
    template <size_t... places>
    static void ComeBack(std::index_sequence<places...>) {
      (ComesBack<Rows, Record<places>>(), ...);
    }
    template <size_t... places>
    static void AreCounted(std::index_sequence<places...>) {
      (ZerosAreCounted<Rows, Record<places>>(), ...);
    }
    static void ComeBack() { ComeBack(std::index_sequence_for<Rows...>()); }
    static void AreCounted() { AreCounted(std::index_sequence_for<Rows...>()); }
  };
};
using Every = model::AllRecords<wire::AllRows<Sent>::Received>;

TEST(RowTables, EveryKindOfRowComesBackAsItWentIn) { Every::ComeBack(); }

TEST(RowTables, RowsThatAreAllZeroAreStillCounted) { Every::AreCounted(); }

}  // namespace
}  // namespace gpuprobe::injector
