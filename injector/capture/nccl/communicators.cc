#include "injector/capture/nccl/communicators.h"

namespace gpuprobe::injector::nccl {

namespace {

constexpr uintptr_t kEmpty = 0;
constexpr uintptr_t kFreed = 1;        // was used: a search goes on behind it
constexpr uintptr_t kBeingFilled = 2;  // being filled
constexpr uint32_t kProbes = 128;
constexpr size_t kUniqueIdBytes = 128;

constinit Communicator communicators[kMaxCommunicators] = {};
constinit std::atomic<uint32_t> last_id{0};

uint64_t Mix(uint64_t value) noexcept {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53u;
  return value ^ (value >> 33);
}

uint32_t FirstPlace(uintptr_t key) noexcept { return static_cast<uint32_t>(Mix(key) % kMaxCommunicators); }

void Fill(Communicator& place, const CommunicatorFacts& facts, uint32_t id) noexcept {
  place.id.store(id, std::memory_order_relaxed);
  place.parent.store(facts.parent, std::memory_order_relaxed);
  place.hash.store(facts.hash, std::memory_order_relaxed);
  place.named.store(false, std::memory_order_relaxed);
  place.rank.store(facts.rank, std::memory_order_relaxed);
  place.ranks.store(facts.ranks, std::memory_order_relaxed);
  place.device.store(facts.device, std::memory_order_relaxed);
  place.children.store(0, std::memory_order_relaxed);
  place.queries.store(0, std::memory_order_relaxed);
  place.collectives.store(0, std::memory_order_relaxed);
  place.transfers.store(0, std::memory_order_relaxed);
  place.context.store(0, std::memory_order_relaxed);
  place.on_device.store(0, std::memory_order_relaxed);
  place.blocking.store(Blocking::kUnknown, std::memory_order_relaxed);
}

// A place of its own for `handle`, in state kBeingFilled; the one it has already if it is there. Null when
// all are taken.
Communicator* Claim(const void* handle) noexcept {
  const auto key = reinterpret_cast<uintptr_t>(handle);
  if (Communicator* known = Find(handle); known != nullptr) {
    uintptr_t expected = key;
    if (known->key.compare_exchange_strong(expected, kBeingFilled, std::memory_order_acquire)) return known;
  }
  uint32_t at = FirstPlace(key);
  for (uint32_t i = 0; i < kProbes; ++i, at = (at + 1) % kMaxCommunicators) {
    uintptr_t seen = communicators[at].key.load(std::memory_order_relaxed);
    if (seen != kEmpty && seen != kFreed) continue;
    if (communicators[at].key.compare_exchange_strong(seen, kBeingFilled, std::memory_order_acquire))
      return &communicators[at];
  }
  return nullptr;
}

}  // namespace

Communicator* Register(const void* handle, const CommunicatorFacts& facts) noexcept {
  const auto key = reinterpret_cast<uintptr_t>(handle);
  if (key <= kBeingFilled) return nullptr;
  Communicator* place = Claim(handle);
  if (place == nullptr) return nullptr;
  Fill(*place, facts, last_id.fetch_add(1, std::memory_order_relaxed) + 1);
  place->key.store(key, std::memory_order_release);
  return place;
}

Communicator* Find(const void* handle) noexcept {
  const auto key = reinterpret_cast<uintptr_t>(handle);
  if (key <= kBeingFilled) return nullptr;
  uint32_t at = FirstPlace(key);
  for (uint32_t i = 0; i < kProbes; ++i, at = (at + 1) % kMaxCommunicators) {
    const uintptr_t seen = communicators[at].key.load(std::memory_order_acquire);
    if (seen == key) return &communicators[at];
    if (seen == kEmpty) return nullptr;
  }
  return nullptr;
}

Communicator* FindByHash(uint64_t hash, int32_t rank, const void* but) noexcept {
  if (hash == 0) return nullptr;
  for (Communicator& place : communicators) {
    const uintptr_t key = place.key.load(std::memory_order_acquire);
    if (key > kBeingFilled && key != reinterpret_cast<uintptr_t>(but) &&
        place.hash.load(std::memory_order_relaxed) == hash &&
        place.rank.load(std::memory_order_relaxed) == rank) {
      return &place;
    }
  }
  return nullptr;
}

Communicator* FindById(uint32_t id) noexcept {
  for (Communicator& place : communicators) {
    if (place.key.load(std::memory_order_acquire) > kBeingFilled &&
        place.id.load(std::memory_order_relaxed) == id)
      return &place;
  }
  return nullptr;
}

void Remove(const void* handle) noexcept {
  auto key = reinterpret_cast<uintptr_t>(handle);
  Communicator* place = Find(handle);
  if (place != nullptr) place->key.compare_exchange_strong(key, kFreed, std::memory_order_release);
}

Communicator* FindUnnamed(int32_t rank, int32_t ranks) noexcept {
  Communicator* found = nullptr;
  for (Communicator& place : communicators) {
    if (place.key.load(std::memory_order_acquire) <= kBeingFilled ||
        place.named.load(std::memory_order_relaxed) || place.parent.load(std::memory_order_relaxed) != 0 ||
        place.blocking.load(std::memory_order_relaxed) != Blocking::kNo ||
        place.rank.load(std::memory_order_relaxed) != rank ||
        place.ranks.load(std::memory_order_relaxed) != ranks) {
      continue;
    }
    if (found != nullptr) return nullptr;
    found = &place;
  }
  return found;
}

CommunicatorState StateOf(const Communicator& comm) noexcept {
  return {.id = comm.id.load(std::memory_order_relaxed),
          .children = comm.children.load(std::memory_order_relaxed),
          .collectives = comm.collectives.load(std::memory_order_relaxed),
          .transfers = comm.transfers.load(std::memory_order_relaxed),
          .context = comm.context.load(std::memory_order_relaxed),
          .on_device = comm.on_device.load(std::memory_order_relaxed),
          .blocking = comm.blocking.load(std::memory_order_relaxed),
          .named = comm.named.load(std::memory_order_relaxed)};
}

void Restore(const void* handle, const CommunicatorFacts& facts, const CommunicatorState& state) noexcept {
  const auto key = reinterpret_cast<uintptr_t>(handle);
  if (key <= kBeingFilled) return;
  Communicator* place = Claim(handle);
  if (place == nullptr) return;
  Fill(*place, facts, state.id);
  place->children.store(state.children, std::memory_order_relaxed);
  place->collectives.store(state.collectives, std::memory_order_relaxed);
  place->transfers.store(state.transfers, std::memory_order_relaxed);
  place->context.store(state.context, std::memory_order_relaxed);
  place->on_device.store(state.on_device, std::memory_order_relaxed);
  place->blocking.store(state.blocking, std::memory_order_relaxed);
  place->named.store(state.named, std::memory_order_relaxed);
  place->key.store(key, std::memory_order_release);
}

uint64_t HashUniqueId(const void* unique_id) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(unique_id);
  uint64_t hash = 5381;
  for (size_t i = 0; i < kUniqueIdBytes; ++i) hash = (hash * 33) ^ bytes[i];
  return hash;
}

uint64_t HashChild(uint64_t parent_hash, uint32_t ordinal, int32_t color) noexcept {
  if (parent_hash == 0) return 0;
  const uint64_t hash = Mix(parent_hash ^ Mix((uint64_t{ordinal} << 32) | static_cast<uint32_t>(color)));
  return hash == 0 ? 1 : hash;
}

}  // namespace gpuprobe::injector::nccl
