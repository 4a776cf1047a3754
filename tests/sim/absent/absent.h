// Functions that the node does not simulate but a program's loader wants to find: each ends the program with
// its name.
#pragma once

#include <unistd.h>

#include <cstdio>

namespace gpusim {

[[noreturn]] inline void EndForWantOf(const char* function) {
  std::fprintf(stderr, "gpusim: %s is not simulated\n", function);
  _exit(64);
}

}  // namespace gpusim

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define ABSENT(name) \
  extern "C" __attribute__((visibility("default"))) void name() { gpusim::EndForWantOf(#name); }
