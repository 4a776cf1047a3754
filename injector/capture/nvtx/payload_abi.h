// The binary interface of NVTX's payload extension: the structs that programs pass, as in NVTX 3.2.
//
// Not taken from nvToolsExtPayload.h, because CUDA toolkits up to 12.x lack that header, while programs carry
// their own copy of NVTX: what we understand must not depend on the toolkit we were built with.
// tests/injector/capture/nvtx/payloads_test.cc compares it with the header. Nothing runs here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nvtx::abi {

struct PayloadData {
  uint64_t schema_id;
  size_t size;  // SIZE_MAX: the layout says
  const void* payload;
};

struct SchemaEntry {
  uint64_t flags;
  uint64_t type;  // predefined, or another layout's id
  const char* name;
  const char* description;
  uint64_t detail;  // of an array: its length; of a union: its selector
  uint64_t offset;
  const void* semantics;
  const void* reserved;
};

struct SchemaAttributes {
  uint64_t field_mask;
  const char* name;
  uint64_t type;
  uint64_t flags;
  const SchemaEntry* entries;
  size_t entry_count;
  size_t static_size;
  size_t pack_align;
  uint64_t schema_id;
  void* extension;
};

struct EnumAttributes {
  uint64_t field_mask;
  const char* name;
  const void* entries;
  size_t entry_count;
  size_t enum_size;
  uint64_t schema_id;
  void* extension;
};

struct Segment {
  size_t id;
  size_t slot_count;
  intptr_t* slots;
};

struct Module {
  uint16_t nvtx_version;
  uint16_t struct_size;
  uint16_t module_id;
  uint16_t compat_id;
  size_t segment_count;
  Segment* segments;
  const void* (*get_export)(uint32_t id);
  const void* info;
};

inline constexpr uint16_t kPayloadModule = 2;
// A value of nvtxEventAttributes_t::payloadType: a list of `reserved0` PayloadData.
inline constexpr int32_t kPayloadTypeExtended = static_cast<int32_t>(0xDFBD0009u);

// Places in a segment's slots.
enum Slot : size_t {
  kSchemaRegister,
  kEnumRegister,
  kMarkPayload,
  kRangePushPayload,
  kRangePopPayload,
  kRangeStartPayload,
  kRangeEndPayload,
  kDomainIsEnabled,
};

// Entry::type.
inline constexpr uint64_t kTypeChar = 1;
inline constexpr uint64_t kTypeUchar = 2;
inline constexpr uint64_t kTypeShort = 3;
inline constexpr uint64_t kTypeUshort = 4;
inline constexpr uint64_t kTypeInt = 5;
inline constexpr uint64_t kTypeUint = 6;
inline constexpr uint64_t kTypeLong = 7;
inline constexpr uint64_t kTypeUlong = 8;
inline constexpr uint64_t kTypeLonglong = 9;
inline constexpr uint64_t kTypeUlonglong = 10;
inline constexpr uint64_t kTypeInt8 = 11;
inline constexpr uint64_t kTypeUint8 = 12;
inline constexpr uint64_t kTypeInt16 = 13;
inline constexpr uint64_t kTypeUint16 = 14;
inline constexpr uint64_t kTypeInt32 = 15;
inline constexpr uint64_t kTypeUint32 = 16;
inline constexpr uint64_t kTypeInt64 = 17;
inline constexpr uint64_t kTypeUint64 = 18;
inline constexpr uint64_t kTypeFloat = 19;
inline constexpr uint64_t kTypeDouble = 20;
inline constexpr uint64_t kTypeLongdouble = 21;
inline constexpr uint64_t kTypeSize = 22;
inline constexpr uint64_t kTypeAddress = 23;
inline constexpr uint64_t kTypeWchar = 24;
inline constexpr uint64_t kTypeChar8 = 25;
inline constexpr uint64_t kTypeChar16 = 26;
inline constexpr uint64_t kTypeChar32 = 27;
inline constexpr uint64_t kTypeByte = 32;
inline constexpr uint64_t kTypeInt128 = 33;
inline constexpr uint64_t kTypeUint128 = 34;
inline constexpr uint64_t kTypeFloat16 = 42;
inline constexpr uint64_t kTypeFloat32 = 43;
inline constexpr uint64_t kTypeFloat64 = 44;
inline constexpr uint64_t kTypeFloat128 = 45;
inline constexpr uint64_t kTypeBf16 = 50;
inline constexpr uint64_t kTypeTf32 = 52;
inline constexpr uint64_t kTypeCategory = 68;
inline constexpr uint64_t kTypeColorArgb = 69;
inline constexpr uint64_t kTypeScopeId = 70;
inline constexpr uint64_t kTypePidUint32 = 71;
inline constexpr uint64_t kTypePidUint64 = 72;
inline constexpr uint64_t kTypeTidUint32 = 73;
inline constexpr uint64_t kTypeTidUint64 = 74;
inline constexpr uint64_t kTypeCstring = 75;
inline constexpr uint64_t kTypeCstringUtf8 = 76;
inline constexpr uint64_t kTypeCstringUtf16 = 77;
inline constexpr uint64_t kTypeCstringUtf32 = 78;
inline constexpr uint64_t kTypeNvtxRegisteredStringHandle = 80;

// Entry::flags.
inline constexpr uint64_t kEntryPointer = 2;
inline constexpr uint64_t kEntryOffsetFromBase = 4;
inline constexpr uint64_t kEntryOffsetFromHere = 8;
inline constexpr uint64_t kEntryArrayFixedSize = 16;
inline constexpr uint64_t kEntryHide = 512;

// bits of field_mask, and values.
inline constexpr uint64_t kSchemaHasName = 2;
inline constexpr uint64_t kSchemaTypeUnion = 3;
inline constexpr uint64_t kSchemaHasType = 4;
inline constexpr uint64_t kEnumHasSize = 16;
inline constexpr uint64_t kSchemaHasEntries = 16;
inline constexpr uint64_t kEnumHasSchemaId = 32;
inline constexpr uint64_t kSchemaHasNumEntries = 32;
inline constexpr uint64_t kSchemaHasStaticSize = 64;
inline constexpr uint64_t kSchemaHasAlignment = 128;
inline constexpr uint64_t kSchemaHasSchemaId = 256;
inline constexpr uint64_t kSchemaIdStaticStart = 16777216;
inline constexpr uint64_t kSchemaIdDynamicStart = 4294967296;

}  // namespace gpuprobe::injector::nvtx::abi
