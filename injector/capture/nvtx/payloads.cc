#include "injector/capture/nvtx/payloads.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

#include "injector/base/losses.h"
#include "injector/base/own_memory.h"
#include "injector/base/text.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/payload_abi.h"

namespace gpuprobe::injector::nvtx {

namespace {

enum class Number : uint8_t { kNone, kUnsigned, kSigned, kFloat };

// How a predefined type lies in memory. Size 0: not known beforehand.
struct Layout {
  uint16_t size = 0;
  uint16_t align = 0;
  Number number = Number::kNone;
};

struct Field {
  uint16_t offset;
  uint8_t size;
  Number number;
  uint32_t name_bytes;
  char name[kMaxFieldName];
};

struct Schema {
  std::atomic<uint32_t> ready;  // 1: it can be read
  uint16_t domain;
  bool is_enum;
  uint16_t align;
  uint64_t static_id;    // 0: it has only ours
  uint32_t first_field;  // in `fields`
  uint32_t field_count;
  uint32_t extent;     // bytes up to the end of its last field
  size_t total_bytes;  // of the whole layout; 0: not known
  uint32_t name_bytes;
  char name[kMaxFieldName];
};

constinit Schema schemas[kMaxSchemas] = {};
constinit std::atomic<uint32_t> schema_count{0};  // places that were given out
constinit Field fields[kMaxFields] = {};
constinit std::atomic<uint32_t> field_count{0};

// A name of the program's, cut, in `space`; none when it cannot be read.
using NameSpace = char[kMaxFieldName];
std::string_view ReadName(const char* name, NameSpace& space) noexcept {
  const ptrdiff_t size = CopyText(name, space, sizeof(space));
  if (size >= 0) return {space, static_cast<size_t>(size)};
  CountLoss(wire::LossReason::kLossUnreadable);
  return {};
}

template <typename T>
bool ReadStruct(const void* from, T* to, size_t bytes = sizeof(T)) noexcept {
  if (from != nullptr && ReadMemory(from, to, bytes) == ReadResult::kRead) return true;
  if (from != nullptr) CountLoss(wire::LossReason::kLossUnreadable);
  return false;
}

template <size_t kCapacity>
uint32_t Copy(std::string_view text, char (&out)[kCapacity]) noexcept {
  const size_t count = std::min(text.size(), kCapacity);
  std::copy_n(text.data(), count, out);
  return static_cast<uint32_t>(count);
}

template <typename T>
constexpr Layout LayoutOf(Number number) noexcept {
  return {sizeof(T), alignof(T), number};
}

// The predefined types; C's have the sizes of this platform, which is the program's.
constexpr Layout PredefinedLayout(uint64_t type) noexcept {
  switch (type) {
    case abi::kTypeChar:
      return LayoutOf<char>(Number::kSigned);
    case abi::kTypeUchar:
    case abi::kTypeUint8:
    case abi::kTypeByte:
      return LayoutOf<uint8_t>(Number::kUnsigned);
    case abi::kTypeInt8:
      return LayoutOf<int8_t>(Number::kSigned);
    case abi::kTypeShort:
    case abi::kTypeInt16:
      return LayoutOf<int16_t>(Number::kSigned);
    case abi::kTypeUshort:
    case abi::kTypeUint16:
      return LayoutOf<uint16_t>(Number::kUnsigned);
    case abi::kTypeInt:
    case abi::kTypeInt32:
      return LayoutOf<int32_t>(Number::kSigned);
    case abi::kTypeUint:
    case abi::kTypeUint32:
    case abi::kTypeCategory:
    case abi::kTypeColorArgb:
    case abi::kTypePidUint32:
    case abi::kTypeTidUint32:
      return LayoutOf<uint32_t>(Number::kUnsigned);
    case abi::kTypeLong:
      return LayoutOf<long>(Number::kSigned);  // NOLINT(google-runtime-int): C's
    case abi::kTypeUlong:
      return LayoutOf<unsigned long>(Number::kUnsigned);  // NOLINT(google-runtime-int): C's
    case abi::kTypeLonglong:
    case abi::kTypeInt64:
      return LayoutOf<int64_t>(Number::kSigned);
    case abi::kTypeUlonglong:
    case abi::kTypeUint64:
    case abi::kTypeScopeId:
    case abi::kTypePidUint64:
    case abi::kTypeTidUint64:
      return LayoutOf<uint64_t>(Number::kUnsigned);
    case abi::kTypeSize:
      return LayoutOf<size_t>(Number::kUnsigned);
    case abi::kTypeFloat:
    case abi::kTypeFloat32:
      return LayoutOf<float>(Number::kFloat);
    case abi::kTypeDouble:
    case abi::kTypeFloat64:
      return LayoutOf<double>(Number::kFloat);
    // These take room but hold no useful number.
    case abi::kTypeAddress:
    case abi::kTypeNvtxRegisteredStringHandle:
    case abi::kTypeCstring:
    case abi::kTypeCstringUtf8:
    case abi::kTypeCstringUtf16:
    case abi::kTypeCstringUtf32:
      return LayoutOf<void*>(Number::kNone);
    case abi::kTypeWchar:
      return LayoutOf<wchar_t>(Number::kNone);
    case abi::kTypeChar8:
      return LayoutOf<char>(Number::kNone);
    case abi::kTypeChar16:
    case abi::kTypeFloat16:
    case abi::kTypeBf16:
      return LayoutOf<uint16_t>(Number::kNone);
    case abi::kTypeChar32:
    case abi::kTypeTf32:
      return LayoutOf<uint32_t>(Number::kNone);
    case abi::kTypeLongdouble:
      return LayoutOf<long double>(Number::kNone);
    case abi::kTypeInt128:
    case abi::kTypeUint128:
    case abi::kTypeFloat128:
      return {16, 16, Number::kNone};
    default:
      return {};
  }
}

bool IsText(uint64_t type) noexcept { return type >= abi::kTypeCstring && type <= abi::kTypeCstringUtf32; }

// A schema's place, from 1; 0: none such.
uint32_t FindSchema(uint16_t domain, uint64_t id) noexcept {
  const uint32_t count = std::min<uint32_t>(schema_count.load(std::memory_order_acquire), kMaxSchemas);
  if (id >= abi::kSchemaIdDynamicStart) {
    const uint64_t place = id - abi::kSchemaIdDynamicStart;
    if (place == 0 || place > count) return 0;
    return schemas[place - 1].ready.load(std::memory_order_acquire) != 0 ? static_cast<uint32_t>(place) : 0;
  }
  if (id < abi::kSchemaIdStaticStart) return 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Schema& schema = schemas[i];
    if (schema.ready.load(std::memory_order_acquire) != 0 && schema.static_id == id &&
        schema.domain == domain)
      return i + 1;
  }
  return 0;
}

Schema* ClaimSchema(uint32_t* place) noexcept {
  const uint32_t index = schema_count.fetch_add(1, std::memory_order_acq_rel);
  if (index >= kMaxSchemas) {
    schema_count.store(kMaxSchemas, std::memory_order_release);
    CountLoss(wire::LossReason::kLossDefinitionsFull);
    return nullptr;
  }
  *place = index + 1;
  return &schemas[index];
}

// A known static id stays what it is: a library may register its layouts once in each of its copies.
uint64_t KnownStatic(uint16_t domain, uint64_t id) noexcept {
  return id >= abi::kSchemaIdStaticStart && FindSchema(domain, id) != 0 ? id : 0;
}

uint64_t Publish(Schema& schema, uint32_t place) noexcept {
  schema.ready.store(1, std::memory_order_release);
  return schema.static_id != 0 ? schema.static_id : abi::kSchemaIdDynamicStart + place;
}

size_t AlignUp(size_t offset, size_t align) noexcept {
  return align <= 1 ? offset : (offset + align - 1) / align * align;
}

// Fields are collected here and moved into the common table when all are known.
class Collector {
 public:
  static constexpr size_t kMost = 128;

  void Add(size_t offset, const Layout& layout, std::string_view outer, std::string_view name) noexcept {
    if (count_ == kMost || offset + layout.size > kMaxPayloadBytes) {
      CountLoss(wire::LossReason::kLossDefinitionsFull);
      return;
    }
    Field& field = fields_[count_++];
    field.offset = static_cast<uint16_t>(offset);
    field.size = static_cast<uint8_t>(layout.size);
    field.number = layout.number;
    TextBuffer<kMaxFieldName + 1> full;
    if (!outer.empty()) full.Add(outer).Add(name.empty() ? "" : ".");
    full.Add(name);
    field.name_bytes = Copy(full.view(), field.name);
    extent_ = std::max(extent_, offset + layout.size);
  }
  void Nest(size_t offset, std::string_view name, const Schema& inner) noexcept {
    for (uint32_t i = 0; i < inner.field_count; ++i) {
      const Field& field = fields[inner.first_field + i];
      Add(offset + field.offset, {field.size, 1, field.number}, name, {field.name, field.name_bytes});
    }
  }
  bool MoveTo(Schema* schema) const noexcept {
    const auto count = static_cast<uint32_t>(count_);
    const uint32_t first = field_count.fetch_add(count, std::memory_order_relaxed);
    if (first + count > kMaxFields) {
      field_count.fetch_sub(count, std::memory_order_relaxed);
      CountLoss(wire::LossReason::kLossDefinitionsFull);
      return false;
    }
    std::copy_n(fields_, count_, fields + first);
    schema->first_field = first;
    schema->field_count = count;
    schema->extent = static_cast<uint32_t>(extent_);
    return true;
  }

 private:
  Field fields_[kMost];
  size_t count_ = 0;
  size_t extent_ = 0;
};

// Where an entry lies and how much room it takes; a size of 0: from here on only entries that name their
// place can be found.
class Walker {
 public:
  Walker(uint16_t domain, size_t pack) noexcept : domain_(domain), pack_(pack) {}

  void Take(const abi::SchemaEntry& entry, bool first, Collector* out) noexcept {
    const uint32_t inner_place = FindSchema(domain_, entry.type);
    const Schema* inner = inner_place == 0 ? nullptr : &schemas[inner_place - 1];
    Layout layout = PredefinedLayout(entry.type);
    size_t size = layout.size;
    if (inner != nullptr) {
      layout = {0, inner->align, Number::kNone};
      size = inner->total_bytes;
    }
    constexpr uint64_t kElsewhere =
        abi::kEntryPointer | abi::kEntryOffsetFromBase | abi::kEntryOffsetFromHere;
    constexpr uint64_t kArray = 7 << 4;
    bool plain = true;  // the value itself is here
    if ((entry.flags & abi::kEntryPointer) != 0) {
      layout = LayoutOf<void*>(Number::kNone);
      size = layout.size;
      plain = false;
    } else if ((entry.flags & kElsewhere) != 0) {
      plain = false;  // an offset stands here, of the entry's own type
    } else if ((entry.flags & kArray) != 0 || (IsText(entry.type) && entry.detail != 0)) {
      plain = false;
      const bool fixed = (entry.flags & kArray) == abi::kEntryArrayFixedSize;
      const bool bounded = entry.detail <= kMaxPayloadBytes;
      // A text of a given length is that many characters here, which not every program takes for bytes.
      size = fixed && bounded && !IsText(entry.type) ? size * static_cast<size_t>(entry.detail) : 0;
    }
    if (entry.offset != 0 || first) {
      at_ = entry.offset;
      known_ = entry.offset <= kMaxPayloadBytes;
    } else if (known_) {
      at_ = AlignUp(at_, pack_ == 0 ? layout.align : std::min<size_t>(layout.align, pack_));
    }
    if (layout.align > align_) align_ = layout.align;
    NameSpace name;
    if (known_ && plain && inner != nullptr && !inner->is_enum) {
      out->Nest(at_, ReadName(entry.name, name), *inner);
    } else if (known_ && plain && (layout.number != Number::kNone || inner != nullptr)) {
      const Layout number =
          inner == nullptr ? layout : Layout{static_cast<uint16_t>(inner->total_bytes), 1, Number::kUnsigned};
      if ((entry.flags & abi::kEntryHide) == 0 && number.size != 0)
        out->Add(at_, number, {}, ReadName(entry.name, name));
    }
    known_ = known_ && size != 0;
    whole_ = whole_ && known_;
    at_ += size;
    end_ = std::max(end_, at_);
  }
  size_t align() const noexcept { return align_; }
  // 0: not known.
  size_t total() const noexcept {
    return whole_ ? AlignUp(end_, pack_ == 0 ? align_ : std::min(align_, pack_)) : 0;
  }

 private:
  uint16_t domain_;
  size_t pack_;
  size_t at_ = 0;
  size_t end_ = 0;
  size_t align_ = 1;
  bool known_ = true;
  bool whole_ = true;
};

bool Has(uint64_t mask, uint64_t field) noexcept { return (mask & field) != 0; }

}  // namespace

uint64_t RegisterSchema(const void* domain, const void* attributes) noexcept {
  abi::SchemaAttributes a;
  if (!ReadStruct(attributes, &a, offsetof(abi::SchemaAttributes, extension))) return 0;
  constexpr uint64_t kNeeded = abi::kSchemaHasEntries | abi::kSchemaHasNumEntries;
  constexpr size_t kMostEntries = 1024;
  if ((a.field_mask & kNeeded) != kNeeded || a.entries == nullptr || a.entry_count > kMostEntries) return 0;
  const uint16_t index = DomainIndex(domain);
  const uint64_t static_id = Has(a.field_mask, abi::kSchemaHasSchemaId) ? a.schema_id : 0;
  if (const uint64_t known = KnownStatic(index, static_id); known != 0) return known;
  Collector collected;
  const size_t pack = Has(a.field_mask, abi::kSchemaHasAlignment) ? a.pack_align : 0;
  Walker walker(index, pack);
  // Only one of a union's members is valid, and we do not know which, so none is reported.
  const bool is_union = Has(a.field_mask, abi::kSchemaHasType) && a.type >= abi::kSchemaTypeUnion;
  for (size_t i = 0; i < a.entry_count && !is_union; ++i) {
    abi::SchemaEntry entry;
    if (!ReadStruct(a.entries + i, &entry)) return 0;
    walker.Take(entry, i == 0, &collected);
  }
  uint32_t place = 0;
  Schema* schema = ClaimSchema(&place);
  if (schema == nullptr || !collected.MoveTo(schema)) return 0;
  schema->domain = index;
  schema->is_enum = false;
  schema->align = static_cast<uint16_t>(walker.align());
  schema->static_id = static_id >= abi::kSchemaIdStaticStart ? static_id : 0;
  const bool sized = Has(a.field_mask, abi::kSchemaHasStaticSize) && a.static_size != 0;
  schema->total_bytes = sized ? a.static_size : is_union ? 0 : walker.total();
  const bool named = Has(a.field_mask, abi::kSchemaHasName);
  NameSpace name;
  schema->name_bytes = Copy(ReadName(named ? a.name : nullptr, name), schema->name);
  return Publish(*schema, place);
}

uint64_t RegisterEnum(const void* domain, const void* attributes) noexcept {
  abi::EnumAttributes a;
  if (!ReadStruct(attributes, &a, offsetof(abi::EnumAttributes, extension))) return 0;
  const uint16_t index = DomainIndex(domain);
  const uint64_t static_id = Has(a.field_mask, abi::kEnumHasSchemaId) ? a.schema_id : 0;
  if (const uint64_t known = KnownStatic(index, static_id); known != 0) return known;
  const size_t size = Has(a.field_mask, abi::kEnumHasSize) && a.enum_size != 0 ? a.enum_size : sizeof(int);
  if (size > sizeof(uint64_t) || std::popcount(size) != 1) return 0;
  uint32_t place = 0;
  Schema* schema = ClaimSchema(&place);
  if (schema == nullptr) return 0;
  schema->domain = index;
  schema->is_enum = true;
  schema->align = static_cast<uint16_t>(size);
  schema->static_id = static_id >= abi::kSchemaIdStaticStart ? static_id : 0;
  schema->field_count = 0;
  schema->extent = 0;
  schema->total_bytes = size;
  schema->name_bytes = 0;
  return Publish(*schema, place);
}

PayloadBytes FindPayload(const void* domain, const abi::PayloadData& data) noexcept {
  const uint32_t place = FindSchema(DomainIndex(domain), data.schema_id);
  if (place == 0 || data.payload == nullptr) return {};
  const Schema& schema = schemas[place - 1];
  // SIZE_MAX: the size follows from the layout.
  const size_t size = data.size == SIZE_MAX ? schema.total_bytes : data.size;
  return {place, static_cast<uint32_t>(std::min<size_t>(size, schema.extent)), data.payload};
}

std::string_view SchemaName(uint32_t schema) noexcept {
  if (schema == 0 || schema > kMaxSchemas) return {};
  return {schemas[schema - 1].name, schemas[schema - 1].name_bytes};
}

bool TakeField(uint32_t schema, size_t field, std::string_view bytes, PayloadField* out) noexcept {
  if (schema == 0 || schema > kMaxSchemas || field >= schemas[schema - 1].field_count) return false;
  const Field& place = fields[schemas[schema - 1].first_field + field];
  *out = {};
  if (size_t{place.offset} + place.size > bytes.size()) return true;  // the program passed less
  uint64_t raw = 0;
  std::memcpy(&raw, bytes.data() + place.offset, place.size);
  out->name = {place.name, place.name_bytes};
  const int unused_bits = 64 - 8 * place.size;
  switch (place.number) {
    case Number::kUnsigned:
      out->kind = wire::PayloadKind::kPayloadKindUint64;
      out->value = raw;
      break;
    case Number::kSigned:
      out->kind = wire::PayloadKind::kPayloadKindInt64;
      out->value = static_cast<uint64_t>(static_cast<int64_t>(raw << unused_bits) >> unused_bits);
      break;
    case Number::kFloat:
      out->kind = wire::PayloadKind::kPayloadKindDouble;
      out->value = place.size == sizeof(float)
                       ? std::bit_cast<uint64_t>(double{std::bit_cast<float>(static_cast<uint32_t>(raw))})
                       : raw;
      break;
    case Number::kNone:
      break;
  }
  return true;
}

}  // namespace gpuprobe::injector::nvtx
