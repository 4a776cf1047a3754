// The wrappers around dlsym and dlopen: assembly, because they have to leave by a jump with the stack as they
// found it.
#include <dlfcn.h>

#include <cstring>
#include <string_view>

#include "injector/base/text.h"
#include "injector/capture/cupti/broker.h"
#include "injector/capture/loader/libc_functions.h"
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

// Searches the caller's own library and its dependencies, which a library opened with RTLD_LOCAL sees as
// well.
void* FindAsCaller(const void* caller, const char* name) noexcept {
  Dl_info file{};
  void* object = nullptr;
  if (dladdr1(caller, &file, &object, RTLD_DL_LINKMAP) == 0 || object == nullptr) return nullptr;
  return dlsym(object, name);
}

}  // namespace

extern "C" {

// Used by the assembly below only. NOLINTBEGIN(readability-identifier-naming)
// This thread has called dlopen since its last dlsym. Only then are new objects looked for: it takes the lock
// of the linker's list, as dlopen does, and dlsym does not.
__attribute__((visibility("hidden"), used,
               tls_model("initial-exec"))) constinit thread_local uint8_t gpuprobe_opened = 0;
// The wrapper that the program gets for `name`, or null: then the real dlsym answers, which knows what its
// caller may see. It never finds our own wrappers (interposed.cc).
__attribute__((visibility("hidden"), used)) void* gpuprobe_find_thunk(void* handle, const char* name,
                                                                      const void* caller) noexcept {
  using namespace gpuprobe::injector::nccl;
  if (gpuprobe_opened != 0) {
    gpuprobe_opened = 0;
    PatchBeforeUse();
  }
  if (name[0] != 'c' && name[0] != 'n' && name[0] != 'p' && name[0] != 's') return nullptr;
  // RTLD_NEXT means "behind me": the caller is a wrapper itself, and calls to it are intercepted.
  if (handle == RTLD_NEXT) return nullptr;
  if (name[0] == 'c') {
    const void* cupti = StartsWith(name, "cupti") ? dlsym(handle, name) : nullptr;
    return cupti == nullptr ? nullptr : gpuprobe::injector::BrokerAnswer(handle, name, cupti);
  }
  if (ConcernsLookUps(name)) return AnswerForLookUp(name, dlsym(handle, name));
  if (StartsWith(name, kProfilerPrefix)) return FindProfiler(handle, name);
  const EntryPoint entry_point = FindEntryPoint(name);
  if (entry_point == EntryPoint::kCount) {
    if (!IsUnknownFunction(name)) return nullptr;
    const void* unknown = dlsym(handle, name);
    if (unknown != nullptr && !IsCodeOfNccl(unknown)) MeetProviderAt(unknown);
    if (IsCodeOfNccl(unknown)) NoteUnknownFunction(name);
    return nullptr;
  }
  const void* real = dlsym(handle, name);
  if (real == nullptr && handle == RTLD_DEFAULT) real = FindAsCaller(caller, name);
  if (real == nullptr) return nullptr;
  int way = ProviderOf(entry_point, real);
  if (way < 0) {
    MeetProviderAt(real);
    way = ProviderOf(entry_point, real);
  }
  return way < 0 ? nullptr : Thunk(way, entry_point);
}
// NOLINTEND(readability-identifier-naming)
}

// Only names that start with 'c', 'n', 'p' or 's' are looked at closer, and the first one after a dlopen. rdi
// and rsi are saved around the call, which also aligns the stack.
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
  je 1f
  cmpb $115, (%rsi)
  jne 2f
1:
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  movq 16(%rsp), %rdx
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
