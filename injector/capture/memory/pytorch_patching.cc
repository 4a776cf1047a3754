// Which relocations lead to PyTorch's reporting functions, and when to look for them. The mechanism is that
// of NCCL's interception (injector/capture/loader/relocations.h).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string_view>

#include "injector/base/text.h"
#include "injector/capture/loader/relocations.h"
#include "injector/capture/memory/pytorch.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector::pytorch {

namespace {

using nccl::ElfObject;

constexpr std::string_view kSkipped[] = {"libcuda.so", "libcupti",   "libnccl",       "libc.so",
                                         "ld-linux",   "linux-vdso", "libgpuprobe.so"};
constexpr std::string_view kNamespace = "_ZN3c1027report";
constexpr uint32_t kScansAfterChange = 2;  // an object may be in the list before its relocations are done

// Addresses in the first object that defines the usage function.
constinit std::atomic<void*> found[kFunctions] = {};
constinit std::atomic<bool> scanning{false};
constinit std::atomic<uint64_t> scanned_adds{0};
constinit std::atomic<uint32_t> scans_left{0};

bool Known() noexcept {
  return std::any_of(std::begin(found), std::end(found),
                     [](const auto& address) { return address.load(std::memory_order_relaxed) != nullptr; });
}

void SeeObject(const ElfObject& object) noexcept {
  if (Known() || nccl::IsOurself(object)) return;
  for (int i = 0; i < kFunctions; ++i) {
    found[i].store(object.FindSymbol(kSymbols[i]), std::memory_order_relaxed);
  }
}

bool Skip(const ElfObject& object) noexcept {
  return !Known() || std::any_of(std::begin(kSkipped), std::end(kSkipped), [&](std::string_view start) {
    return StartsWith(object.FileName(), start);
  });
}

bool Concerns(const char* symbol) noexcept {
  return std::strncmp(symbol, kNamespace.data(), kNamespace.size()) == 0;
}

void* ReplacementFor(const ElfObject& /*object*/, const nccl::Slot& slot) noexcept {
  for (int i = 0; i < kFunctions; ++i) {
    if (std::strcmp(slot.symbol, kSymbols[i]) != 0) continue;
    void* real = found[i].load(std::memory_order_relaxed);
    if (real == nullptr || (slot.value != real && !slot.unresolved)) return nullptr;
    return Replacement(static_cast<Function>(i), real);
  }
  return nullptr;
}

constexpr nccl::RelocationPolicy kPolicy{SeeObject, Skip, ReplacementFor, Concerns};

}  // namespace

uint32_t PatchLoadedObjects() noexcept {
  if (scanning.exchange(true, std::memory_order_acquire)) return 0;
  const nccl::ScanResult result = nccl::ScanRelocations(kPolicy);
  if (result.adds != scanned_adds.load(std::memory_order_relaxed)) {
    scanned_adds.store(result.adds, std::memory_order_relaxed);
    scans_left.store(kScansAfterChange, std::memory_order_relaxed);
  }
  if (result.patched > 0) CountSelf(SelfCounter::kRelocationsPatched, result.patched);
  scanning.store(false, std::memory_order_release);
  return result.patched;
}

void PatchNewObjects() noexcept {
  const uint32_t left = scans_left.load(std::memory_order_relaxed);
  if (left == 0 && nccl::LoadedObjectsEver() == scanned_adds.load(std::memory_order_relaxed)) return;
  if (left > 0) scans_left.store(left - 1, std::memory_order_relaxed);
  PatchLoadedObjects();
}

}  // namespace gpuprobe::injector::pytorch
