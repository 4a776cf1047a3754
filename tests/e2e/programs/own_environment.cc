// A program that manages the array of its environment itself, as perl, shells and daemons that change their
// title do. Each way starts CUDA in the middle, then uses its array as it always did; exits 0 if it works.
//
//   realloc   a copy of its own, which it makes longer with realloc (perl assigns to %ENV like this)
//   free      a copy of its own, which it frees
//   append    a copy with room, to which it adds a variable in place; a child sees it
//   edit      changes an entry of main's third argument; getenv sees it
//   swap      a short array for one child, then its old one again
//   remove    takes all entries out of the array in place
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

namespace {

[[noreturn]] void Fail(const char* what) {
  std::printf("FAILED: %s\n", what);
  std::fflush(stdout);
  _exit(1);
}

void Expect(bool holds, const char* what) {
  if (!holds) Fail(what);
}

// Long enough for everything that a probe does later, on a thread of its own.
void UseCuda() {
  void* memory = nullptr;
  Expect(cudaMalloc(&memory, 1024) == cudaSuccess, "cudaMalloc");
  for (int i = 0; i < 10; ++i) cudaMemset(memory, 0, 1024);
  Expect(cudaDeviceSynchronize() == cudaSuccess, "cudaDeviceSynchronize");
  usleep(700'000);
}

size_t Count(char** array) {
  size_t count = 0;
  while (array[count] != nullptr) ++count;
  return count;
}

char** Copy(size_t room) {
  const size_t count = Count(environ);
  auto** copy = static_cast<char**>(std::calloc(count + 1 + room, sizeof(char*)));
  std::memcpy(copy, environ, count * sizeof(char*));
  return copy;
}

bool ChildSees(const char* condition) { return std::system(condition) == 0; }

void Realloc() {
  environ = Copy(0);
  const size_t count = Count(environ);
  UseCuda();
  for (size_t more = 1; more <= 64; ++more) {
    auto** longer = static_cast<char**>(std::realloc(environ, (count + more + 1) * sizeof(char*)));
    longer[count + more - 1] = strdup(("NEW" + std::to_string(more) + "=x").c_str());
    longer[count + more] = nullptr;
    environ = longer;
  }
  Expect(Count(environ) == count + 64, "the array has other entries");
  Expect(ChildSees("test \"$NEW64\" = x"), "the child's environment");
}

void Free() {
  char** own = Copy(0);
  environ = own;
  UseCuda();
  Expect(environ == own, "environ was replaced");
  std::free(environ);
  environ = nullptr;
}

void Append() {
  char** own = Copy(2);
  environ = own;
  UseCuda();
  char entry[] = "LATER=yes";
  own[Count(own)] = entry;
  Expect(getenv("LATER") == entry + sizeof("LATER"), "getenv");
  Expect(ChildSees("test \"$LATER\" = yes"), "the child's environment");
}

void Edit(char** envp) {
  Expect(envp == environ, "main's argument is another array");
  UseCuda();
  char entry[] = "HOME=/changed";
  for (char** at = envp; *at != nullptr; ++at) {
    if (std::strncmp(*at, "HOME=", 5) == 0) *at = entry;
  }
  Expect(getenv("HOME") == entry + sizeof("HOME"), "getenv");
}

void Swap() {
  char** before = environ;
  UseCuda();
  char entry[] = "A=1";
  char* few[] = {entry, nullptr};
  environ = few;
  Expect(ChildSees("test \"$A\" = 1 -a -z \"$HOME\""), "the child's environment");
  environ = before;
  Expect(getenv("PATH") != nullptr, "PATH is gone");
}

void Remove(char** envp) {
  UseCuda();
  envp[0] = nullptr;
  Expect(getenv("HOME") == nullptr && Count(environ) == 0, "the environment is not empty");
}

}  // namespace

int main(int argc, char** argv, char** envp) {
  const std::map<std::string, std::function<void()>> ways = {
      {"realloc", Realloc},          {"free", Free}, {"append", Append},
      {"edit", [&] { Edit(envp); }}, {"swap", Swap}, {"remove", [&] { Remove(envp); }},
  };
  const auto way = ways.find(argc > 1 ? argv[1] : "");
  if (way == ways.end()) Fail("no such way");
  way->second();
  std::puts("as expected");
  return 0;
}
