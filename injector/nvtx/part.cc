#include "injector/nvtx/part.h"

#include <algorithm>

#include "injector/nvtx/domains.h"
#include "injector/nvtx/names.h"

namespace gpuprobe::injector {

namespace {

size_t RangeDomain(uint64_t handle, char* out, size_t capacity) noexcept {
  const std::string_view name = nvtx::DomainName(handle);
  const size_t length = std::min(name.size(), capacity);
  std::copy_n(name.data(), length, out);
  return length;
}

// Handlers come by themselves, from NVTX; nothing else has to be started.
void Start() noexcept { event_names.range_domain = RangeDomain; }

}  // namespace

const Part kNvtxPart{"nvtx", Start, nvtx::TellNames, nvtx::TellNames};

}  // namespace gpuprobe::injector
