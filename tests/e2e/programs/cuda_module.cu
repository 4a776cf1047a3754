// A shared object that interpreters load in order to use CUDA: one function that works on the device, under
// every name and signature that their ways of loading want. None of them needs headers of theirs: what we are
// handed is passed on or left alone.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

// Not in a namespace without a name: what is exported has these types.

// What bash finds under the name of a loadable builtin.
struct BashBuiltin {
  const char* name;
  int (*function)(void* words);
  int flags;
  const char* const* long_documentation;
  const char* short_documentation;
  char* handle;
};

// What PostgreSQL 15 compares before it loads anything.
struct PostgresMagic {
  int length, version, most_arguments, most_index_keys, name_length, float8_by_value;
  char abi[32];
};

namespace {

constexpr int kKernels = 10;

__global__ void AddOne(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

// The number of CUDA calls that failed.
int WorkOnDevice() {
  int failed = 0;
  int* counter = nullptr;
  failed += cudaMalloc(&counter, 1024) != cudaSuccess;
  for (int i = 0; i < kKernels; ++i) AddOne<<<1, 32>>>(counter);
  failed += cudaDeviceSynchronize() != cudaSuccess;
  failed += cudaFree(counter) != cudaSuccess;
  return failed;
}

constexpr int kBashBuiltinEnabled = 1;
const char* const kNoDocumentation[] = {nullptr};

int StartFromBash(void*) { return WorkOnDevice(); }

}  // namespace

extern "C" {

// Any program that calls functions of C: python's ctypes, ruby's Fiddle, php's FFI, vim's libcallnr, guile.
int start_cuda() { return WorkOnDevice(); }
long start_cuda_long(long) { return WorkOnDevice(); }
void* start_cuda_guile() { return reinterpret_cast<void*>(static_cast<long>(WorkOnDevice() * 4 + 2)); }

// perl: the body of an XSUB. It leaves the stack as it is.
void start_cuda_perl(void*, void*) {
  if (WorkOnDevice() != 0) std::puts("CUDA failed");
}

// tcl: `load`.
int Cudamodule_Init(void*) { return WorkOnDevice(); }

// lua: package.loadlib, a function without results.
int start_cuda_lua(void*) { return WorkOnDevice() == 0 ? 0 : -1; }

// node: process.dlopen of a module with Node-API.
int node_api_module_get_api_version_v1() { return 8; }
void* napi_register_module_v1(void*, void* exports) { return WorkOnDevice() == 0 ? exports : nullptr; }

// java: a native method of class Main.
int Java_Main_startCuda(void*, void*) { return WorkOnDevice(); }

// bash: enable -f.
BashBuiltin start_cuda_struct = {"start_cuda",     StartFromBash, kBashBuiltinEnabled,
                                 kNoDocumentation, "start_cuda",  nullptr};

// sqlite: `.load`.
int sqlite3_cudamodule_init(void*, char**, const void*) { return WorkOnDevice(); }

// make: `load`, and plugins of gcc.
int plugin_is_GPL_compatible = 1;
int start_cuda_make(const void*) { return WorkOnDevice() == 0 ? 1 : 0; }
int plugin_init(void*, void*) { return WorkOnDevice(); }

// ld: -plugin.
int onload(void*) { return WorkOnDevice() == 0 ? 0 : 1; }

// zsh: zmodload.
int setup_(void*) { return 0; }
int features_(void*, char*** features) {
  static char* none[] = {nullptr};
  *features = none;
  return 0;
}
int enables_(void*, int**) { return 0; }
int boot_(void*) { return WorkOnDevice(); }
int cleanup_(void*) { return 0; }
int finish_(void*) { return 0; }

// PostgreSQL: LOAD.
const PostgresMagic* Pg_magic_func() {
  static const PostgresMagic magic = {sizeof(PostgresMagic), 1500, 100, 32, 64, 1, "PostgreSQL"};
  return &magic;
}
void _PG_init() { WorkOnDevice(); }

}  // extern "C"
