// Our description of NVTX's payload extension against NVTX's own header: structs to the byte, numbers each.
#include "injector/capture/nvtx/payload_abi.h"

#include <gtest/gtest.h>
#include <nvtx3/nvToolsExtPayload.h>

namespace gpuprobe::injector::nvtx::abi {
namespace {

// NOLINTBEGIN(bugprone-sizeof-expression): pointers to structs are compared, too
#define SAME_PLACE(ours, our_field, theirs, their_field)                     \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field)); \
  static_assert(sizeof(ours::our_field) == sizeof(theirs::their_field))

static_assert(sizeof(PayloadData) == sizeof(nvtxPayloadData_t));
SAME_PLACE(PayloadData, schema_id, nvtxPayloadData_t, schemaId);
SAME_PLACE(PayloadData, size, nvtxPayloadData_t, size);
SAME_PLACE(PayloadData, payload, nvtxPayloadData_t, payload);

static_assert(sizeof(SchemaEntry) == sizeof(nvtxPayloadSchemaEntry_t));
SAME_PLACE(SchemaEntry, flags, nvtxPayloadSchemaEntry_t, flags);
SAME_PLACE(SchemaEntry, type, nvtxPayloadSchemaEntry_t, type);
SAME_PLACE(SchemaEntry, name, nvtxPayloadSchemaEntry_t, name);
SAME_PLACE(SchemaEntry, description, nvtxPayloadSchemaEntry_t, description);
SAME_PLACE(SchemaEntry, detail, nvtxPayloadSchemaEntry_t, arrayOrUnionDetail);
SAME_PLACE(SchemaEntry, offset, nvtxPayloadSchemaEntry_t, offset);
SAME_PLACE(SchemaEntry, semantics, nvtxPayloadSchemaEntry_t, semantics);
SAME_PLACE(SchemaEntry, reserved, nvtxPayloadSchemaEntry_t, reserved);

static_assert(sizeof(SchemaAttributes) == sizeof(nvtxPayloadSchemaAttr_t));
SAME_PLACE(SchemaAttributes, field_mask, nvtxPayloadSchemaAttr_t, fieldMask);
SAME_PLACE(SchemaAttributes, name, nvtxPayloadSchemaAttr_t, name);
SAME_PLACE(SchemaAttributes, type, nvtxPayloadSchemaAttr_t, type);
SAME_PLACE(SchemaAttributes, flags, nvtxPayloadSchemaAttr_t, flags);
SAME_PLACE(SchemaAttributes, entries, nvtxPayloadSchemaAttr_t, entries);
SAME_PLACE(SchemaAttributes, entry_count, nvtxPayloadSchemaAttr_t, numEntries);
SAME_PLACE(SchemaAttributes, static_size, nvtxPayloadSchemaAttr_t, payloadStaticSize);
SAME_PLACE(SchemaAttributes, pack_align, nvtxPayloadSchemaAttr_t, packAlign);
SAME_PLACE(SchemaAttributes, schema_id, nvtxPayloadSchemaAttr_t, schemaId);
SAME_PLACE(SchemaAttributes, extension, nvtxPayloadSchemaAttr_t, extension);

static_assert(sizeof(EnumAttributes) == sizeof(nvtxPayloadEnumAttr_t));
SAME_PLACE(EnumAttributes, field_mask, nvtxPayloadEnumAttr_t, fieldMask);
SAME_PLACE(EnumAttributes, name, nvtxPayloadEnumAttr_t, name);
SAME_PLACE(EnumAttributes, entries, nvtxPayloadEnumAttr_t, entries);
SAME_PLACE(EnumAttributes, entry_count, nvtxPayloadEnumAttr_t, numEntries);
SAME_PLACE(EnumAttributes, enum_size, nvtxPayloadEnumAttr_t, sizeOfEnum);
SAME_PLACE(EnumAttributes, schema_id, nvtxPayloadEnumAttr_t, schemaId);
SAME_PLACE(EnumAttributes, extension, nvtxPayloadEnumAttr_t, extension);

static_assert(sizeof(Segment) == sizeof(nvtxExtModuleSegment_t));
SAME_PLACE(Segment, id, nvtxExtModuleSegment_t, segmentId);
SAME_PLACE(Segment, slot_count, nvtxExtModuleSegment_t, slotCount);
SAME_PLACE(Segment, slots, nvtxExtModuleSegment_t, functionSlots);

static_assert(sizeof(Module) == sizeof(nvtxExtModuleInfo_t));
SAME_PLACE(Module, nvtx_version, nvtxExtModuleInfo_t, nvtxVer);
SAME_PLACE(Module, struct_size, nvtxExtModuleInfo_t, structSize);
SAME_PLACE(Module, module_id, nvtxExtModuleInfo_t, moduleId);
SAME_PLACE(Module, compat_id, nvtxExtModuleInfo_t, compatId);
SAME_PLACE(Module, segment_count, nvtxExtModuleInfo_t, segmentsCount);
SAME_PLACE(Module, segments, nvtxExtModuleInfo_t, segments);
SAME_PLACE(Module, get_export, nvtxExtModuleInfo_t, getExportFunction);
SAME_PLACE(Module, info, nvtxExtModuleInfo_t, extInfo);

static_assert(kPayloadModule == NVTX_EXT_PAYLOAD_MODULEID);
static_assert(kPayloadTypeExtended == NVTX_PAYLOAD_TYPE_EXT);
static_assert(kSchemaRegister == NVTX3EXT_CBID_nvtxPayloadSchemaRegister);
static_assert(kEnumRegister == NVTX3EXT_CBID_nvtxPayloadEnumRegister);
static_assert(kMarkPayload == NVTX3EXT_CBID_nvtxMarkPayload);
static_assert(kRangePushPayload == NVTX3EXT_CBID_nvtxRangePushPayload);
static_assert(kRangePopPayload == NVTX3EXT_CBID_nvtxRangePopPayload);
static_assert(kRangeStartPayload == NVTX3EXT_CBID_nvtxRangeStartPayload);
static_assert(kRangeEndPayload == NVTX3EXT_CBID_nvtxRangeEndPayload);
static_assert(kDomainIsEnabled == NVTX3EXT_CBID_nvtxDomainIsEnabled);

struct Pair {
  const char* name;
  uint64_t ours;
  uint64_t theirs;
};
#define PAIR(ours, theirs) \
  { #theirs, ours, static_cast < uint64_t>(theirs) }

// clang-format off
constexpr Pair kPairs[] = {
    PAIR(kEntryArrayFixedSize, NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_FIXED_SIZE),
    PAIR(kEntryHide, NVTX_PAYLOAD_ENTRY_FLAG_HIDE),
    PAIR(kEntryOffsetFromBase, NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_BASE),
    PAIR(kEntryOffsetFromHere, NVTX_PAYLOAD_ENTRY_FLAG_OFFSET_FROM_HERE),
    PAIR(kEntryPointer, NVTX_PAYLOAD_ENTRY_FLAG_POINTER),
    PAIR(kTypeAddress, NVTX_PAYLOAD_ENTRY_TYPE_ADDRESS),
    PAIR(kTypeBf16, NVTX_PAYLOAD_ENTRY_TYPE_BF16),
    PAIR(kTypeByte, NVTX_PAYLOAD_ENTRY_TYPE_BYTE),
    PAIR(kTypeCategory, NVTX_PAYLOAD_ENTRY_TYPE_CATEGORY),
    PAIR(kTypeChar, NVTX_PAYLOAD_ENTRY_TYPE_CHAR),
    PAIR(kTypeChar16, NVTX_PAYLOAD_ENTRY_TYPE_CHAR16),
    PAIR(kTypeChar32, NVTX_PAYLOAD_ENTRY_TYPE_CHAR32),
    PAIR(kTypeChar8, NVTX_PAYLOAD_ENTRY_TYPE_CHAR8),
    PAIR(kTypeColorArgb, NVTX_PAYLOAD_ENTRY_TYPE_COLOR_ARGB),
    PAIR(kTypeCstring, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING),
    PAIR(kTypeCstringUtf16, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF16),
    PAIR(kTypeCstringUtf32, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF32),
    PAIR(kTypeCstringUtf8, NVTX_PAYLOAD_ENTRY_TYPE_CSTRING_UTF8),
    PAIR(kTypeDouble, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE),
    PAIR(kTypeFloat, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT),
    PAIR(kTypeFloat128, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT128),
    PAIR(kTypeFloat16, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT16),
    PAIR(kTypeFloat32, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT32),
    PAIR(kTypeFloat64, NVTX_PAYLOAD_ENTRY_TYPE_FLOAT64),
    PAIR(kTypeInt, NVTX_PAYLOAD_ENTRY_TYPE_INT),
    PAIR(kTypeInt128, NVTX_PAYLOAD_ENTRY_TYPE_INT128),
    PAIR(kTypeInt16, NVTX_PAYLOAD_ENTRY_TYPE_INT16),
    PAIR(kTypeInt32, NVTX_PAYLOAD_ENTRY_TYPE_INT32),
    PAIR(kTypeInt64, NVTX_PAYLOAD_ENTRY_TYPE_INT64),
    PAIR(kTypeInt8, NVTX_PAYLOAD_ENTRY_TYPE_INT8),
    PAIR(kTypeLong, NVTX_PAYLOAD_ENTRY_TYPE_LONG),
    PAIR(kTypeLongdouble, NVTX_PAYLOAD_ENTRY_TYPE_LONGDOUBLE),
    PAIR(kTypeLonglong, NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG),
    PAIR(kTypeNvtxRegisteredStringHandle, NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE),
    PAIR(kTypePidUint32, NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT32),
    PAIR(kTypePidUint64, NVTX_PAYLOAD_ENTRY_TYPE_PID_UINT64),
    PAIR(kTypeScopeId, NVTX_PAYLOAD_ENTRY_TYPE_SCOPE_ID),
    PAIR(kTypeShort, NVTX_PAYLOAD_ENTRY_TYPE_SHORT),
    PAIR(kTypeSize, NVTX_PAYLOAD_ENTRY_TYPE_SIZE),
    PAIR(kTypeTf32, NVTX_PAYLOAD_ENTRY_TYPE_TF32),
    PAIR(kTypeTidUint32, NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT32),
    PAIR(kTypeTidUint64, NVTX_PAYLOAD_ENTRY_TYPE_TID_UINT64),
    PAIR(kTypeUchar, NVTX_PAYLOAD_ENTRY_TYPE_UCHAR),
    PAIR(kTypeUint, NVTX_PAYLOAD_ENTRY_TYPE_UINT),
    PAIR(kTypeUint128, NVTX_PAYLOAD_ENTRY_TYPE_UINT128),
    PAIR(kTypeUint16, NVTX_PAYLOAD_ENTRY_TYPE_UINT16),
    PAIR(kTypeUint32, NVTX_PAYLOAD_ENTRY_TYPE_UINT32),
    PAIR(kTypeUint64, NVTX_PAYLOAD_ENTRY_TYPE_UINT64),
    PAIR(kTypeUint8, NVTX_PAYLOAD_ENTRY_TYPE_UINT8),
    PAIR(kTypeUlong, NVTX_PAYLOAD_ENTRY_TYPE_ULONG),
    PAIR(kTypeUlonglong, NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG),
    PAIR(kTypeUshort, NVTX_PAYLOAD_ENTRY_TYPE_USHORT),
    PAIR(kTypeWchar, NVTX_PAYLOAD_ENTRY_TYPE_WCHAR),
    PAIR(kEnumHasSchemaId, NVTX_PAYLOAD_ENUM_ATTR_FIELD_SCHEMA_ID),
    PAIR(kEnumHasSize, NVTX_PAYLOAD_ENUM_ATTR_FIELD_SIZE),
    PAIR(kSchemaHasAlignment, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ALIGNMENT),
    PAIR(kSchemaHasEntries, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES),
    PAIR(kSchemaHasName, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME),
    PAIR(kSchemaHasNumEntries, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES),
    PAIR(kSchemaHasSchemaId, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID),
    PAIR(kSchemaHasStaticSize, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE),
    PAIR(kSchemaHasType, NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE),
    PAIR(kSchemaIdDynamicStart, NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START),
    PAIR(kSchemaIdStaticStart, NVTX_PAYLOAD_SCHEMA_ID_STATIC_START),
    PAIR(kSchemaTypeUnion, NVTX_PAYLOAD_SCHEMA_TYPE_UNION),
};
// clang-format on

TEST(PayloadAbi, NumbersAreThoseOfNvtx) {
  for (const Pair& pair : kPairs) EXPECT_EQ(pair.ours, pair.theirs) << pair.name;
}

}  // namespace
}  // namespace gpuprobe::injector::nvtx::abi
