// The wrappers around dlsym and dlopen: assembly, because they have to leave by a jump with the stack as they
// found it.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "injector/base/text.h"
#include "injector/capture/cupti/broker.h"
#include "injector/capture/loader/elf_object.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plugin_chain.h"
#include "injector/capture/nccl/providers.h"
#include "injector/capture/nccl/thunks.h"
#include "injector/capture/nccl/unknown_functions.h"

namespace {

using gpuprobe::injector::StartsWith;

constexpr std::string_view kProfilerPrefix = "ncclProfiler_v";

// NCCL looks for a profiler plugin: `name` ends with the version.
void* FindProfiler(void* handle, const char* name) noexcept {
  const char digit = name[kProfilerPrefix.size()];
  if (digit < '1' || digit > '9' || name[kProfilerPrefix.size() + 1] != '\0') return nullptr;
  const void* table = dlsym(handle, name);
  bool has_any = table != nullptr;
  char other[kProfilerPrefix.size() + 2] = {};
  std::memcpy(other, name, kProfilerPrefix.size());
  for (char version = '9'; version >= '1' && !has_any; --version) {
    other[kProfilerPrefix.size()] = version;
    has_any = dlsym(handle, other) != nullptr;
  }
  return const_cast<void*>(gpuprobe::injector::nccl::ChainPlugin(digit - '0', table, has_any));
}

bool IsOurs(const void* address) noexcept {
  Dl_info there{};
  Dl_info here{};
  return dladdr(address, &there) != 0 && dladdr(reinterpret_cast<const void*>(&FindProfiler), &here) != 0 &&
         there.dli_fbase == here.dli_fbase;
}

// What the program would find without us, null if nothing. RTLD_NEXT sees only what was linked at start; for
// objects opened later it is not known which callers may see them.
const void* BehindOurs(const char* name) noexcept {
  const void* found = dlsym(RTLD_NEXT, name);
  return found != nullptr ? found : gpuprobe::injector::nccl::FindInLoadedObjects(name);
}

// The answer for a name that only we define.
constexpr uintptr_t kNobodyHasIt = 1;  // known to the assembly below

}  // namespace

extern "C" {

// Used by the assembly below only. NOLINTBEGIN(readability-identifier-naming)
// This thread has called dlopen since its last dlsym. Only then are new objects looked for: it takes the lock
// of the linker's list, as dlopen does, and dlsym does not.
__attribute__((visibility("hidden"), used,
               tls_model("initial-exec"))) constinit thread_local uint8_t gpuprobe_opened = 0;
// The wrapper that the program gets for `name`, kNobodyHasIt, or null: then the real dlsym answers.
__attribute__((visibility("hidden"), used)) void* gpuprobe_find_thunk(void* handle,
                                                                      const char* name) noexcept {
  using namespace gpuprobe::injector::nccl;
  if (gpuprobe_opened != 0) {
    gpuprobe_opened = 0;
    PatchBeforeUse();
  }
  if (name[0] != 'c' && name[0] != 'n' && name[0] != 'p') return nullptr;
  // RTLD_NEXT means "behind me": whoever asks is a wrapper itself, and is intercepted in front.
  if (handle == RTLD_NEXT) return nullptr;
  if (name[0] == 'c') {
    const void* cupti = StartsWith(name, "cupti") ? dlsym(handle, name) : nullptr;
    return cupti == nullptr ? nullptr : gpuprobe::injector::BrokerAnswer(handle, name, cupti);
  }
  if (StartsWith(name, kProfilerPrefix)) return FindProfiler(handle, name);
  const EntryPoint entry_point = FindEntryPoint(name);
  if (entry_point == EntryPoint::kCount) {
    if (IsUnknownFunction(name) && dlsym(handle, name) != nullptr) NoteUnknownFunction(name);
    return nullptr;
  }
  const void* real = dlsym(handle, name);
  if (real == nullptr) return nullptr;
  if (IsOurs(real)) {
    real = BehindOurs(name);
    if (real == nullptr) return PointerTo<void>(kNobodyHasIt);
  }
  int way = ProviderOf(entry_point, real);
  if (way < 0) {
    MeetProviderAt(real);
    way = ProviderOf(entry_point, real);
  }
  return way < 0 ? nullptr : Thunk(way, entry_point);
}
// NOLINTEND(readability-identifier-naming)
}

// Only names that start with 'c', 'n' or 'p' are looked at closer, and the first one after a dlopen. rdi and
// rsi are saved around the call, which also aligns the stack.
asm(R"(
.pushsection .text
.p2align 4
.globl gpuprobe_dlsym
.hidden gpuprobe_dlsym
.type gpuprobe_dlsym, @function
gpuprobe_dlsym:
  .cfi_startproc
  endbr64
  testq %rsi, %rsi
  je 2f
  movq gpuprobe_opened@gottpoff(%rip), %rax
  cmpb $0, %fs:(%rax)
  jne 1f
  cmpb $99, (%rsi)
  je 1f
  cmpb $110, (%rsi)
  je 1f
  cmpb $112, (%rsi)
  jne 2f
1:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call gpuprobe_find_thunk
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  testq %rax, %rax
  je 2f
  cmpq $1, %rax
  jne 3f
  xorl %eax, %eax
3:
  ret
2:
  jmp *dlsym@GOTPCREL(%rip)
  .cfi_endproc
.size gpuprobe_dlsym, . - gpuprobe_dlsym
.p2align 4
.globl gpuprobe_dlopen
.hidden gpuprobe_dlopen
.type gpuprobe_dlopen, @function
gpuprobe_dlopen:
  .cfi_startproc
  endbr64
  movq gpuprobe_opened@gottpoff(%rip), %rax
  movb $1, %fs:(%rax)
  jmp *dlopen@GOTPCREL(%rip)
  .cfi_endproc
.size gpuprobe_dlopen, . - gpuprobe_dlopen
.popsection
)");
