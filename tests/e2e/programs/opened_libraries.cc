// A program that opens libraries, looks functions up and forks while it is recorded, and prints what it got.
//
//   own-names WHEN   a library with functions of its own named as the C library's (own_functions.c), opened
//                    before or after CUDA starts
//   nccl             what RTLD_DEFAULT finds of an NCCL that was opened with RTLD_LOCAL
//   forks N          N children, which open a library, while others are opened
//   addresses        calls by addresses that are kept in the program, which may be stubs in it
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

void StartCuda() {
  void* memory = nullptr;
  if (cudaMalloc(&memory, 1 << 10) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) std::abort();
}

void* Open(const char* file, int mode) {
  void* handle = dlopen(file, mode);
  if (handle != nullptr) return handle;
  std::printf("%s\n", dlerror());
  std::exit(1);
}

void OwnNames(bool before) {
  constexpr int kMode = RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND;
  void* library = before ? Open(OWN_FUNCTIONS, kMode) : nullptr;
  StartCuda();
  if (!before) library = Open(OWN_FUNCTIONS, kMode);
  usleep(700'000);  // the probe has looked at it
  const auto call_all = reinterpret_cast<int (*)(char*, size_t)>(dlsym(library, "CallAll"));
  char line[200];
  call_all(line, sizeof(line));
  std::printf("%s\n", line);
}

void Nccl() {
  StartCuda();
  void* nccl = Open("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  usleep(300'000);
  for (const char* name : {"ncclAllReduce", "ncclNoSuchFunction"}) {
    const bool found = dlsym(RTLD_DEFAULT, name) != nullptr;
    const char* error = dlerror();
    std::printf("%s: %d %s\n", name, found, error == nullptr ? "no error" : error);
  }
  std::printf("by its handle: %d\n", dlsym(nccl, "ncclAllReduce") != nullptr);
}

// A child that takes 5 s hangs.
int OpenInChild() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(5);
    const bool opened = dlopen("libanl.so.1", RTLD_NOW) != nullptr;
    _exit(opened && dlsym(RTLD_DEFAULT, "getpid") != nullptr ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void Forks(int count) {
  StartCuda();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      dlsym(RTLD_DEFAULT, "ncclFoo");
      usleep(200);
    }
  });
  const char* libraries[] = {"librt.so.1", "libutil.so.1", "libanl.so.1", "libresolv.so.2"};
  int bad = 0;
  for (int i = 0; i < count; ++i) {
    void* library = Open(libraries[i % 4], RTLD_NOW | RTLD_LOCAL);
    dlsym(RTLD_DEFAULT, "none");
    bad += OpenInChild() == 0 ? 0 : 1;
    dlclose(library);
  }
  done = true;
  other.join();
  std::printf("%d children failed\n", bad);
}

int (*volatile kept_prctl)(int, ...) noexcept = prctl;
long (*volatile kept_syscall)(long, ...) noexcept = syscall;
void* (*volatile kept_dlsym)(void*, const char*) noexcept = dlsym;
void* (*volatile kept_dlopen)(const char*, int) noexcept = dlopen;
char* (*volatile kept_getenv)(const char*) noexcept = getenv;

void Addresses() {
  kept_prctl = prctl;
  kept_syscall = syscall;
  kept_dlsym = dlsym;
  kept_dlopen = dlopen;
  kept_getenv = getenv;
  StartCuda();
  usleep(100'000);
  std::printf("%d %d\n", prctl(PR_GET_DUMPABLE), kept_prctl(PR_GET_DUMPABLE));
  std::printf("%d %d\n", syscall(SYS_getpid) == getpid(), kept_syscall(SYS_getpid) == getpid());
  std::printf("%d %d\n", dlopen("libm.so.6", RTLD_NOW) != nullptr,
              kept_dlopen("libm.so.6", RTLD_NOW) != nullptr);
  std::printf("%d %d\n", dlsym(RTLD_DEFAULT, "puts") != nullptr, kept_dlsym(RTLD_DEFAULT, "puts") != nullptr);
  std::printf("%d %d\n", getenv("PATH") != nullptr, kept_getenv("PATH") != nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (std::strcmp(what, "own-names") == 0 && argc > 2) {
    OwnNames(std::strcmp(argv[2], "before") == 0);
  } else if (std::strcmp(what, "nccl") == 0) {
    Nccl();
  } else if (std::strcmp(what, "forks") == 0 && argc > 2) {
    Forks(std::atoi(argv[2]));
  } else if (std::strcmp(what, "addresses") == 0) {
    Addresses();
  } else {
    return 2;
  }
  return 0;
}
