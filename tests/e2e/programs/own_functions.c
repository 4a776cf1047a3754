/* A library with functions of its own that are named as the C library's, which it calls through slots that
 * are bound when they are first used. The program opens it with RTLD_DEEPBIND, so they are its own. */
#include <stdarg.h>
#include <stdio.h>

char* getenv(const char* name) { return (char*)(name[0] == 'P' ? "mine" : "?"); }
int prctl(int option, ...) { return 4000 + option; }
long syscall(long number, ...) { return 7000 + number; }
void* dlopen(const char* file, int mode) { return (void*)(file != NULL && mode != 0 ? 0x12L : 0L); }
void* dlsym(void* handle, const char* name) { return (void*)(handle == NULL && name != NULL ? 0x34L : 0L); }

int CallAll(char* line, unsigned long size) {
  return snprintf(line, size, "%s %d %ld %p %p", getenv("PATH"), prctl(3), syscall(39),
                  dlopen("libm.so.6", 2), dlsym(NULL, "prctl"));
}
