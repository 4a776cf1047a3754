#include "injector/capture/nvtx/payloads.h"

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "injector/base/lifecycle.h"
#include "injector/base/losses.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/extension.h"

namespace gpuprobe::injector::nvtx {
namespace {

nvtxPayloadSchemaEntry_t Entry(uint64_t type, const char* name, uint64_t offset = 0, uint64_t flags = 0,
                               uint64_t length = 0) {
  nvtxPayloadSchemaEntry_t entry{};
  entry.type = type;
  entry.name = name;
  entry.offset = offset;
  entry.flags = flags;
  entry.arrayOrUnionDetail = length;
  return entry;
}

class Payloads : public ::testing::Test {
 protected:
  static uint64_t Register(const std::vector<nvtxPayloadSchemaEntry_t>& entries, const void* domain = nullptr,
                           uint64_t id = 0, size_t pack = 0,
                           uint64_t type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC) {
    nvtxPayloadSchemaAttr_t attributes{};
    attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                           NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                           NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID |
                           NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT;
    attributes.type = type;
    attributes.entries = entries.data();
    attributes.numEntries = entries.size();
    attributes.schemaId = id;
    attributes.packAlign = pack;
    return RegisterSchema(domain, &attributes);
  }
  // "name=value" of each number, as a signed integer.
  static std::string Numbers(uint64_t schema, const std::string& bytes, const void* domain = nullptr) {
    const PayloadBytes found = FindPayload(domain, {schema, bytes.size(), bytes.data()});
    std::string numbers;
    PayloadField field;
    for (size_t i = 0;
         TakeField(found.schema, i, {static_cast<const char*>(found.bytes), found.size}, &field); ++i) {
      if (field.kind == wire::PayloadKind::kPayloadKindNone) continue;
      const bool real = field.kind == wire::PayloadKind::kPayloadKindDouble;
      numbers += std::string(field.name) + "=" +
                 (real ? std::to_string(std::bit_cast<double>(field.value))
                       : std::to_string(static_cast<int64_t>(field.value))) +
                 " ";
    }
    return numbers;
  }
  static std::string Bytes(std::initializer_list<int> bytes) { return {bytes.begin(), bytes.end()}; }
};

TEST_F(Payloads, PlacesFollowFromAlignmentOrPacking) {
  const std::vector<nvtxPayloadSchemaEntry_t> entries = {Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a"),
                                                         Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT16, "b"),
                                                         Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "c")};
  EXPECT_EQ(Numbers(Register(entries), Bytes({1, 9, 2, 0, 3, 0, 0, 0})), "a=1 b=2 c=3 ");
  EXPECT_EQ(Numbers(Register(entries, nullptr, 0, 1), Bytes({1, 254, 255, 3, 0, 0, 0})), "a=1 b=-2 c=3 ");
}

TEST_F(Payloads, NothingIsReadBeyondWhatIsThere) {
  const uint64_t id =
      Register({Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "a"), Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "b")});
  EXPECT_EQ(Numbers(id, Bytes({1, 0, 0, 0, 2, 0, 0, 0})), "a=1 b=2 ");
  EXPECT_EQ(Numbers(id, Bytes({1, 0, 0, 0, 2, 0, 0})), "a=1 ");
  EXPECT_EQ(Numbers(id, ""), "");
  EXPECT_EQ(FindPayload(nullptr, {id, 100, "1234567"}).size, 8u) << "no more than the layout has";
  EXPECT_EQ(FindPayload(nullptr, {id, SIZE_MAX, "1234567"}).size, 8u) << "the layout says how much";
  EXPECT_EQ(FindPayload(nullptr, {id, 8, nullptr}).size, 0u);
  EXPECT_EQ(FindPayload(nullptr, {id + 1, 8, "1234567"}).schema, 0u);
}

TEST_F(Payloads, WhatLiesBehindSomethingOfUnknownLengthIsFoundByItsPlaceOnly) {
  const uint64_t id = Register(
      {Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "length"),
       Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "values", 0, NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_LENGTH_INDEX, 0),
       Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "somewhere"), Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "there", 3)});
  EXPECT_EQ(Numbers(id, Bytes({2, 7, 7, 9})), "length=2 there=9 ");
  EXPECT_EQ(FindPayload(nullptr, {id, SIZE_MAX, "123"}).size, 0u) << "its length is not known";
}

TEST_F(Payloads, PointersAreNotFollowed) {
  const uint64_t id = Register(
      {Entry(NVTX_PAYLOAD_ENTRY_TYPE_INT32, "elsewhere", 0, NVTX_PAYLOAD_ENTRY_FLAG_POINTER),
       Entry(NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS, "address"), Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "after")});
  EXPECT_EQ(Numbers(id, std::string(16, '\xff') + "\x05"), "after=5 ");
}

TEST_F(Payloads, NestedLayoutsAndEnumerations) {
  nvtxPayloadEnumAttr_t choice{};
  choice.fieldMask = NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE;
  choice.sizeOfEnum = 1;
  const uint64_t choice_id = RegisterEnum(nullptr, &choice);
  const uint64_t inner = Register({Entry(choice_id, "kind"), Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT16, "size")});
  const uint64_t outer =
      Register({Entry(inner, "first"), Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "between"), Entry(inner, "")});
  EXPECT_EQ(Numbers(outer, Bytes({1, 0, 2, 0, 3, 0, 4, 0, 5, 0})),
            "first.kind=1 first.size=2 between=3 kind=4 size=5 ");
}

TEST_F(Payloads, IdsOfTheProgramAreOfTheirDomain) {
  constexpr uint64_t kId = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 3;
  const void* one = CreateDomain("one");
  const void* other = CreateDomain("other");
  EXPECT_EQ(Register({Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a")}, one, kId), kId);
  EXPECT_EQ(Register({Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "b")}, other, kId), kId);
  EXPECT_EQ(Register({Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "again")}, one, kId), kId);
  EXPECT_EQ(Numbers(kId, "\x07", one), "a=7 ");
  EXPECT_EQ(Numbers(kId, "\x07", other), "b=7 ");
  EXPECT_EQ(Numbers(kId, "\x07"), "");
}

TEST_F(Payloads, LayoutsThatCannotBeUsed) {
  EXPECT_EQ(RegisterSchema(nullptr, nullptr), 0u);
  EXPECT_EQ(RegisterEnum(nullptr, nullptr), 0u);
  nvtxPayloadSchemaAttr_t empty{};
  EXPECT_EQ(RegisterSchema(nullptr, &empty), 0u);
  const std::vector<nvtxPayloadSchemaEntry_t> members = {Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a"),
                                                         Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "b")};
  const uint64_t id = Register(members, nullptr, 0, 0, NVTX_PAYLOAD_SCHEMA_TYPE_UNION);
  EXPECT_NE(id, 0u) << "a union can be part of others";
  EXPECT_EQ(Numbers(id, "\x01\x02\x03\x04"), "");
  EXPECT_EQ(
      Numbers(Register({Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a", SIZE_MAX - 3), Entry(12345, "b")}), "\x01"),
      "");
}

TEST_F(Payloads, WhatFindsNoPlaceIsCounted) {
  const std::vector<nvtxPayloadSchemaEntry_t> far = {
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "a", kMaxPayloadBytes - 8),
      Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "b", kMaxPayloadBytes - 7)};
  EXPECT_NE(Register(far), 0u);
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 1u);
  const std::vector<nvtxPayloadSchemaEntry_t> one = {Entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a")};
  size_t registered = 1;
  while (Register(one) != 0) ++registered;
  EXPECT_EQ(registered, kMaxSchemas);
  EXPECT_EQ(LossCount(wire::LossReason::kLossDefinitionsFull), 2u);
}

TEST_F(Payloads, OnlyTablesOfThePayloadExtensionAreTaken) {
  intptr_t slots[63] = {};
  nvtxExtModuleSegment_t segment{0, 63, slots};
  nvtxExtModuleInfo_t module{
      NVTX_VERSION, sizeof(module), NVTX_EXT_PAYLOAD_MODULEID, NVTX_EXT_PAYLOAD_COMPATID, 1, &segment,
      nullptr,      nullptr};
  EXPECT_EQ(PlaceExtensionHandlers(nullptr), 0);
  module.moduleId = 1;
  EXPECT_EQ(PlaceExtensionHandlers(&module), 0);
  module.moduleId = NVTX_EXT_PAYLOAD_MODULEID;
  module.compatId = 0x0200;
  EXPECT_EQ(PlaceExtensionHandlers(&module), 0);
  module.compatId = 0x0103;
  segment.slotCount = 3;
  EXPECT_EQ(PlaceExtensionHandlers(&module), 1);
  EXPECT_NE(slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister], 0);
  EXPECT_EQ(slots[NVTX3EXT_CBID_nvtxRangePushPayload], 0) << "beyond its end";
}

// Some releases of NVTX say that a domain is off unless the tool answers, and Python's nvtx package then
// annotates nothing.
TEST(PayloadExtensionTest, EveryDomainIsEnabledUntilTheProbeIsClosed) {
  intptr_t slots[63] = {};
  nvtxExtModuleSegment_t segment{0, 63, slots};
  nvtxExtModuleInfo_t module{NVTX_VERSION,
                             sizeof(nvtxExtModuleInfo_t),
                             NVTX_EXT_PAYLOAD_MODULEID,
                             NVTX_EXT_PAYLOAD_COMPATID,
                             1,
                             &segment,
                             nullptr,
                             nullptr};
  ASSERT_EQ(PlaceExtensionHandlers(&module), 1);
  auto* enabled = reinterpret_cast<uint8_t (*)(nvtxDomainHandle_t)>(slots[NVTX3EXT_CBID_nvtxDomainIsEnabled]);
  ASSERT_NE(enabled, nullptr);
  EXPECT_EQ(enabled(nullptr), 1) << "before CUDA starts, too: it is asked once";
  ASSERT_TRUE(Transition(LifecycleState::kOff, LifecycleState::kStarting));
  ASSERT_TRUE(Transition(LifecycleState::kStarting, LifecycleState::kLive));
  EXPECT_EQ(enabled(nullptr), 1);
  CloseLifecycle();
  EXPECT_EQ(enabled(nullptr), 0);
}

}  // namespace
}  // namespace gpuprobe::injector::nvtx
