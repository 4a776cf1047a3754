/* The loader calls a resolver while it binds an object's names. This one takes a second; the C library's
 * functions may not be bound yet, so it asks the kernel. */
#include <sys/syscall.h>
#include <time.h>

static int Nothing(void) { return 0; }

__attribute__((used)) static int (*Resolve(void))(void) {
  struct timespec pause = {1, 0};
  long result = SYS_nanosleep;
  __asm__ volatile("syscall" : "+a"(result) : "D"(&pause), "S"(0) : "rcx", "r11", "memory");
  return Nothing;
}

int SlowToLoad(void) __attribute__((ifunc("Resolve")));
int (*slow_to_load)(void) = SlowToLoad;
