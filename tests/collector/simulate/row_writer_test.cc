// What is written of a record, of whichever kind, is what readers read.
#include "collector/records/row_writer.h"

#include <gtest/gtest.h>

#include "collector/records/rows.h"
#include "collector/simulate/random.h"

namespace gpuprobe::simulate {
namespace {

template <typename Record>
class EveryKind : public ::testing::Test {
 public:
  using Table = wire::TableOf<Record>;

  static std::vector<Record> Any(size_t rows) {
    Random random(Table::kField);
    std::vector<Record> records(rows);
    for (size_t i = 0; i < rows; ++i) {
      ForEachColumn([&](auto spec) {
        auto& member = records[i].*decltype(spec)::kMember;
        using Value = std::remove_reference_t<decltype(member)>;
        // Numbers of every size, half of them 0; as rows follow, times go back and forth.
        const uint64_t value = random.Next() % 2 == 0 ? 0 : random.Next() >> (random.Next() % 64);
        member = static_cast<Value>(std::is_enum_v<Value> || std::is_same_v<Value, bool> ? value % 2 : value);
      });
      if constexpr (Table::kKey != nullptr) records[i].*Table::kKey = static_cast<uint32_t>(i / 7);
    }
    return records;
  }
  static void ForEachColumn(auto visit) {
    [&]<typename... Specs>(wire::ColumnList<Specs...> /*specs*/) {
      (visit(Specs{}), ...);
    }(typename Table::Columns{});
  }
};

template <typename... Records>
using Each = ::testing::Types<Records...>;
TYPED_TEST_SUITE(EveryKind, model::AllRecords<Each>);

TYPED_TEST(EveryKind, IsReadAsItWasWritten) {
  std::vector<TypeParam> written = this->Any(60);
  v1::Batch batch;
  batch.set_base_ns(1'000);
  {
    model::RowWriter<TypeParam> writer(batch);
    for (const TypeParam& record : written) writer.Append(record);
  }
  std::vector<TypeParam> read;
  ASSERT_TRUE(model::ForEachRow<TypeParam>(batch, [&](const TypeParam& r) { read.push_back(r); }).ok());
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    this->ForEachColumn([&](auto spec) {
      constexpr auto kMember = decltype(spec)::kMember;
      EXPECT_EQ(read[i].*kMember, written[i].*kMember)
          << "row " << i << ", column " << decltype(spec)::kNumber;
    });
    if constexpr (wire::TableOf<TypeParam>::kKey != nullptr) {
      constexpr auto kKey = wire::TableOf<TypeParam>::kKey;
      EXPECT_EQ(read[i].*kKey, written[i].*kKey);
    }
  }
}

TYPED_TEST(EveryKind, RowsOfZerosAreRowsAndNoRowIsNoMessage) {
  v1::Batch batch;
  { const model::RowWriter<TypeParam> none(batch); }
  EXPECT_EQ(batch.ByteSizeLong(), 0);
  {
    model::RowWriter<TypeParam> writer(batch);
    for (int i = 0; i < 3; ++i) writer.Append({});
  }
  int rows = 0;
  ASSERT_TRUE(model::ForEachRow<TypeParam>(batch, [&](const TypeParam&) { ++rows; }).ok());
  EXPECT_EQ(rows, 3);
  EXPECT_LT(batch.ByteSizeLong(), 16) << "one column";
}

}  // namespace
}  // namespace gpuprobe::simulate
