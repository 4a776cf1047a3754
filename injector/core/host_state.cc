#include "injector/core/host_state.h"

#include <cstring>
#include <string_view>

#include "injector/base/own_descriptor.h"

namespace gpuprobe::injector {

constinit std::atomic<const char*> main_thread_waits_in{nullptr};
constinit std::atomic<uint64_t> main_thread_waits_since_ns{0};
constinit std::atomic<uint64_t> main_thread_waited_until_ns{0};

namespace {

uint64_t Pair(int32_t high, uint32_t low) noexcept {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | low;
}

}  // namespace

constinit CreationSlot creating_communicator;
constinit CreationSlot refused_communicator;

bool CreationSlot::Claim(const void* owner, const void* before) noexcept {
  return owner_.compare_exchange_strong(before, owner, std::memory_order_acquire, std::memory_order_relaxed);
}

void CreationSlot::Write(const CommunicatorCreation& creation) noexcept {
  since_ns_.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  hash_.store(creation.hash, std::memory_order_relaxed);
  parent_.store(creation.parent, std::memory_order_relaxed);
  place_.store(Pair(creation.rank, static_cast<uint32_t>(creation.ranks)), std::memory_order_relaxed);
  how_.store(Pair(creation.result, creation.made_by), std::memory_order_relaxed);
  since_ns_.store(creation.since_ns, std::memory_order_release);
}

void CreationSlot::Begin(const void* owner, const CommunicatorCreation& creation) noexcept {
  if (Claim(owner)) Write(creation);
}

void CreationSlot::GoesOn(const void* owner, const void* heir, int32_t result) noexcept {
  CommunicatorCreation creation;
  if (!Claim(this, owner)) return;
  if (Read(&creation)) {
    creation.result = result;
    Write(creation);
  }
  owner_.store(heir, std::memory_order_release);
}

bool CreationSlot::End(const void* owner, CommunicatorCreation* ended) noexcept {
  if (owner_.load(std::memory_order_relaxed) != owner || !Claim(this, owner)) return false;
  const bool noted = Read(ended);
  since_ns_.store(0, std::memory_order_relaxed);
  owner_.store(nullptr, std::memory_order_release);
  return noted;
}

void CreationSlot::Replace(const CommunicatorCreation& creation) noexcept {
  if (!Claim(this)) return;
  Write(creation);
  owner_.store(nullptr, std::memory_order_release);
}

bool CreationSlot::Read(CommunicatorCreation* creation) const noexcept {
  creation->since_ns = since_ns_.load(std::memory_order_acquire);
  if (creation->since_ns == 0) return false;
  creation->hash = hash_.load(std::memory_order_relaxed);
  creation->parent = parent_.load(std::memory_order_relaxed);
  const uint64_t place = place_.load(std::memory_order_relaxed);
  creation->rank = static_cast<int32_t>(place >> 32);
  creation->ranks = static_cast<int32_t>(static_cast<uint32_t>(place));
  const uint64_t how = how_.load(std::memory_order_relaxed);
  creation->result = static_cast<int32_t>(how >> 32);
  creation->made_by = static_cast<uint16_t>(how);
  std::atomic_thread_fence(std::memory_order_acquire);
  return since_ns_.load(std::memory_order_relaxed) == creation->since_ns;
}

namespace {

// The number behind "\n<name>: ", 0 if there is none.
uint64_t NumberAfter(std::string_view text, std::string_view name) noexcept {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return 0;
  uint64_t value = 0;
  for (size_t i = at + name.size(); i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  return value;
}

}  // namespace

// rchar and wchar count what went through the page cache, too: a checkpoint is progress before it is on disk.
uint64_t IoBytes() noexcept {
  char text[512];
  const std::string_view all(text, ReadOwnFile("/proc/self/io", text, sizeof(text)));
  return NumberAfter(all, "rchar: ") + NumberAfter(all, "wchar: ");
}

}  // namespace gpuprobe::injector
