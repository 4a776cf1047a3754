// Helpers for the programs that obtain and release memory: calls that must succeed, conditions that must
// hold, and calls by name.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

constexpr size_t kMiB = size_t{1} << 20;

inline void Check(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%d: %s returned %d\n", getpid(), what, result);
  std::exit(1);
}
#define CHECK(call) Check(static_cast<int>(call), #call)

inline void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%d: not so: %s\n", getpid(), what);
  std::exit(1);
}
#define EXPECT(condition) Expect(condition, #condition)

// The per-thread-default-stream twins are called by name: a source file is compiled for one of the two.
template <typename Function>
Function* Twin(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  Expect(found != nullptr, name);
  return reinterpret_cast<Function*>(found);
}
