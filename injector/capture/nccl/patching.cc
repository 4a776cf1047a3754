#include "injector/capture/nccl/patching.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include "injector/base/environment.h"
#include "injector/base/lifecycle.h"
#include "injector/base/program_functions.h"
#include "injector/base/text.h"
#include "injector/capture/cupti/broker.h"
#include "injector/capture/loader/exports.h"
#include "injector/capture/loader/libc_functions.h"
#include "injector/capture/loader/relocations.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/providers.h"
#include "injector/capture/nccl/thunks.h"
#include "injector/capture/nccl/unknown_functions.h"
#include "injector/core/event_ring.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector::nccl {

namespace {

// Objects whose internal calls we must not intercept. The same goes for libnccl, which calls itself through
// one of its own slots (ncclBroadcast from ncclBcast): we patch only its slots of the C library, through
// which it finds profiler plugins. Matched by the start of the file's name, versions and plugins included.
constexpr std::string_view kNccl = "libnccl";
constexpr std::string_view kSkipped[] = {"libcuda.so", "libcupti", "libc.so",    "ld-linux",
                                         "linux-vdso", "libdl.so", "libpthread", "libgpuprobe.so"};

// Scans after one that postponed slots; then the object is left alone (its memory is never made read-only).
constexpr uint32_t kMaxRetries = 20;
constexpr int kQuickRetries = 5;  // of these a millisecond apart

// A scan repeats once after objects appeared: their lazily resolved slots may have been overwritten by the
// loader meanwhile.
constexpr uint32_t kScansAfterChange = 2;

constinit std::atomic<bool> patching{false};
constinit std::atomic<uint64_t> scanned_adds{0};
// What was loaded after so many objects was scanned by a thread that did not load it, perhaps before the
// loader was done with it. Beyond scanned_adds: nothing was.
constinit std::atomic<uint64_t> seen_early{UINT64_MAX};
constinit std::atomic<uint32_t> scans_left{0};
constinit std::atomic<uint32_t> retries{0};
constinit std::atomic<bool> postponed{false};  // by the last scan
constinit std::atomic<bool> scan_asked{false};
constinit std::atomic<uint32_t> late_patches{0};
constinit std::atomic<bool> first_scan{true};
constinit std::atomic<bool> exports_redirected{false};  // libcupti's

// Reading files and memory ends a thread that is to be cancelled, and changes errno.
class ApplicationThread {
 public:
  ApplicationThread() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled_); }
  ~ApplicationThread() {
    pthread_setcancelstate(cancelled_, nullptr);
    errno = errno_;
  }
  ApplicationThread(const ApplicationThread&) = delete;
  ApplicationThread& operator=(const ApplicationThread&) = delete;

 private:
  int errno_ = errno;
  int cancelled_ = 0;
};

// Before the slot is written: the first call through it must know.
void* Lead(void* thunk) noexcept {
  if (!first_scan.load(std::memory_order_relaxed) && late_patches.load(std::memory_order_relaxed) % 2 == 0)
    late_patches.fetch_add(1, std::memory_order_release);
  return thunk;
}

// CUPTI's function of this name, null if we do not redirect it.
void* RealOfCupti(const char* name) noexcept {
  struct Search {
    const char* name;
    void* real;
  } search{name, nullptr};
  if (std::strncmp(name, "cupti", 5) != 0) return nullptr;
  ForEachRedirection(
      [](const Redirection& redirection, void* data) noexcept {
        auto* wanted = static_cast<Search*>(data);
        if (std::strcmp(redirection.name, wanted->name) == 0) wanted->real = redirection.real;
      },
      &search);
  return search.real;
}

// The copy of CUPTI that we use: what is loaded later, or looks its functions up, then gets ours.
void RedirectExportsOfCupti(const ElfObject& object) noexcept {
  struct Search {
    const ElfObject& object;
    bool found;
  } search{object, false};
  ForEachRedirection(
      [](const Redirection& redirection, void* data) noexcept {
        auto* wanted = static_cast<Search*>(data);
        wanted->found =
            wanted->found || wanted->object.Contains(reinterpret_cast<uintptr_t>(redirection.real));
      },
      &search);
  if (!search.found) return;
  Exports exports(object);
  exports.ResolveOwnCalls(RealOfCupti);
  ForEachRedirection(
      [](const Redirection& redirection, void* data) noexcept {
        static_cast<void>(
            static_cast<Exports*>(data)->Replace(redirection.name, redirection.real, redirection.ours));
      },
      &exports);
  exports_redirected.store(true, std::memory_order_relaxed);
}

void SeeObject(const ElfObject& object) noexcept {
  if (IsOurself(object)) return;
  NoteDefinitions(object);
  AddProvider(object);
  if (!exports_redirected.load(std::memory_order_relaxed)) RedirectExportsOfCupti(object);
}

bool Skip(const ElfObject& object) noexcept {
  return std::any_of(std::begin(kSkipped), std::end(kSkipped),
                     [&](std::string_view start) { return StartsWith(object.FileName(), start); });
}

// Whether the slot resolves, or will resolve, to an NCCL: a plugin's functions and data are named like
// NCCL's, too.
bool LeadsToNccl(const ElfObject& object, const Slot& slot) noexcept {
  if (!slot.unresolved)
    return !object.Contains(reinterpret_cast<uintptr_t>(slot.value)) && IsCodeOfNccl(slot.value);
  return object.FindSymbol(slot.symbol) == nullptr && NcclExports(slot.symbol);
}

void* Replacement(const ElfObject& object, const Slot& slot) noexcept {
  if (slot.value == nullptr) return nullptr;
  if (IsRedirected(slot.symbol)) {
    if (slot.unresolved) NoteDefinitions(object);  // it may have been loaded after see_object ran
    return LibcReplacement(slot);
  }
  if (slot.symbol[0] == 'c') {
    // An object with a CUPTI of its own may get that.
    if (slot.unresolved && object.FindSymbol(slot.symbol) != nullptr) return nullptr;
    return BrokerReplacement(slot.symbol, slot.unresolved ? nullptr : slot.value);
  }
  const EntryPoint entry_point = FindEntryPoint(slot.symbol);
  if (entry_point == EntryPoint::kCount) {
    if (IsUnknownFunction(slot.symbol) && LeadsToNccl(object, slot)) NoteUnknownFunction(slot.symbol);
    return nullptr;
  }
  if (StartsWith(object.FileName(), kNccl)) return nullptr;
  int way = ProviderOf(entry_point, slot.value);
  if (way < 0 && slot.unresolved) way = ProviderFor(object, entry_point);
  if (way < 0 || RealAddress(way, entry_point) == nullptr) return nullptr;
  void* thunk = Thunk(way, entry_point);
  return thunk == slot.value ? nullptr : Lead(thunk);
}

// "nccl..", "pnccl..", "cupti.." and some of the C library's. Whatever passes costs a call of the kernel's,
// which reads the slot.
bool Concerns(const char* symbol) noexcept {
  switch (symbol[0]) {
    case 'n':
      return std::strncmp(symbol, "nccl", 4) == 0;
    case 'c':
      return std::strncmp(symbol, "cupti", 5) == 0;
    case 'p':
      if (std::strncmp(symbol, "pnccl", 5) == 0) return true;
      [[fallthrough]];
    case 'd':
    case 'g':
    case 's':
      return IsRedirected(symbol);
    default:
      return false;
  }
}

// GroupStart is patched last, so that a group whose start is seen is seen to its end.
bool ComesLast(const char* symbol) noexcept { return FindEntryPoint(symbol) == EntryPoint::kGroupStart; }

constexpr RelocationPolicy kPolicy{SeeObject, Skip, Replacement, Concerns, ComesLast};

void RedirectLookUps() noexcept {
  RedirectLibcFunction("dlsym", reinterpret_cast<void*>(&dlsym), reinterpret_cast<void*>(&gpuprobe_dlsym),
                       false);
  RedirectLibcFunction("dlopen", reinterpret_cast<void*>(&dlopen), reinterpret_cast<void*>(&gpuprobe_dlopen),
                       false);
  program_functions.getenv = reinterpret_cast<char* (*)(const char*)>(
      RedirectLibcFunction("getenv", reinterpret_cast<void*>(program_functions.getenv),
                           reinterpret_cast<void*>(&AnsweringGetenv), false));
}

}  // namespace

uint32_t PatchLoadedObjects() noexcept {
  if (patching.exchange(true, std::memory_order_acquire)) return 0;
  if (first_scan.load(std::memory_order_relaxed)) RedirectLookUps();
  const ScanResult result = ScanRelocations(kPolicy);
  if (const uint64_t before = scanned_adds.load(std::memory_order_relaxed); result.adds != before) {
    if (!first_scan.load(std::memory_order_relaxed))
      seen_early.store(std::min(before, seen_early.load(std::memory_order_relaxed)),
                       std::memory_order_relaxed);
    scanned_adds.store(result.adds, std::memory_order_relaxed);
    scans_left.store(kScansAfterChange, std::memory_order_relaxed);
    retries.store(0, std::memory_order_relaxed);
  }
  const bool again = result.postponed > 0 && retries.fetch_add(1, std::memory_order_relaxed) < kMaxRetries;
  if (again) scans_left.store(1, std::memory_order_relaxed);
  postponed.store(again, std::memory_order_relaxed);
  // Even when the last repetition is done: until then the loader may undo our patches.
  if (late_patches.load(std::memory_order_relaxed) % 2 != 0 &&
      scans_left.load(std::memory_order_relaxed) == 0)
    late_patches.fetch_add(1, std::memory_order_release);
  first_scan.store(false, std::memory_order_relaxed);
  if (result.patched > 0) CountSelf(SelfCounter::kRelocationsPatched, result.patched);
  patching.store(false, std::memory_order_release);
  return result.patched;
}

void PatchNewObjects() noexcept {
  scan_asked.store(false, std::memory_order_relaxed);
  const uint32_t left = scans_left.load(std::memory_order_relaxed);
  if (left == 0 && LoadedObjectsEver() == scanned_adds.load(std::memory_order_relaxed)) return;
  if (left > 0) scans_left.store(left - 1, std::memory_order_relaxed);
  PatchLoadedObjects();
  // The loader is about to be done with it.
  for (int i = 0; i < kQuickRetries && postponed.load(std::memory_order_relaxed); ++i) {
    timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
    PatchLoadedObjects();
  }
}

// Makes no system call once the recording has ended, perhaps because a sandbox begins (capture/sandbox/).
void PatchBeforeUse() noexcept {
  const uint64_t adds = LoadedObjectsEver();
  const uint64_t since =
      std::min(scanned_adds.load(std::memory_order_relaxed), seen_early.load(std::memory_order_relaxed));
  if (adds == since || InForkedChild()) return;
  if (first_scan.load(std::memory_order_relaxed) || CurrentLifecycle() != LifecycleState::kLive) return;
  const ApplicationThread thread;
  // First, so that the objects are scanned once more: the loader may still be at work on one of them.
  scans_left.store(kScansAfterChange, std::memory_order_relaxed);
  seen_early.store(UINT64_MAX, std::memory_order_relaxed);
  const ScanResult result = ScanRelocations(kPolicy, since);
  scanned_adds.store(result.adds, std::memory_order_relaxed);
  if (result.patched > 0) CountSelf(SelfCounter::kRelocationsPatched, result.patched);
  if (result.postponed > 0) AskForScan();
}

void AskForScan() noexcept {
  if (!scan_asked.exchange(true, std::memory_order_relaxed)) WakeProbeThreadForALook();
}

void MeetProviderAt(const void* address) noexcept {
  ForObjectAt(address, SeeObject);
  AskForScan();
}

uint32_t LatePatches() noexcept { return late_patches.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector::nccl
