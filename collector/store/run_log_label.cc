#include "collector/store/run_log_label.h"

#include <bit>
#include <cstring>

namespace gpuprobe::store {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Label {
  uint32_t magic;    // one of zstd's sixteen for what decoders skip
  uint32_t content;  // bytes that follow
  uint64_t chunk_bytes;
};
static_assert(sizeof(Label) == kLabelBytes);

constexpr uint32_t kMagic = 0x184D2A5A;
constexpr uint32_t kContent = sizeof(uint64_t);

}  // namespace

std::string LabelOf(uint64_t chunk_bytes) {
  const Label label{.magic = kMagic, .content = kContent, .chunk_bytes = chunk_bytes};
  return {reinterpret_cast<const char*>(&label), sizeof(label)};
}

std::optional<uint64_t> ReadLabel(std::string_view bytes) {
  Label label{};
  if (bytes.size() < sizeof(label)) return std::nullopt;
  std::memcpy(&label, bytes.data(), sizeof(label));
  if (label.magic != kMagic || label.content != kContent) return std::nullopt;
  return label.chunk_bytes;
}

}  // namespace gpuprobe::store
