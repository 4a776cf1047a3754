// Limits and versions of the wire that both ends must agree on and that protobuf cannot express.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::wire {

inline constexpr uint32_t kProtocolMajor = 1;
inline constexpr uint32_t kProtocolMinor = 0;

// Largest Frame, in bytes, without its length prefix. The injector seals batches at a small part of it; a
// peer that claims more is not one of ours.
inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;

}  // namespace gpuprobe::wire
