/* A C program whose functions are named as functions of POSIX are, which ISO C allows: it includes no header
 * of POSIX. They are exported, as those of a program that plug-ins link against. Each counts its calls;
 * without a library that confuses them with the C library's, nobody calls them but main. */
#include <stdio.h>

#define OWN(name)           \
  int name(double weight) { \
    ++calls;                \
    return weight > 0.5;    \
  }

static int calls = 0;

OWN(access)
OWN(clone)
OWN(connect)
OWN(dup2)
OWN(execve)
OWN(flock)
OWN(fstat)
OWN(getcontext)
OWN(geteuid)
OWN(gethostname)
OWN(getpeername)
OWN(getpgrp)
OWN(getppid)
OWN(getrlimit)
OWN(getsid)
OWN(getsockname)
OWN(getsockopt)
OWN(isatty)
OWN(lstat)
OWN(madvise)
OWN(makecontext)
OWN(mkdir)
OWN(poll)
OWN(process_vm_readv)
OWN(realpath)
OWN(recv)
OWN(sched_yield)
OWN(send)
OWN(setsid)
OWN(sigaction)
OWN(sigprocmask)
OWN(socket)
OWN(stat)
OWN(statx)
OWN(swapcontext)
OWN(waitpid)

int cudaMalloc(void** memory, unsigned long bytes);
int cudaMemset(void* memory, int value, unsigned long bytes);
int cudaDeviceSynchronize(void);
int usleep(unsigned int us);

int main(void) {
  void* memory = NULL;
  if (cudaMalloc(&memory, 1024) != 0) return 2;
  for (int i = 0; i < 2000; ++i) cudaMemset(memory, 0, 100);
  if (cudaDeviceSynchronize() != 0) return 2;
  usleep(700000);
  for (int i = 0; i < 100; ++i) cudaMemset(memory, 0, 100);
  cudaDeviceSynchronize();
  printf("own functions called %d times\n", calls);
  return calls != 0;
}
