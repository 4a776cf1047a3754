#include "injector/capture/nvtx/arguments.h"

#include <nvtx3/nvToolsExt.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "injector/base/losses.h"
#include "injector/base/own_memory.h"
#include "injector/base/text.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/core/program_memory.h"

namespace gpuprobe::injector::nvtx {

namespace {

// Texts are read with one byte more than the limit. A longer one is cut at a whole UTF-8 character, or at the
// limit if it is not UTF-8.
constexpr size_t kLongText = kMaxNameBytes + 1;
size_t CutSize(std::string_view text) noexcept {
  if (text.size() <= kMaxNameBytes) return text.size();
  size_t whole = kMaxNameBytes;
  const auto continues = [text](size_t at) noexcept { return (text[at] & 0xc0) == 0x80; };
  while (kMaxNameBytes - whole < 3 && continues(whole)) --whole;
  return continues(whole) ? kMaxNameBytes : whole;
}

// Wide text as UTF-8 in `to`, cut at a whole character.
size_t Narrow(const wchar_t* wide, size_t count, char* to, size_t capacity) noexcept {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) {
    auto code = static_cast<uint32_t>(wide[i]);  // NOLINT(bugprone-signed-char-misuse): 32 bits
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code > 0x10ffff || is_surrogate) code = 0xfffd;  // what is no character
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (size + length > capacity) break;
    constexpr uint32_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    to[size++] = static_cast<char>(length == 1 ? code : kLead[length] | (code >> (6 * (length - 1))));
    for (size_t left = length - 1; left > 0; --left)
      to[size++] = static_cast<char>(0x80 | ((code >> (6 * (left - 1))) & 0x3f));
  }
  return size;
}

// The size of the text in `to`, -1 when it cannot be read.
ptrdiff_t ReadWide(const wchar_t* text, char* to, size_t capacity) noexcept {
  wchar_t wide[kMaxNameBytes];
  const ptrdiff_t count = CopyText(text, wide, kMaxNameBytes);
  return count < 0 ? count : static_cast<ptrdiff_t>(Narrow(wide, static_cast<size_t>(count), to, capacity));
}

void ReadNarrowText(ThreadState& thread, const void* text, RangeText* what) noexcept {
  std::string_view whole;
  const bool read = TextOfProgram(thread, static_cast<const char*>(text), what->space, kLongText, &whole);
  what->text = read ? Slice(whole, 0, CutSize(whole)) : kUnreadable;
}

void ReadWideText(const void* text, RangeText* what) noexcept {
  const ptrdiff_t size = ReadWide(static_cast<const wchar_t*>(text), what->space, kMaxNameBytes);
  what->text = size < 0 ? kUnreadable : std::string_view(what->space, static_cast<size_t>(size));
}

void ReadPayload(const nvtxEventAttributes_t& attributes, RangeText* what) noexcept {
  using enum wire::PayloadKind;
  switch (attributes.payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      what->payload_kind = kPayloadKindUint64;
      what->payload = attributes.payload.ullValue;
      return;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      what->payload_kind = kPayloadKindUint64;
      what->payload = attributes.payload.uiValue;
      return;
    case NVTX_PAYLOAD_TYPE_INT64:
      what->payload_kind = kPayloadKindInt64;
      what->payload = static_cast<uint64_t>(attributes.payload.llValue);
      return;
    case NVTX_PAYLOAD_TYPE_INT32:
      what->payload_kind = kPayloadKindInt64;
      what->payload = static_cast<uint64_t>(int64_t{attributes.payload.iValue});
      return;
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      what->payload_kind = kPayloadKindDouble;
      what->payload = std::bit_cast<uint64_t>(attributes.payload.dValue);
      return;
    case NVTX_PAYLOAD_TYPE_FLOAT:
      what->payload_kind = kPayloadKindDouble;
      what->payload = std::bit_cast<uint64_t>(double{attributes.payload.fValue});
      return;
    default:
      break;
  }
  if (static_cast<int32_t>(attributes.payloadType) != abi::kPayloadTypeExtended || attributes.reserved0 <= 0)
    return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): NVTX passes the address as a number
  what->extended = reinterpret_cast<const abi::PayloadData*>(attributes.payload.ullValue);
  what->extended_count = static_cast<size_t>(attributes.reserved0);
}

// Programs of other NVTX versions have the same fields at the same places.
void ReadAttributes(ThreadState& thread, const Passed& passed, RangeText* what) noexcept {
  if (passed.place == nullptr) return;
  nvtxEventAttributes_t attributes;
  if (!CopyFromProgram(thread, passed.place, &attributes, sizeof(attributes))) {
    what->text = kUnreadable;
    return;
  }
  if (attributes.size < offsetof(nvtxEventAttributes_t, message)) return;
  what->category = attributes.category;
  if (attributes.colorType == NVTX_COLOR_ARGB) what->color = attributes.color;
  ReadPayload(attributes, what);
  switch (attributes.messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return ReadNarrowText(thread, attributes.message.ascii, what);
    case NVTX_MESSAGE_TYPE_REGISTERED:
      what->text = RegisteredText(attributes.message.registered);
      return;
    case NVTX_MESSAGE_TYPE_UNICODE:
      return ReadWideText(attributes.message.unicode, what);
    default:
      return;
  }
}

void ReadPayloads(ThreadState& thread, const Passed& passed, RangeText* what) noexcept {
  if (passed.place == nullptr || passed.count == 0) return;
  what->extended = static_cast<const abi::PayloadData*>(passed.place);
  what->extended_count = passed.count;
  abi::PayloadData first;
  if (CopyFromProgram(thread, passed.place, &first, sizeof(first)))
    what->text = SchemaName(FindPayload(passed.domain, first).schema);
}

}  // namespace

Passed PassedText(const char* text) noexcept {
  return {[](ThreadState& thread, const Passed& passed, RangeText* what) noexcept {
            ReadNarrowText(thread, passed.place, what);
          },
          text};
}

Passed PassedText(const wchar_t* text) noexcept {
  return {
      [](ThreadState&, const Passed& passed, RangeText* what) noexcept { ReadWideText(passed.place, what); },
      text};
}

Passed PassedAttributes(const void* attributes) noexcept { return {ReadAttributes, attributes}; }

Passed PassedPayloads(const void* domain, const abi::PayloadData* data, size_t count) noexcept {
  return {ReadPayloads, data, count, domain};
}

DefinitionText::DefinitionText(const char* text) noexcept {
  const ptrdiff_t size = CopyText(text, space_, sizeof(space_));
  Take(size < 0 ? size : static_cast<ptrdiff_t>(CutSize({space_, static_cast<size_t>(size)})));
}

DefinitionText::DefinitionText(const wchar_t* text) noexcept { Take(ReadWide(text, space_, kMaxNameBytes)); }

void DefinitionText::Take(ptrdiff_t size) noexcept {
  readable_ = size >= 0;
  if (readable_) {
    size_ = static_cast<size_t>(size);
  } else {
    CountLoss(wire::LossReason::kLossUnreadable);
  }
}

}  // namespace gpuprobe::injector::nvtx
