#include "injector/rows/definition_history.h"

#include <cstring>

#include "injector/rows/frames.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kHeadBytes = kFramePrefixBytes + 16;  // the frame's prefix and Batch.restated

}  // namespace

void DefinitionHistory::Init() noexcept {
  if (!memory_.Reserve(kHeadBytes + kCapacity)) overflowed_.store(true, std::memory_order_release);
}

void DefinitionHistory::Append(const char* fields, size_t size) noexcept {
  const size_t before = size_.load(std::memory_order_relaxed);
  if (size == 0 || !complete()) return;
  if (size > kCapacity - before || !memory_.Use(kHeadBytes + before + size))
    return overflowed_.store(true, std::memory_order_release);
  std::memcpy(memory_.data() + kHeadBytes + before, fields, size);
  size_.store(before + size, std::memory_order_release);
}

const char* DefinitionHistory::Frame(size_t* size) noexcept {
  const size_t fields = size_.load(std::memory_order_acquire);
  if (fields == 0 || !complete()) return nullptr;
  char restated[16];
  WireBuffer flag{restated, sizeof(restated)};
  WireWriter(flag).add_uint32(Number(wire::BatchTag::kRestated), 1);
  char* body = memory_.data() + kHeadBytes - flag.size;
  std::memcpy(body, flag.data, flag.size);
  const size_t prefix =
      WriteFramePrefix(body - kFramePrefixBytes, wire::FrameTag::kBatch, flag.size + fields);
  *size = prefix + flag.size + fields;
  return body - prefix;
}

}  // namespace gpuprobe::injector
