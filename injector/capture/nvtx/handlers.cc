#include "injector/capture/nvtx/handlers.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <bit>
#include <cstddef>
#include <cstring>

#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/names.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/capture/nvtx/ranges.h"
#include "injector/core/events.h"

namespace gpuprobe::injector::nvtx {

namespace {

// Cut, if it is, at a whole character of UTF-8: text that is none is cut where it is.
std::string_view Text(const char* text) noexcept {
  if (text == nullptr) return {};
  const size_t length = strnlen(text, kMaxNameBytes);
  size_t whole = length;
  const auto continues = [text](size_t at) noexcept {
    return (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80;
  };
  while (length == kMaxNameBytes && length - whole < 3 && continues(whole)) --whole;
  return {text, continues(whole) ? length : whole};
}

// Wide text as UTF-8, cut at a whole character.
class NarrowText {
 public:
  explicit NarrowText(const wchar_t* text) noexcept {
    for (; text != nullptr && *text != L'\0'; ++text) {
      if (!Append(static_cast<uint32_t>(*text))) return;
    }
  }
  std::string_view View() const noexcept { return {bytes_, size_}; }

 private:
  bool Append(uint32_t code) noexcept {
    const bool is_surrogate = code >= 0xd800 && code < 0xe000;
    if (code > 0x10ffff || is_surrogate) code = 0xfffd;  // what is no character
    const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (size_ + length > sizeof(bytes_)) return false;
    if (length == 1) {
      bytes_[size_++] = static_cast<char>(code);
      return true;
    }
    constexpr uint32_t kLead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    bytes_[size_++] = static_cast<char>(kLead[length] | (code >> (6 * (length - 1))));
    for (size_t left = length - 1; left > 0; --left) {
      bytes_[size_++] = static_cast<char>(0x80 | ((code >> (6 * (left - 1))) & 0x3f));
    }
    return true;
  }

  char bytes_[kMaxNameBytes];
  size_t size_ = 0;
};

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

// Calls use(RangeText) with what the attributes say; programs of other NVTX versions have the same fields at
// the same places.
template <typename Use>
auto WithAttributes(const nvtxEventAttributes_t* attributes, Use use) noexcept {
  RangeText what;
  if (attributes == nullptr || attributes->size < offsetof(nvtxEventAttributes_t, message)) return use(what);
  what.category = attributes->category;
  if (attributes->colorType == NVTX_COLOR_ARGB) what.color = attributes->color;
  ReadPayload(*attributes, &what);
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      what.text = Text(attributes->message.ascii);
      return use(what);
    case NVTX_MESSAGE_TYPE_REGISTERED:
      what.text = RegisteredText(attributes->message.registered);
      return use(what);
    case NVTX_MESSAGE_TYPE_UNICODE: {
      const NarrowText narrow(attributes->message.unicode);
      what.text = narrow.View();
      return use(what);
    }
    default:
      return use(what);
  }
}

void MarkEx(const nvtxEventAttributes_t* attributes) noexcept {
  WithAttributes(attributes, [](const RangeText& what) noexcept { Mark(nullptr, what); });
}
void MarkA(const char* message) noexcept { Mark(nullptr, {Text(message)}); }
void MarkW(const wchar_t* message) noexcept { Mark(nullptr, {NarrowText(message).View()}); }

nvtxRangeId_t RangeStartEx(const nvtxEventAttributes_t* attributes) noexcept {
  return WithAttributes(attributes, [](const RangeText& what) noexcept { return Start(nullptr, what); });
}
nvtxRangeId_t RangeStartA(const char* message) noexcept { return Start(nullptr, {Text(message)}); }
nvtxRangeId_t RangeStartW(const wchar_t* message) noexcept {
  return Start(nullptr, {NarrowText(message).View()});
}
void RangeEnd(nvtxRangeId_t id) noexcept { End(id); }

int RangePushEx(const nvtxEventAttributes_t* attributes) noexcept {
  return WithAttributes(attributes, [](const RangeText& what) noexcept { return Push(nullptr, what); });
}
int RangePushA(const char* message) noexcept { return Push(nullptr, {Text(message)}); }
int RangePushW(const wchar_t* message) noexcept { return Push(nullptr, {NarrowText(message).View()}); }
int RangePop() noexcept { return Pop(nullptr); }

void DomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) noexcept {
  WithAttributes(attributes, [domain](const RangeText& what) noexcept { Mark(domain, what); });
}
nvtxRangeId_t DomainRangeStartEx(nvtxDomainHandle_t domain,
                                 const nvtxEventAttributes_t* attributes) noexcept {
  return WithAttributes(attributes, [domain](const RangeText& what) noexcept { return Start(domain, what); });
}
void DomainRangeEnd(nvtxDomainHandle_t, nvtxRangeId_t id) noexcept { End(id); }
int DomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) noexcept {
  return WithAttributes(attributes, [domain](const RangeText& what) noexcept { return Push(domain, what); });
}
int DomainRangePop(nvtxDomainHandle_t domain) noexcept { return Pop(domain); }

nvtxStringHandle_t DomainRegisterStringA(nvtxDomainHandle_t, const char* text) noexcept {
  return static_cast<nvtxStringHandle_t>(RegisterString(Text(text)));
}
nvtxStringHandle_t DomainRegisterStringW(nvtxDomainHandle_t, const wchar_t* text) noexcept {
  return static_cast<nvtxStringHandle_t>(RegisterString(NarrowText(text).View()));
}
nvtxDomainHandle_t DomainCreateA(const char* name) noexcept {
  return static_cast<nvtxDomainHandle_t>(CreateDomain(Text(name)));
}
nvtxDomainHandle_t DomainCreateW(const wchar_t* name) noexcept {
  return static_cast<nvtxDomainHandle_t>(CreateDomain(NarrowText(name).View()));
}
void DomainDestroy(nvtxDomainHandle_t domain) noexcept { DestroyDomain(domain); }

void NameOsThreadA(uint32_t tid, const char* name) noexcept { NameThread(tid, Text(name)); }
void NameOsThreadW(uint32_t tid, const wchar_t* name) noexcept { NameThread(tid, NarrowText(name).View()); }

void NameCategoryA(uint32_t category, const char* name) noexcept {
  NameCategory(nullptr, category, Text(name));
}
void NameCategoryW(uint32_t category, const wchar_t* name) noexcept {
  NameCategory(nullptr, category, NarrowText(name).View());
}
void DomainNameCategoryA(nvtxDomainHandle_t domain, uint32_t category, const char* name) noexcept {
  NameCategory(domain, category, Text(name));
}
void DomainNameCategoryW(nvtxDomainHandle_t domain, uint32_t category, const wchar_t* name) noexcept {
  NameCategory(domain, category, NarrowText(name).View());
}

void NameAnyDeviceA(int device, const char* name) noexcept {
  NameDevice(static_cast<uint32_t>(device), Text(name));
}
void NameAnyDeviceW(int device, const wchar_t* name) noexcept {
  NameDevice(static_cast<uint32_t>(device), NarrowText(name).View());
}
// cudaStream_t and CUstream are the same.
void NameAnyStreamA(const void* stream, const char* name) noexcept { NameStream(stream, Text(name)); }
void NameAnyStreamW(const void* stream, const wchar_t* name) noexcept {
  NameStream(stream, NarrowText(name).View());
}

void NameResource(int32_t type, uint64_t identifier, std::string_view name) noexcept {
  switch (type) {
    case NVTX_RESOURCE_TYPE_CUDA_STREAM:
    case NVTX_RESOURCE_TYPE_CUDART_STREAM:
      // NOLINTNEXTLINE(performance-no-int-to-ptr): NVTX passes handles as numbers
      return NameStream(reinterpret_cast<const void*>(identifier), name);
    case NVTX_RESOURCE_TYPE_CUDA_DEVICE:
    case NVTX_RESOURCE_TYPE_CUDART_DEVICE:
      return NameDevice(static_cast<uint32_t>(identifier), name);
    case NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE:
      return NameThread(static_cast<uint32_t>(identifier), name);
    default:
      return;
  }
}

// The program only gives the handle back.
constinit char resource_handle = 0;

nvtxResourceHandle_t DomainResourceCreate(nvtxDomainHandle_t,
                                          const nvtxResourceAttributes_t* attributes) noexcept {
  if (attributes == nullptr || attributes->size < sizeof(nvtxResourceAttributes_t)) return nullptr;
  const uint64_t identifier = attributes->identifier.ullValue;
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      NameResource(attributes->identifierType, identifier, Text(attributes->message.ascii));
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      NameResource(attributes->identifierType, identifier, NarrowText(attributes->message.unicode).View());
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      NameResource(attributes->identifierType, identifier, RegisteredText(attributes->message.registered));
      break;
    default:
      break;
  }
  return reinterpret_cast<nvtxResourceHandle_t>(&resource_handle);
}
void DomainResourceDestroy(nvtxResourceHandle_t) noexcept {}

// Slots that we leave empty keep NVTX's own no-ops: what names events, contexts and OpenCL's objects, which
// no record names.
struct Placement {
  uint32_t slot;
  NvtxFunctionPointer handler;
};

template <typename Function>
NvtxFunctionPointer Generic(Function function) noexcept {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

bool Place(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module, const Placement* placements,
           size_t count) noexcept {
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks.GetModuleFunctionTable(module, &table, &size) == 0 || table == nullptr) return false;
  bool placed = false;
  for (size_t i = 0; i < count; ++i) {
    if (placements[i].slot >= size || table[placements[i].slot] == nullptr) continue;
    *table[placements[i].slot] = placements[i].handler;
    placed = true;
  }
  return placed;
}

}  // namespace

int PlaceHandlers(GetExportTable get_export_table) noexcept {
  if (get_export_table == nullptr) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(NvtxExportTableCallbacks) ||
      callbacks->GetModuleFunctionTable == nullptr) {
    return 0;
  }
  const Placement core[] = {
      {NVTX_CBID_CORE_MarkEx, Generic(MarkEx)},
      {NVTX_CBID_CORE_MarkA, Generic(MarkA)},
      {NVTX_CBID_CORE_MarkW, Generic(MarkW)},
      {NVTX_CBID_CORE_RangeStartEx, Generic(RangeStartEx)},
      {NVTX_CBID_CORE_RangeStartA, Generic(RangeStartA)},
      {NVTX_CBID_CORE_RangeStartW, Generic(RangeStartW)},
      {NVTX_CBID_CORE_RangeEnd, Generic(RangeEnd)},
      {NVTX_CBID_CORE_RangePushEx, Generic(RangePushEx)},
      {NVTX_CBID_CORE_RangePushA, Generic(RangePushA)},
      {NVTX_CBID_CORE_RangePushW, Generic(RangePushW)},
      {NVTX_CBID_CORE_RangePop, Generic(RangePop)},
      {NVTX_CBID_CORE_NameOsThreadA, Generic(NameOsThreadA)},
      {NVTX_CBID_CORE_NameCategoryA, Generic(NameCategoryA)},
      {NVTX_CBID_CORE_NameCategoryW, Generic(NameCategoryW)},
      {NVTX_CBID_CORE_NameOsThreadW, Generic(NameOsThreadW)},
  };
  const Placement core2[] = {
      {NVTX_CBID_CORE2_DomainMarkEx, Generic(DomainMarkEx)},
      {NVTX_CBID_CORE2_DomainRangeStartEx, Generic(DomainRangeStartEx)},
      {NVTX_CBID_CORE2_DomainRangeEnd, Generic(DomainRangeEnd)},
      {NVTX_CBID_CORE2_DomainRangePushEx, Generic(DomainRangePushEx)},
      {NVTX_CBID_CORE2_DomainRangePop, Generic(DomainRangePop)},
      {NVTX_CBID_CORE2_DomainRegisterStringA, Generic(DomainRegisterStringA)},
      {NVTX_CBID_CORE2_DomainRegisterStringW, Generic(DomainRegisterStringW)},
      {NVTX_CBID_CORE2_DomainCreateA, Generic(DomainCreateA)},
      {NVTX_CBID_CORE2_DomainCreateW, Generic(DomainCreateW)},
      {NVTX_CBID_CORE2_DomainDestroy, Generic(DomainDestroy)},
      {NVTX_CBID_CORE2_DomainNameCategoryA, Generic(DomainNameCategoryA)},
      {NVTX_CBID_CORE2_DomainNameCategoryW, Generic(DomainNameCategoryW)},
      {NVTX_CBID_CORE2_DomainResourceCreate, Generic(DomainResourceCreate)},
      {NVTX_CBID_CORE2_DomainResourceDestroy, Generic(DomainResourceDestroy)},
  };
  const Placement driver[] = {
      {NVTX_CBID_CUDA_NameCuDeviceA, Generic(NameAnyDeviceA)},
      {NVTX_CBID_CUDA_NameCuDeviceW, Generic(NameAnyDeviceW)},
      {NVTX_CBID_CUDA_NameCuStreamA, Generic(NameAnyStreamA)},
      {NVTX_CBID_CUDA_NameCuStreamW, Generic(NameAnyStreamW)},
  };
  const Placement runtime[] = {
      {NVTX_CBID_CUDART_NameCudaDeviceA, Generic(NameAnyDeviceA)},
      {NVTX_CBID_CUDART_NameCudaDeviceW, Generic(NameAnyDeviceW)},
      {NVTX_CBID_CUDART_NameCudaStreamA, Generic(NameAnyStreamA)},
      {NVTX_CBID_CUDART_NameCudaStreamW, Generic(NameAnyStreamW)},
  };
  Place(*callbacks, NVTX_CB_MODULE_CUDA, driver, std::size(driver));
  Place(*callbacks, NVTX_CB_MODULE_CUDART, runtime, std::size(runtime));
  const bool core_placed = Place(*callbacks, NVTX_CB_MODULE_CORE, core, std::size(core));
  const bool core2_placed = Place(*callbacks, NVTX_CB_MODULE_CORE2, core2, std::size(core2));
  return core_placed || core2_placed ? 1 : 0;
}

}  // namespace gpuprobe::injector::nvtx
