#include "injector/capture/nccl/communicator_name.h"

#include <cstddef>

#include "injector/base/own_memory.h"

namespace gpuprobe::injector::nccl {

void ReadCommunicatorName(const ncclConfig_t* config, CommunicatorName* name) noexcept {
  constexpr unsigned kMagic = 0xcafebeef;  // NCCL_CONFIG_INITIALIZER
  constexpr unsigned kFirstVersion = NCCL_VERSION(2, 27, 0);
  constexpr size_t kNeeded = offsetof(ncclConfig_t, commName) + sizeof config->commName;
  name->length = 0;
  // NCCL reads these three, whatever its version is.
  if (config == nullptr || config->magic != kMagic || config->version < kFirstVersion ||
      config->size < kNeeded) {
    return;
  }
  CopyCommunicatorName(config->commName, name);
}

void CopyCommunicatorName(const char* text, CommunicatorName* name) noexcept {
  name->length = static_cast<uint8_t>(ReadText(text, name->bytes, sizeof name->bytes));
}

}  // namespace gpuprobe::injector::nccl
