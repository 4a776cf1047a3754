// Calls that make a process, turn this one into another, or end it; and system calls by number.
#include <alloca.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/host_rules/host_rules.h"

using namespace host_rules;

namespace {

// As SpawnDetached does it: the memory is shared until the child executes something else, no SIGCHLD tells
// the program of its end, and no handler of the program's runs in it.
bool IsDetachedChild(int flags) {
  constexpr int kShared = CLONE_VM | CLONE_VFORK;
  return (flags & kShared) == kShared && (flags & CSIGNAL) == 0 && blocked && kind == Kind::kOwn;
}

// What has no function of its own in every C library that we run with, and hurts nobody.
bool IsHarmless(long number, const long* arguments) {
  if (number == SYS_tgkill) return static_cast<int>(arguments[2]) == 0;
  return number == SYS_getpid || number == SYS_gettid || number == SYS_futex || number == SYS_clock_gettime;
}

bool WaitsForever(long number, const long* arguments) {
  return number == SYS_futex && (arguments[1] & FUTEX_CMD_MASK) != FUTEX_WAKE && arguments[3] == 0;
}

}  // namespace

// The arguments of execl and its kin as an array on the stack, with the null that ends them.
#define COLLECT_ARGUMENTS(first, list)                                               \
  va_list list;                                                                      \
  va_start(list, first);                                                             \
  size_t count = 1;                                                                  \
  while (first != nullptr && va_arg(list, char*) != nullptr) ++count;                \
  va_end(list);                                                                      \
  auto** const arguments = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  arguments[0] = const_cast<char*>(first);                                           \
  va_start(list, first);                                                             \
  for (size_t i = 1; first != nullptr && i <= count; ++i) arguments[i] = va_arg(list, char*)

extern "C" {

long syscall(long number, ...) noexcept {
  NEXT(syscall);
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (IsProbe(CALLER)) {
    if (!IsHarmless(number, arguments)) Break("system-calls", "syscall");
    if (kind == Kind::kApplication && WaitsForever(number, arguments)) Break("waiting", "syscall");
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

pid_t fork() {
  NEXT(fork);
  RULE("process", fork);
  return next();
}
pid_t _Fork() noexcept {
  NEXT(_Fork);
  RULE("process", _Fork);
  return next();
}
// A function cannot return twice to its caller on one stack: the child has a stack, and so a memory, of its
// own. The caller waits for it all the same.
pid_t vfork() noexcept {
  RULE("process", vfork);
  return static_cast<pid_t>(syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0));
}
int clone(int (*main)(void*), void* stack, int flags, void* argument, ...) noexcept {
  NEXT(clone);
  va_list list;
  va_start(list, argument);
  auto* const parent_id = va_arg(list, pid_t*);
  void* const storage = va_arg(list, void*);
  auto* const child_id = va_arg(list, pid_t*);
  va_end(list);
  if (IsProbe(CALLER) && !IsDetachedChild(flags)) Break("process", "clone");
  return next(main, stack, flags, argument, parent_id, storage, child_id);
}
// Only for a child that it made itself, and that no wait of the program's can see.
pid_t waitpid(pid_t pid, int* status, int options) {
  NEXT(waitpid);
  if (IsProbe(CALLER) && (pid <= 0 || (static_cast<unsigned int>(options) & (__WALL | __WCLONE)) == 0))
    Break("process", "waitpid");
  return next(pid, status, options);
}
pid_t wait(int* status) {
  NEXT(wait);
  RULE("process", wait);
  return next(status);
}
int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  NEXT(waitid);
  RULE("process", waitid);
  return next(type, id, info, options);
}
int daemon(int keep_folder, int keep_descriptors) noexcept {
  NEXT(daemon);
  RULE("process", daemon);
  return next(keep_folder, keep_descriptors);
}
int system(const char* command) {
  NEXT(system);
  RULE("process", system);
  return next(command);
}
FILE* popen(const char* command, const char* mode) {
  NEXT(popen);
  RULE("process", popen);
  return next(command, mode);
}
int execve(const char* path, char* const* arguments, char* const* environment) {
  NEXT(execve);
  RULE("process", execve);
  return next(path, arguments, environment);
}
int execv(const char* path, char* const* arguments) noexcept {
  NEXT(execv);
  RULE("process", execv);
  return next(path, arguments);
}
int execvp(const char* file, char* const* arguments) noexcept {
  NEXT(execvp);
  RULE("process", execvp);
  return next(file, arguments);
}
int execvpe(const char* file, char* const* arguments, char* const* environment) noexcept {
  NEXT(execvpe);
  RULE("process", execvpe);
  return next(file, arguments, environment);
}
int fexecve(int fd, char* const* arguments, char* const* environment) noexcept {
  NEXT(fexecve);
  RULE("process", fexecve);
  return next(fd, arguments, environment);
}
int execveat(int folder, const char* path, char* const* arguments, char* const* environment,
             int flags) noexcept {
  NEXT(execveat);
  RULE("process", execveat);
  return next(folder, path, arguments, environment, flags);
}
int execl(const char* path, const char* first, ...) noexcept {
  NEXT(execv);
  RULE("process", execl);
  COLLECT_ARGUMENTS(first, list);
  va_end(list);
  return next(path, arguments);
}
int execlp(const char* file, const char* first, ...) noexcept {
  NEXT(execvp);
  RULE("process", execlp);
  COLLECT_ARGUMENTS(first, list);
  va_end(list);
  return next(file, arguments);
}
int execle(const char* path, const char* first, ...) noexcept {
  NEXT(execve);
  RULE("process", execle);
  COLLECT_ARGUMENTS(first, list);
  char* const* const environment = va_arg(list, char* const*);
  va_end(list);
  return next(path, arguments, environment);
}
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  NEXT(posix_spawn);
  RULE("process", posix_spawn);
  return next(pid, path, actions, attributes, arguments, environment);
}
int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                 const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  NEXT(posix_spawnp);
  RULE("process", posix_spawnp);
  return next(pid, file, actions, attributes, arguments, environment);
}
void exit(int status) {
  NEXT(exit);
  RULE("process", exit);
  next(status);
  __builtin_unreachable();
}
void _exit(int status) {
  NEXT(_exit);
  RULE("process", _exit);
  next(status);
  __builtin_unreachable();
}
void _Exit(int status) {
  NEXT(_Exit);
  RULE("process", _Exit);
  next(status);
  __builtin_unreachable();
}
void quick_exit(int status) {
  NEXT(quick_exit);
  RULE("process", quick_exit);
  next(status);
  __builtin_unreachable();
}
void abort() {
  NEXT(abort);
  RULE("process", abort);
  next();
  __builtin_unreachable();
}
}
