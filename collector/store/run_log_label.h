// The label in front of a chunk of a `.gpr` file that readers can pass over: a skippable frame of zstd, which
// says how long the chunk is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpuprobe::store {

constexpr size_t kLabelBytes = 16;

std::string LabelOf(uint64_t chunk_bytes);
// Bytes of the chunk behind it; nothing: `bytes` do not begin with a label.
std::optional<uint64_t> ReadLabel(std::string_view bytes);

}  // namespace gpuprobe::store
