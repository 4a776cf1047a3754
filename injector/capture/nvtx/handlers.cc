#include "injector/capture/nvtx/handlers.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include "injector/base/losses.h"
#include "injector/base/own_memory.h"
#include "injector/capture/nvtx/arguments.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/names.h"
#include "injector/capture/nvtx/ranges.h"

namespace gpuprobe::injector::nvtx {

namespace {

void MarkEx(const nvtxEventAttributes_t* attributes) noexcept { Mark(nullptr, PassedAttributes(attributes)); }
void MarkA(const char* message) noexcept { Mark(nullptr, PassedText(message)); }
void MarkW(const wchar_t* message) noexcept { Mark(nullptr, PassedText(message)); }

nvtxRangeId_t RangeStartEx(const nvtxEventAttributes_t* attributes) noexcept {
  return Start(nullptr, PassedAttributes(attributes));
}
nvtxRangeId_t RangeStartA(const char* message) noexcept { return Start(nullptr, PassedText(message)); }
nvtxRangeId_t RangeStartW(const wchar_t* message) noexcept { return Start(nullptr, PassedText(message)); }
void RangeEnd(nvtxRangeId_t id) noexcept { End(id); }

int RangePushEx(const nvtxEventAttributes_t* attributes) noexcept {
  return Push(nullptr, PassedAttributes(attributes));
}
int RangePushA(const char* message) noexcept { return Push(nullptr, PassedText(message)); }
int RangePushW(const wchar_t* message) noexcept { return Push(nullptr, PassedText(message)); }
int RangePop() noexcept { return Pop(nullptr); }

void DomainMarkEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) noexcept {
  Mark(domain, PassedAttributes(attributes));
}
nvtxRangeId_t DomainRangeStartEx(nvtxDomainHandle_t domain,
                                 const nvtxEventAttributes_t* attributes) noexcept {
  return Start(domain, PassedAttributes(attributes));
}
void DomainRangeEnd(nvtxDomainHandle_t, nvtxRangeId_t id) noexcept { End(id); }
int DomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) noexcept {
  return Push(domain, PassedAttributes(attributes));
}
int DomainRangePop(nvtxDomainHandle_t domain) noexcept { return Pop(domain); }

// A string that cannot be read stands for itself, under its stand-in's name.
template <typename Character>
nvtxStringHandle_t DomainRegisterString(nvtxDomainHandle_t, const Character* text) noexcept {
  const DefinitionText string(text);
  return static_cast<nvtxStringHandle_t>(RegisterString(string.readable() ? string.view() : kUnreadable));
}
template <typename Character>
nvtxDomainHandle_t DomainCreate(const Character* name) noexcept {
  const DefinitionText string(name);
  return static_cast<nvtxDomainHandle_t>(CreateDomain(string.readable() ? string.view() : kUnreadable));
}
void DomainDestroy(nvtxDomainHandle_t domain) noexcept { DestroyDomain(domain); }

template <typename Character>
void NameOsThread(uint32_t tid, const Character* name) noexcept {
  if (const DefinitionText text(name); text.readable()) NameThread(tid, text.view());
}
template <typename Character>
void DomainNameCategory(nvtxDomainHandle_t domain, uint32_t category, const Character* name) noexcept {
  if (const DefinitionText text(name); text.readable()) NameCategory(domain, category, text.view());
}
template <typename Character>
void NameCategoryOfNone(uint32_t category, const Character* name) noexcept {
  DomainNameCategory<Character>(nullptr, category, name);
}
template <typename Character>
void NameAnyDevice(int device, const Character* name) noexcept {
  if (const DefinitionText text(name); text.readable())
    NameDevice(static_cast<uint32_t>(device), text.view());
}
// cudaStream_t and CUstream are the same.
template <typename Character>
void NameAnyStream(const void* stream, const Character* name) noexcept {
  if (const DefinitionText text(name); text.readable()) NameStream(stream, text.view());
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

template <typename Character>
void NameResourceAs(const nvtxResourceAttributes_t& attributes, const Character* name) noexcept {
  if (const DefinitionText text(name); text.readable())
    NameResource(attributes.identifierType, attributes.identifier.ullValue, text.view());
}

nvtxResourceHandle_t DomainResourceCreate(nvtxDomainHandle_t,
                                          const nvtxResourceAttributes_t* passed) noexcept {
  if (passed == nullptr) return nullptr;
  nvtxResourceAttributes_t attributes;
  if (ReadMemory(passed, &attributes, sizeof(attributes)) != ReadResult::kRead) {
    CountLoss(wire::LossReason::kLossUnreadable);
    return nullptr;
  }
  if (attributes.size < sizeof(nvtxResourceAttributes_t)) return nullptr;
  switch (attributes.messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      NameResourceAs(attributes, attributes.message.ascii);
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      NameResourceAs(attributes, attributes.message.unicode);
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      NameResource(attributes.identifierType, attributes.identifier.ullValue,
                   RegisteredText(attributes.message.registered));
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
      {NVTX_CBID_CORE_NameOsThreadA, Generic(NameOsThread<char>)},
      {NVTX_CBID_CORE_NameCategoryA, Generic(NameCategoryOfNone<char>)},
      {NVTX_CBID_CORE_NameCategoryW, Generic(NameCategoryOfNone<wchar_t>)},
      {NVTX_CBID_CORE_NameOsThreadW, Generic(NameOsThread<wchar_t>)},
  };
  const Placement core2[] = {
      {NVTX_CBID_CORE2_DomainMarkEx, Generic(DomainMarkEx)},
      {NVTX_CBID_CORE2_DomainRangeStartEx, Generic(DomainRangeStartEx)},
      {NVTX_CBID_CORE2_DomainRangeEnd, Generic(DomainRangeEnd)},
      {NVTX_CBID_CORE2_DomainRangePushEx, Generic(DomainRangePushEx)},
      {NVTX_CBID_CORE2_DomainRangePop, Generic(DomainRangePop)},
      {NVTX_CBID_CORE2_DomainRegisterStringA, Generic(DomainRegisterString<char>)},
      {NVTX_CBID_CORE2_DomainRegisterStringW, Generic(DomainRegisterString<wchar_t>)},
      {NVTX_CBID_CORE2_DomainCreateA, Generic(DomainCreate<char>)},
      {NVTX_CBID_CORE2_DomainCreateW, Generic(DomainCreate<wchar_t>)},
      {NVTX_CBID_CORE2_DomainDestroy, Generic(DomainDestroy)},
      {NVTX_CBID_CORE2_DomainNameCategoryA, Generic(DomainNameCategory<char>)},
      {NVTX_CBID_CORE2_DomainNameCategoryW, Generic(DomainNameCategory<wchar_t>)},
      {NVTX_CBID_CORE2_DomainResourceCreate, Generic(DomainResourceCreate)},
      {NVTX_CBID_CORE2_DomainResourceDestroy, Generic(DomainResourceDestroy)},
  };
  const Placement driver[] = {
      {NVTX_CBID_CUDA_NameCuDeviceA, Generic(NameAnyDevice<char>)},
      {NVTX_CBID_CUDA_NameCuDeviceW, Generic(NameAnyDevice<wchar_t>)},
      {NVTX_CBID_CUDA_NameCuStreamA, Generic(NameAnyStream<char>)},
      {NVTX_CBID_CUDA_NameCuStreamW, Generic(NameAnyStream<wchar_t>)},
  };
  const Placement runtime[] = {
      {NVTX_CBID_CUDART_NameCudaDeviceA, Generic(NameAnyDevice<char>)},
      {NVTX_CBID_CUDART_NameCudaDeviceW, Generic(NameAnyDevice<wchar_t>)},
      {NVTX_CBID_CUDART_NameCudaStreamA, Generic(NameAnyStream<char>)},
      {NVTX_CBID_CUDART_NameCudaStreamW, Generic(NameAnyStream<wchar_t>)},
  };
  Place(*callbacks, NVTX_CB_MODULE_CUDA, driver, std::size(driver));
  Place(*callbacks, NVTX_CB_MODULE_CUDART, runtime, std::size(runtime));
  const bool core_placed = Place(*callbacks, NVTX_CB_MODULE_CORE, core, std::size(core));
  const bool core2_placed = Place(*callbacks, NVTX_CB_MODULE_CORE2, core2, std::size(core2));
  return core_placed || core2_placed ? 1 : 0;
}

}  // namespace gpuprobe::injector::nvtx
