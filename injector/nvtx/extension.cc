#include "injector/nvtx/extension.h"

#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>

#include "injector/nvtx/payloads.h"
#include "injector/nvtx/ranges.h"

namespace gpuprobe::injector::nvtx {

namespace {

// The first versions that are used in the wild have the same structs and numbers as this one's headers.
constexpr uint16_t kOldestCompatible = 0x0103;
constexpr uint16_t kNextMajor = 0x0200;

// A range without a text of its own is called like the layout of its payload.
RangeText Describe(nvtxDomainHandle_t domain, const nvtxPayloadData_t* data, size_t count) noexcept {
  RangeText what;
  if (data == nullptr || count == 0) return what;
  what.text = SchemaName(FindPayload(domain, data[0]).schema);
  what.extended = data;
  what.extended_count = count;
  return what;
}

uint64_t SchemaRegister(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* attributes) noexcept {
  return RegisterSchema(domain, attributes);
}
uint64_t EnumRegister(nvtxDomainHandle_t domain, const nvtxPayloadEnumAttr_t* attributes) noexcept {
  return RegisterEnum(domain, attributes);
}
void MarkPayload(nvtxDomainHandle_t domain, const nvtxPayloadData_t* data, size_t count) noexcept {
  Mark(domain, Describe(domain, data, count));
}
int PushPayload(nvtxDomainHandle_t domain, const nvtxPayloadData_t* data, size_t count) noexcept {
  return Push(domain, Describe(domain, data, count));
}
int PopPayload(nvtxDomainHandle_t domain, const nvtxPayloadData_t* data, size_t count) noexcept {
  AddPayloads(domain, 0, data, count);
  return Pop(domain);
}
nvtxRangeId_t StartPayload(nvtxDomainHandle_t domain, const nvtxPayloadData_t* data, size_t count) noexcept {
  return Start(domain, Describe(domain, data, count));
}
void EndPayload(nvtxDomainHandle_t domain, nvtxRangeId_t id, const nvtxPayloadData_t* data,
                size_t count) noexcept {
  if (id != 0) AddPayloads(domain, id, data, count);
  End(id);
}

template <typename Function>
void Place(const nvtxExtModuleSegment_t& slots, size_t slot, Function function) noexcept {
  if (slot < slots.slotCount) slots.functionSlots[slot] = reinterpret_cast<intptr_t>(function);
}

}  // namespace

int PlaceExtensionHandlers(void* module) noexcept {
  const auto* info = static_cast<const nvtxExtModuleInfo_t*>(module);
  if (info == nullptr || info->structSize < sizeof(nvtxExtModuleInfo_t) ||
      info->moduleId != NVTX_EXT_PAYLOAD_MODULEID || info->compatId < kOldestCompatible ||
      info->compatId >= kNextMajor || info->segmentsCount == 0 || info->segments == nullptr ||
      info->segments[0].functionSlots == nullptr) {
    return 0;
  }
  const nvtxExtModuleSegment_t& slots = info->segments[0];
  Place(slots, NVTX3EXT_CBID_nvtxPayloadSchemaRegister, SchemaRegister);
  Place(slots, NVTX3EXT_CBID_nvtxPayloadEnumRegister, EnumRegister);
  Place(slots, NVTX3EXT_CBID_nvtxMarkPayload, MarkPayload);
  Place(slots, NVTX3EXT_CBID_nvtxRangePushPayload, PushPayload);
  Place(slots, NVTX3EXT_CBID_nvtxRangePopPayload, PopPayload);
  Place(slots, NVTX3EXT_CBID_nvtxRangeStartPayload, StartPayload);
  Place(slots, NVTX3EXT_CBID_nvtxRangeEndPayload, EndPayload);
  return 1;
}

}  // namespace gpuprobe::injector::nvtx
