#include "injector/capture/nvtx/extension.h"

#include <nvtx3/nvToolsExt.h>

#include <cstddef>

#include "injector/base/lifecycle.h"
#include "injector/capture/nvtx/arguments.h"
#include "injector/capture/nvtx/payload_abi.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/capture/nvtx/ranges.h"

namespace gpuprobe::injector::nvtx {

namespace {

// The first versions that are used in the wild have the same structs and numbers as this one's headers.
constexpr uint16_t kOldestCompatible = 0x0103;
constexpr uint16_t kNextMajor = 0x0200;

uint64_t SchemaRegister(nvtxDomainHandle_t domain, const void* attributes) noexcept {
  return RegisterSchema(domain, attributes);
}
uint64_t EnumRegister(nvtxDomainHandle_t domain, const void* attributes) noexcept {
  return RegisterEnum(domain, attributes);
}
void MarkPayload(nvtxDomainHandle_t domain, const abi::PayloadData* data, size_t count) noexcept {
  Mark(domain, PassedPayloads(domain, data, count));
}
int PushPayload(nvtxDomainHandle_t domain, const abi::PayloadData* data, size_t count) noexcept {
  return Push(domain, PassedPayloads(domain, data, count));
}
int PopPayload(nvtxDomainHandle_t domain, const abi::PayloadData* data, size_t count) noexcept {
  AddPayloads(domain, 0, data, count);
  return Pop(domain);
}
nvtxRangeId_t StartPayload(nvtxDomainHandle_t domain, const abi::PayloadData* data, size_t count) noexcept {
  return Start(domain, PassedPayloads(domain, data, count));
}
void EndPayload(nvtxDomainHandle_t domain, nvtxRangeId_t id, const abi::PayloadData* data,
                size_t count) noexcept {
  if (id != 0) AddPayloads(domain, id, data, count);
  End(id);
}

// Python's nvtx package asks once a domain, and never annotates one that is not enabled. Several releases of
// NVTX answer "no" in a tool's place.
uint8_t DomainIsEnabled(nvtxDomainHandle_t /*domain*/) noexcept {
  return CurrentLifecycle() != LifecycleState::kClosed ? 1 : 0;
}

template <typename Function>
void Place(const abi::Segment& slots, size_t slot, Function function) noexcept {
  if (slot < slots.slot_count) slots.slots[slot] = reinterpret_cast<intptr_t>(function);
}

}  // namespace

int PlaceExtensionHandlers(void* module) noexcept {
  const auto* info = static_cast<const abi::Module*>(module);
  if (info == nullptr || info->struct_size < sizeof(abi::Module) || info->module_id != abi::kPayloadModule ||
      info->compat_id < kOldestCompatible || info->compat_id >= kNextMajor || info->segment_count == 0 ||
      info->segments == nullptr || info->segments[0].slots == nullptr) {
    return 0;
  }
  const abi::Segment& slots = info->segments[0];
  Place(slots, abi::kSchemaRegister, SchemaRegister);
  Place(slots, abi::kEnumRegister, EnumRegister);
  Place(slots, abi::kMarkPayload, MarkPayload);
  Place(slots, abi::kRangePushPayload, PushPayload);
  Place(slots, abi::kRangePopPayload, PopPayload);
  Place(slots, abi::kRangeStartPayload, StartPayload);
  Place(slots, abi::kRangeEndPayload, EndPayload);
  Place(slots, abi::kDomainIsEnabled, DomainIsEnabled);
  return 1;
}

}  // namespace gpuprobe::injector::nvtx
