// The name that a program gives a communicator: ncclConfig_t.commName, which NCCL has had since 2.27.
//
// Thread: the application's, inside its call that makes the communicator; the text is the program's and may
// be gone afterwards, so it is copied. Allocation: none. Failure: no name. A configuration of an older
// version, or too short for the field, has none; what cannot be read is left alone.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string_view>

namespace gpuprobe::injector::nccl {

inline constexpr size_t kCommunicatorNameBytes = 63;  // more is cut off

struct CommunicatorName {
  char bytes[kCommunicatorNameBytes];
  uint8_t length;

  std::string_view text() const noexcept { return {bytes, length}; }
};
static_assert(sizeof(CommunicatorName) == 64);

// `config` may be null.
void ReadCommunicatorName(const ncclConfig_t* config, CommunicatorName* name) noexcept;
// `text`: as NCCL hands it to its profiler plugin; may be null.
void CopyCommunicatorName(const char* text, CommunicatorName* name) noexcept;

}  // namespace gpuprobe::injector::nccl
