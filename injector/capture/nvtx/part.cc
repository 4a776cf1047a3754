#include "injector/capture/nvtx/part.h"

#include <algorithm>

#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/names.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/core/event_names.h"

namespace gpuprobe::injector {

namespace {

size_t RangeDomain(uint64_t handle, char* out, size_t capacity) noexcept {
  const std::string_view name = nvtx::DomainName(handle);
  const size_t length = std::min(name.size(), capacity);
  std::copy_n(name.data(), length, out);
  return length;
}

bool PayloadNumber(uint32_t schema, size_t field, std::string_view bytes, std::string_view* name,
                   uint64_t* value, uint32_t* kind) noexcept {
  nvtx::PayloadField number;
  if (!nvtx::TakeField(schema, field, bytes, &number)) return false;
  *name = number.name;
  *value = number.value;
  *kind = static_cast<uint32_t>(number.kind);
  return true;
}

// Handlers come by themselves, from NVTX; nothing else has to be started.
void Start() noexcept {
  event_names.range_domain = RangeDomain;
  event_names.payload_field = PayloadNumber;
}

}  // namespace

const Part kNvtxPart{"nvtx", Start, nvtx::TellNames, nvtx::TellNames};

}  // namespace gpuprobe::injector
