#include "injector/base/memory_account.h"

#include <cstdint>

// Of the linker: where this library begins and ends in memory.
extern "C" {
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier)
extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));
// NOLINTNEXTLINE(readability-identifier-naming,bugprone-reserved-identifier)
extern const char _end[] __attribute__((visibility("hidden"), weak));
}

namespace gpuprobe::injector {

namespace {

constexpr size_t kReservedPart = 8;

constinit std::atomic<size_t> all_limit{SIZE_MAX};
constinit std::atomic<size_t> all_held{0};
constinit std::atomic<size_t> most_held{0};

// Adds `bytes` to `held` unless that is then more than `most`.
bool AddWithin(std::atomic<size_t>& held, size_t bytes, size_t most, size_t* sum) noexcept {
  size_t before = held.load(std::memory_order_relaxed);
  do {
    if (bytes > most || before > most - bytes) return false;
    *sum = before + bytes;
  } while (!held.compare_exchange_weak(before, *sum, std::memory_order_relaxed));
  return true;
}

}  // namespace

void SetMemoryLimit(size_t bytes) noexcept { all_limit.store(bytes, std::memory_order_relaxed); }
size_t MemoryLimit() noexcept { return all_limit.load(std::memory_order_relaxed); }

bool ChargeMemory(size_t bytes, MemoryUse use) noexcept {
  const size_t all = MemoryLimit();
  size_t now = 0;
  if (!AddWithin(all_held, bytes, use == MemoryUse::kNeeded ? all : all - all / kReservedPart, &now))
    return false;
  size_t most = most_held.load(std::memory_order_relaxed);
  while (most < now && !most_held.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return true;
}

void ReleaseMemory(size_t bytes) noexcept { all_held.fetch_sub(bytes, std::memory_order_relaxed); }

size_t HeldMemory() noexcept { return all_held.load(std::memory_order_relaxed); }
size_t PeakMemory() noexcept { return most_held.load(std::memory_order_relaxed); }

size_t OwnImageBytes() noexcept {
  return __ehdr_start == nullptr || _end == nullptr ? 0 : static_cast<size_t>(_end - __ehdr_start);
}

bool MemoryShare::Charge(size_t bytes, MemoryUse use) noexcept {
  size_t now = 0;
  if (!AddWithin(held_, bytes, limit_, &now)) return false;
  if (ChargeMemory(bytes, use)) return true;
  held_.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void MemoryShare::Release(size_t bytes) noexcept {
  held_.fetch_sub(bytes, std::memory_order_relaxed);
  ReleaseMemory(bytes);
}

}  // namespace gpuprobe::injector
