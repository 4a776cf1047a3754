#include "injector/capture/sandbox/part.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "injector/base/lifecycle.h"
#include "injector/capture/loader/libc_functions.h"
#include "injector/core/sandbox.h"

extern "C" {
// Below. NOLINTBEGIN(readability-identifier-naming)
void gpuprobe_prctl();
void gpuprobe_syscall();
// NOLINTEND(readability-identifier-naming)
}

namespace gpuprobe::injector {

namespace {

void BeforeFilter(long mode, const void* filter) noexcept {
  const int before = errno;
  const bool kills = mode == SECCOMP_MODE_STRICT ||
                     (mode == SECCOMP_MODE_FILTER && MayKill(static_cast<const sock_fprog*>(filter)));
  void (*const end)() noexcept = kills ? end_before_filter.load(std::memory_order_acquire) : nullptr;
  if (end != nullptr && InWatchedProcess()) end();
  errno = before;
}

void Start() noexcept {
  nccl::RedirectLibcFunction("prctl", reinterpret_cast<void*>(&prctl),
                             reinterpret_cast<void*>(&gpuprobe_prctl), true);
  nccl::RedirectLibcFunction("syscall", reinterpret_cast<void*>(&syscall),
                             reinterpret_cast<void*>(&gpuprobe_syscall), true);
}

}  // namespace

const Part kSandboxPart{"sandbox", Start, nullptr, nullptr};

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
