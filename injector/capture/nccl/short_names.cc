#include "injector/capture/nccl/short_names.h"

#include <atomic>
#include <cstring>

namespace gpuprobe::injector::nccl {

namespace {

enum class NameState : uint32_t { kFree, kBusy, kTaken };

struct Name {
  std::atomic<NameState> place;
  char text[kShortNameBytes + 1];
};

constinit Name names[kShortNames] = {};

}  // namespace

uint8_t NumberOfName(const char* name) noexcept {
  const size_t length = name == nullptr ? 0 : strnlen(name, kShortNameBytes + 1);
  if (length == 0 || length > kShortNameBytes) return 0;
  for (size_t i = 1; i < kShortNames; ++i) {
    NameState seen = names[i].place.load(std::memory_order_acquire);
    if (seen == NameState::kFree && names[i].place.compare_exchange_strong(seen, NameState::kBusy)) {
      std::memcpy(names[i].text, name, length + 1);
      names[i].place.store(NameState::kTaken, std::memory_order_release);
      return static_cast<uint8_t>(i);
    }
    // A name that is just being added cannot be compared; at worst the same name gets two numbers.
    if (seen == NameState::kTaken && std::strcmp(names[i].text, name) == 0) return static_cast<uint8_t>(i);
  }
  return 0;
}

const char* NameOfNumber(uint8_t number) noexcept {
  if (number >= kShortNames || names[number].place.load(std::memory_order_acquire) != NameState::kTaken)
    return "";
  return names[number].text;
}

}  // namespace gpuprobe::injector::nccl
