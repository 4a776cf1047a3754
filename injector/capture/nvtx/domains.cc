#include "injector/capture/nvtx/domains.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "injector/base/losses.h"
#include "injector/base/text.h"

namespace gpuprobe::injector::nvtx {

namespace {

struct Domain {
  std::atomic<uint32_t> state;  // 0: free, 1: being filled, 2: there
  uint32_t name_bytes;
  char name[kMaxDomainName];
};

struct RegisteredString {
  std::atomic<const char*> text;
  std::atomic<uint32_t> bytes;
};

// Place 0 is the default domain; the last one stands for those that found no place.
constinit Domain domains[kMaxDomains] = {};
constinit RegisteredString strings[kMaxStrings] = {};
constinit std::atomic<uint32_t> string_count{0};
constinit char string_bytes[kStringBytes] = {};
constinit std::atomic<size_t> string_bytes_used{0};
constinit std::atomic<uint64_t> open_ranges[kMaxOpenRanges] = {};

constexpr size_t kOverflowDomain = kMaxDomains - 1;
constexpr uint64_t kUntracked = uint64_t{1} << 63;
constexpr size_t kProbes = 16;

// Waits while another thread fills the domain, which copies a hundred bytes.
uint32_t SettledState(const Domain& domain) noexcept {
  uint32_t state = domain.state.load(std::memory_order_acquire);
  for (int spins = 0; state == 1 && spins < 1000; ++spins)
    state = domain.state.load(std::memory_order_acquire);
  return state;
}

}  // namespace

void* CreateDomain(std::string_view name) noexcept {
  name = Slice(name, 0, kMaxDomainName);
  for (size_t i = 1; i < kOverflowDomain; ++i) {
    Domain& domain = domains[i];
    uint32_t state = SettledState(domain);
    if (state == 2 && std::string_view(domain.name, domain.name_bytes) == name) return &domain;
    if (state != 0 || !domain.state.compare_exchange_strong(state, 1, std::memory_order_acquire)) continue;
    std::memcpy(domain.name, name.data(), name.size());
    domain.name_bytes = static_cast<uint32_t>(name.size());
    domain.state.store(2, std::memory_order_release);
    return &domain;
  }
  CountLoss(wire::LossReason::kLossDefinitionsFull);
  return &domains[kOverflowDomain];
}

// The name stays: events that are still in the rings refer to it, and the domain is often created again.
void DestroyDomain(void*) noexcept {}

namespace {

uint16_t IndexOfAddress(uintptr_t address) noexcept {
  const auto start = reinterpret_cast<uintptr_t>(&domains[0]);
  if (address < start || address >= start + sizeof(domains)) return 0;
  return static_cast<uint16_t>((address - start) / sizeof(Domain));
}

}  // namespace

uint16_t DomainIndex(const void* domain) noexcept {
  return IndexOfAddress(reinterpret_cast<uintptr_t>(domain));
}

std::string_view DomainName(uint64_t handle) noexcept {
  const uint16_t index = IndexOfAddress(handle);
  const Domain& domain = domains[index];
  if (index == 0 || domain.state.load(std::memory_order_acquire) != 2) return {};
  return {domain.name, domain.name_bytes};
}

void* RegisterString(std::string_view text) noexcept {
  const uint32_t index = string_count.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMaxStrings - 1) {
    string_count.store(kMaxStrings - 1, std::memory_order_relaxed);
    CountLoss(wire::LossReason::kLossDefinitionsFull);
    return &strings[kMaxStrings - 1];
  }
  RegisteredString& entry = strings[index];
  const size_t at = string_bytes_used.fetch_add(text.size(), std::memory_order_relaxed);
  if (at + text.size() > kStringBytes) {
    string_bytes_used.fetch_sub(text.size(), std::memory_order_relaxed);
    CountLoss(wire::LossReason::kLossDefinitionsFull);
    return &entry;
  }
  std::memcpy(string_bytes + at, text.data(), text.size());
  entry.bytes.store(static_cast<uint32_t>(text.size()), std::memory_order_relaxed);
  entry.text.store(string_bytes + at, std::memory_order_release);
  return &entry;
}

std::string_view RegisteredText(const void* handle) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(handle);
  const auto start = reinterpret_cast<uintptr_t>(&strings[0]);
  if (address < start || address >= start + sizeof(strings)) return {};
  const RegisteredString& entry = strings[(address - start) / sizeof(RegisteredString)];
  const char* text = entry.text.load(std::memory_order_acquire);
  return text == nullptr ? std::string_view()
                         : std::string_view(text, entry.bytes.load(std::memory_order_relaxed));
}

uint64_t OpenRange(uint64_t id) noexcept {
  for (size_t i = 0; i < kProbes; ++i) {
    uint64_t free = 0;
    if (open_ranges[(id + i) % kMaxOpenRanges].compare_exchange_strong(free, id, std::memory_order_relaxed))
      return id;
  }
  return id | kUntracked;
}

uint64_t IdOfOpen(uint64_t program_id) noexcept { return program_id & ~kUntracked; }

uint64_t CloseRange(uint64_t program_id) noexcept {
  if ((program_id & kUntracked) != 0) return program_id & ~kUntracked;
  if (program_id == 0) return 0;
  for (size_t i = 0; i < kProbes; ++i) {
    uint64_t id = program_id;
    if (open_ranges[(program_id + i) % kMaxOpenRanges].compare_exchange_strong(id, 0,
                                                                               std::memory_order_relaxed)) {
      return program_id;
    }
  }
  return 0;
}

}  // namespace gpuprobe::injector::nvtx
