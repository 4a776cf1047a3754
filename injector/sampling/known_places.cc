#include "injector/sampling/known_places.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // another key for another place with the same hash

uint64_t HashOf(const stacks::PythonPlace& place) noexcept {
  return MixBits(place.code) ^ MixBits(place.instruction + kStep);
}

}  // namespace

uint32_t KnownPlaces::Find(const stacks::PythonPlace& place) const noexcept {
  uint64_t key = HashOf(place);
  while (const uint32_t* number = numbers_.Find(key)) {
    if (entries()[*number - 1].place == place) return *number;
    key += kStep;
  }
  return 0;
}

const KnownPlaces::Names& KnownPlaces::Of(uint32_t number) const noexcept {
  return entries()[number - 1].names;
}

void KnownPlaces::Add(const stacks::PythonPlace& place, const Names& names) noexcept {
  if (used_ == kMost) {
    numbers_.Clear();
    used_ = 0;
  }
  if (memory_.data() == nullptr && !memory_.Map(kMost * sizeof(Entry))) return;
  uint64_t key = HashOf(place);
  while (const uint32_t* number = numbers_.Find(key)) {
    if (entries()[*number - 1].place == place) return;
    key += kStep;
  }
  if (numbers_.Insert(key, used_ + 1) == nullptr) return;
  entries()[used_++] = {place, names};
}

}  // namespace gpuprobe::injector
