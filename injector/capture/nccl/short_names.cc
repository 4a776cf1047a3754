#include "injector/capture/nccl/short_names.h"

#include <atomic>
#include <cstring>

namespace gpuprobe::injector::nccl {

namespace {

enum class Place : uint32_t { kFree, kBusy, kTaken };

struct Name {
  std::atomic<Place> place;
  char text[kShortNameBytes + 1];
};

constinit Name names[kShortNames] = {};

}  // namespace

uint8_t NumberOfName(const char* name) noexcept {
  const size_t length = name == nullptr ? 0 : strnlen(name, kShortNameBytes + 1);
  if (length == 0 || length > kShortNameBytes) return 0;
  for (size_t i = 1; i < kShortNames; ++i) {
    Place seen = names[i].place.load(std::memory_order_acquire);
    if (seen == Place::kFree && names[i].place.compare_exchange_strong(seen, Place::kBusy)) {
      std::memcpy(names[i].text, name, length + 1);
      names[i].place.store(Place::kTaken, std::memory_order_release);
      return static_cast<uint8_t>(i);
    }
    // A name that is just being added cannot be compared; at worst the same name gets two numbers.
    if (seen == Place::kTaken && std::strcmp(names[i].text, name) == 0) return static_cast<uint8_t>(i);
  }
  return 0;
}

const char* NameOfNumber(uint8_t number) noexcept {
  if (number >= kShortNames || names[number].place.load(std::memory_order_acquire) != Place::kTaken)
    return "";
  return names[number].text;
}

}  // namespace gpuprobe::injector::nccl
