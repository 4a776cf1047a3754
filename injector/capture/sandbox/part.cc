#include "injector/capture/sandbox/part.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "injector/base/lifecycle.h"
#include "injector/base/text.h"
#include "injector/capture/loader/relocations.h"
#include "injector/core/sandbox.h"
#include "injector/core/self_report.h"

extern "C" {
// Below. NOLINTBEGIN(readability-identifier-naming)
void gpuprobe_prctl();
void gpuprobe_syscall();
// NOLINTEND(readability-identifier-naming)
}

namespace gpuprobe::injector {

namespace {

using nccl::ElfObject;

constexpr std::string_view kSkipped[] = {"libc.so", "ld-linux", "linux-vdso", "libgpuprobe.so"};
constexpr uint32_t kScansAfterChange = 2;  // an object may be in the list before its relocations are done

constinit uint64_t scanned_adds = 0;
constinit uint32_t scans_left = 0;

void BeforeFilter(long mode, const void* filter) noexcept {
  const int before = errno;
  const bool kills = mode == SECCOMP_MODE_STRICT ||
                     (mode == SECCOMP_MODE_FILTER && MayKill(static_cast<const sock_fprog*>(filter)));
  void (*const end)() noexcept = kills ? end_before_filter.load(std::memory_order_acquire) : nullptr;
  if (end != nullptr && InWatchedProcess()) end();
  errno = before;
}

void SeeObject(const ElfObject& /*object*/) noexcept {}

bool Skip(const ElfObject& object) noexcept {
  return std::any_of(std::begin(kSkipped), std::end(kSkipped),
                     [&](std::string_view start) { return StartsWith(object.FileName(), start); });
}

bool Concerns(const char* symbol) noexcept {
  return std::strcmp(symbol, "prctl") == 0 || std::strcmp(symbol, "syscall") == 0;
}

// Whether the program's libraries find the C library's, and not a function of the program's own.
struct Found {
  bool prctl = false;
  bool syscall = false;
};
constinit Found found_in_libc;

void* Replacement(const ElfObject& object, const nccl::Slot& slot) noexcept {
  const bool is_prctl = slot.symbol[0] == 'p';
  if (!(is_prctl ? found_in_libc.prctl : found_in_libc.syscall)) return nullptr;
  void* const real = is_prctl ? reinterpret_cast<void*>(&prctl) : reinterpret_cast<void*>(&syscall);
  const bool unresolved =
      slot.type == R_X86_64_JUMP_SLOT && object.Contains(reinterpret_cast<uintptr_t>(slot.value));
  if (slot.value != real && !unresolved) return nullptr;
  return is_prctl ? reinterpret_cast<void*>(&gpuprobe_prctl) : reinterpret_cast<void*>(&gpuprobe_syscall);
}

constexpr nccl::RelocationPolicy kPolicy{SeeObject, Skip, Replacement, Concerns};

void Patch() noexcept {
  const nccl::ScanResult result = nccl::ScanRelocations(kPolicy);
  if (result.adds != scanned_adds) {
    scanned_adds = result.adds;
    scans_left = kScansAfterChange;
  }
  if (result.patched > 0) CountSelf(SelfCounter::kRelocationsPatched, result.patched);
}

void Start() noexcept {
  found_in_libc = {dlsym(RTLD_DEFAULT, "prctl") == reinterpret_cast<void*>(&prctl),
                   dlsym(RTLD_DEFAULT, "syscall") == reinterpret_cast<void*>(&syscall)};
  Patch();
}

void PatchNew() noexcept {
  if (scans_left == 0 && nccl::LoadedObjectsEver() == scanned_adds) return;
  if (scans_left > 0) --scans_left;
  Patch();
}

}  // namespace

const Part kSandboxPart{"sandbox", Start, PatchNew, nullptr};

}  // namespace gpuprobe::injector

extern "C" {

// Used by the assembly below only. NOLINTBEGIN(readability-identifier-naming)
__attribute__((visibility("hidden"), used)) void gpuprobe_before_prctl(long option, long mode,
                                                                       const void* filter) noexcept {
  if (option == PR_SET_SECCOMP) gpuprobe::injector::BeforeFilter(mode, filter);
}

__attribute__((visibility("hidden"), used)) void gpuprobe_before_syscall(long number, long first, long second,
                                                                         const void* third) noexcept {
  if (number == SYS_prctl) return gpuprobe_before_prctl(first, second, third);
  if (first == SECCOMP_SET_MODE_STRICT) return gpuprobe::injector::BeforeFilter(SECCOMP_MODE_STRICT, nullptr);
  if (first == SECCOMP_SET_MODE_FILTER) gpuprobe::injector::BeforeFilter(SECCOMP_MODE_FILTER, third);
}
// NOLINTEND(readability-identifier-naming)
}

// They leave by a jump, with registers and stack as they found them: `syscall` has an argument on the stack.
// 22 is PR_SET_SECCOMP, 157 prctl, 317 seccomp.
asm(R"(
.pushsection .text
.macro gpuprobe_pass_arguments_to function
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  pushq %rcx
  .cfi_adjust_cfa_offset 8
  pushq %r8
  .cfi_adjust_cfa_offset 8
  pushq %r9
  .cfi_adjust_cfa_offset 8
  pushq %rax
  .cfi_adjust_cfa_offset 8
  call \function
  popq %rax
  .cfi_adjust_cfa_offset -8
  popq %r9
  .cfi_adjust_cfa_offset -8
  popq %r8
  .cfi_adjust_cfa_offset -8
  popq %rcx
  .cfi_adjust_cfa_offset -8
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
.endm
.p2align 4
.globl gpuprobe_prctl
.hidden gpuprobe_prctl
.type gpuprobe_prctl, @function
gpuprobe_prctl:
  .cfi_startproc
  endbr64
  cmpl $22, %edi
  jne 1f
  gpuprobe_pass_arguments_to gpuprobe_before_prctl
1:
  jmp *prctl@GOTPCREL(%rip)
  .cfi_endproc
.size gpuprobe_prctl, . - gpuprobe_prctl
.p2align 4
.globl gpuprobe_syscall
.hidden gpuprobe_syscall
.type gpuprobe_syscall, @function
gpuprobe_syscall:
  .cfi_startproc
  endbr64
  cmpq $317, %rdi
  je 2f
  cmpq $157, %rdi
  jne 3f
2:
  gpuprobe_pass_arguments_to gpuprobe_before_syscall
3:
  jmp *syscall@GOTPCREL(%rip)
  .cfi_endproc
.size gpuprobe_syscall, . - gpuprobe_syscall
.popsection
)");
