/* embedded_python LIBRARY CODE: runs Python code in an interpreter that it loads for itself, as applications
 * with a built-in Python do. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void (*start)(void) = NULL;
  int (*run)(const char*) = NULL;
  *(void**)&start = dlsym(library, "Py_Initialize");
  *(void**)&run = dlsym(library, "PyRun_SimpleString");
  if (start == NULL || run == NULL) return 1;
  start();
  return run(argv[2]);
}
