#include "collector/cli/attach/stub.h"

#include <cstring>

#ifdef __x86_64__

static_assert(sizeof(gpuprobe::cli::attach::StubData) == 256);
static_assert(offsetof(gpuprobe::cli::attach::RegionState, text) == 40);

// Offsets into StubData are those of `d_...`, into RegionState those of `s_...`.
asm(R"(
  .section .rodata.gpuprobe_stub, "a", @progbits
  .balign 16
  .globl gpuprobe_stub_begin
  .hidden gpuprobe_stub_begin
  .globl gpuprobe_stub_end
  .hidden gpuprobe_stub_end

  .set s_created, 0
  .set s_returned, 4
  .set s_progress, 8
  .set s_answer, 12
  .set s_read, 16
  .set s_cancel, 20
  .set s_old_mask, 24
  .set s_thread, 32
  .set s_text, 40
  .set s_vectors, 0x1000
  .set region_bytes, 0x1a000
  .set stack_bytes, 0x18000

  .set d_region, gpuprobe_stub_end
  .set d_rip, gpuprobe_stub_end + 8
  .set d_rsp, gpuprobe_stub_end + 16
  .set d_rax, gpuprobe_stub_end + 24
  .set d_rbx, gpuprobe_stub_end + 32
  .set d_rcx, gpuprobe_stub_end + 40
  .set d_rdx, gpuprobe_stub_end + 48
  .set d_rsi, gpuprobe_stub_end + 56
  .set d_rdi, gpuprobe_stub_end + 64
  .set d_rbp, gpuprobe_stub_end + 72
  .set d_r8, gpuprobe_stub_end + 80
  .set d_r9, gpuprobe_stub_end + 88
  .set d_r10, gpuprobe_stub_end + 96
  .set d_r11, gpuprobe_stub_end + 104
  .set d_r12, gpuprobe_stub_end + 112
  .set d_r13, gpuprobe_stub_end + 120
  .set d_r14, gpuprobe_stub_end + 128
  .set d_r15, gpuprobe_stub_end + 136
  .set d_flags, gpuprobe_stub_end + 144
  .set d_all_signals, gpuprobe_stub_end + 152
  .set d_errno_location, gpuprobe_stub_end + 160
  .set d_pthread_create, gpuprobe_stub_end + 168
  .set d_pthread_self, gpuprobe_stub_end + 176
  .set d_pthread_detach, gpuprobe_stub_end + 184
  .set d_dlopen, gpuprobe_stub_end + 192
  .set d_dlsym, gpuprobe_stub_end + 200
  .set d_dlerror, gpuprobe_stub_end + 208
  .set d_library, gpuprobe_stub_end + 216
  .set d_entry, gpuprobe_stub_end + 224
  .set d_variables, gpuprobe_stub_end + 232
  .set d_pause, gpuprobe_stub_end + 240

gpuprobe_stub_begin:
  # Until the region is there, the thread keeps its own stack pointer: a signal handler may run at any moment.
  mov   $9, %eax                      # mmap(region, bytes, READ|WRITE, PRIVATE|ANONYMOUS|FIXED_NOREPLACE)
  mov   d_region(%rip), %rdi
  mov   $region_bytes, %esi
  mov   $3, %edx
  mov   $0x100022, %r10d
  mov   $-1, %r8
  mov   $0, %r9d
  syscall
  cmp   d_region(%rip), %rax
  jne   .Lnot_mapped
  lea   stack_bytes(%rax), %rbx

  mov   $14, %eax                     # rt_sigprocmask(SIG_SETMASK, all, &old_mask, 8)
  mov   $2, %edi
  lea   d_all_signals(%rip), %rsi
  lea   s_old_mask(%rbx), %rdx
  mov   $8, %r10d
  syscall

  mov   $0xe7, %eax                   # x87, SSE, AVX and AVX-512: what library functions use
  mov   $0, %edx
  xsave64 s_vectors(%rbx)
  mov   %rbx, %rsp
  cld
  call  *d_errno_location(%rip)
  mov   %rax, %r12
  mov   (%rax), %r13d
  lea   s_thread(%rbx), %rdi
  mov   $0, %esi
  lea   .Lthread(%rip), %rdx
  mov   %rbx, %rcx
  call  *d_pthread_create(%rip)
  inc   %eax
  mov   %eax, s_created(%rbx)
  mov   %r13d, (%r12)
  mov   $0xe7, %eax
  mov   $0, %edx
  xrstor64 s_vectors(%rbx)

  mov   d_flags(%rip), %rax
  push  %rax
  popfq                               # nothing below changes a flag
  mov   d_rsp(%rip), %rsp
  mov   $14, %eax                     # rt_sigprocmask(SIG_SETMASK, &old_mask, 0, 8)
  mov   $2, %edi
  lea   s_old_mask(%rbx), %rsi
  mov   $0, %edx
  mov   $8, %r10d
  syscall
  movl  $1, s_returned(%rbx)          # the region may be gone from here on
  mov   d_rax(%rip), %rax
  jmp   .Lback

.Lnot_mapped:
  mov   d_flags(%rip), %ecx           # without a stack: sahf leaves the overflow flag as it is
  mov   %cl, %ah
  shr   $11, %ecx
  and   $1, %ecx
  mov   $0x7f, %dl
  add   %cl, %dl
  sahf
  mov   d_rax(%rip), %rax

.Lback:
  mov   d_rbx(%rip), %rbx
  mov   d_rcx(%rip), %rcx
  mov   d_rdx(%rip), %rdx
  mov   d_rsi(%rip), %rsi
  mov   d_rdi(%rip), %rdi
  mov   d_rbp(%rip), %rbp
  mov   d_r8(%rip), %r8
  mov   d_r9(%rip), %r9
  mov   d_r10(%rip), %r10
  mov   d_r11(%rip), %r11
  mov   d_r12(%rip), %r12
  mov   d_r13(%rip), %r13
  mov   d_r14(%rip), %r14
  mov   d_r15(%rip), %r15
  jmp   *d_rip(%rip)

  # The thread that was made; its argument is the address of RegionState.
.Lthread:
  push  %rbx
  push  %r12
  sub   $8, %rsp
  mov   %rdi, %rbx
  call  *d_pthread_self(%rip)
  mov   %rax, %rdi
  call  *d_pthread_detach(%rip)
  mov   d_library(%rip), %rdi
  mov   $0x1002, %esi                 # RTLD_NOW | RTLD_NODELETE
  call  *d_dlopen(%rip)
  test  %rax, %rax
  jz    .Lnot_loaded
  mov   %rax, %rdi
  mov   d_entry(%rip), %rsi
  call  *d_dlsym(%rip)
  test  %rax, %rax
  jz    .Lnot_loaded
  cmpl  $0, s_cancel(%rbx)
  jne   .Lcancelled
  movl  $1, s_progress(%rbx)
  mov   d_variables(%rip), %rdi
  call  *%rax
  mov   %eax, s_answer(%rbx)
  movl  $2, s_progress(%rbx)
  jmp   .Ldone

.Lcancelled:
  movl  $4, s_progress(%rbx)
  jmp   .Ldone

.Lnot_loaded:
  call  *d_dlerror(%rip)
  test  %rax, %rax
  jz    .Lno_text
  mov   $0, %ecx
.Lcopy:
  mov   (%rax,%rcx), %dl
  mov   %dl, s_text(%rbx,%rcx)
  test  %dl, %dl
  jz    .Lno_text
  inc   %ecx
  cmp   $511, %ecx
  jb    .Lcopy
.Lno_text:
  movl  $3, s_progress(%rbx)

.Ldone:
  mov   $2000, %r12d                  # 20 s for us to read
.Lwait:
  cmpl  $0, s_read(%rbx)
  jne   .Lfree
  mov   $35, %eax                     # nanosleep
  lea   d_pause(%rip), %rdi
  mov   $0, %esi
  syscall
  dec   %r12d
  jnz   .Lwait
.Lfree:
  cmpl  $0, s_returned(%rbx)          # the other thread may have left the stub by a longjmp
  je    .Lend
  mov   $11, %eax                     # munmap
  lea   -stack_bytes(%rbx), %rdi
  mov   $region_bytes, %esi
  syscall
.Lend:
  mov   $0, %eax
  add   $8, %rsp
  pop   %r12
  pop   %rbx
  ret

  .balign 8
gpuprobe_stub_end:
  .previous
)");

extern "C" {
extern const char gpuprobe_stub_begin[];  // NOLINT(readability-identifier-naming): the assembler's
extern const char gpuprobe_stub_end[];    // NOLINT(readability-identifier-naming)
}

namespace gpuprobe::cli::attach {

std::string MakeStub(StubData data, uint64_t at, const std::string& library, const std::string& entry,
                     const std::string& variables) {
  std::string stub(gpuprobe_stub_begin, gpuprobe_stub_end);
  std::string texts;
  const auto place = [&](const std::string& text) {
    const uint64_t address = at + stub.size() + sizeof data + texts.size();
    texts.append(text).push_back('\0');
    return address;
  };
  data.library = place(library);
  data.entry = place(entry);
  data.variables = place(variables);
  stub.append(reinterpret_cast<const char*>(&data), sizeof data);
  stub += texts;
  stub.resize((stub.size() + 7) / 8 * 8);
  return stub;
}

}  // namespace gpuprobe::cli::attach

#else

namespace gpuprobe::cli::attach {

std::string MakeStub(StubData /*data*/, uint64_t /*at*/, const std::string& /*library*/,
                     const std::string& /*entry*/, const std::string& /*variables*/) {
  return "";
}

}  // namespace gpuprobe::cli::attach

#endif
