// Uses what the bundled libstdc++ does not share with the distribution's: random numbers from the system, and
// exceptions that the system's libgcc unwinds, on several threads at once. Exits with 0 if all of it works.
#include <dlfcn.h>

#include <cstdio>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 4;
constexpr int kThrown = 1000;

int ThrowThrough(int depth) {
  const std::string alive(40, 'x');  // destroyed on the way
  if (depth == 0) throw std::runtime_error(alive);
  return ThrowThrough(depth - 1) + 1;
}

int Caught() {
  int caught = 0;
  for (int i = 0; i < kThrown; ++i) {
    try {
      ThrowThrough(i % 20);
    } catch (const std::exception& e) {
      caught += std::string(e.what()).size() == 40 ? 1 : 0;
    }
  }
  return caught;
}

int Fail(const char* what) {
  std::fprintf(stderr, "bundled_libstdcxx: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Dl_info library{};
  if (argc != 2 || dladdr(dlsym(RTLD_DEFAULT, "_ZSt9terminatev"), &library) == 0 ||
      std::string(library.dli_fname).rfind(argv[1], 0) != 0)
    return Fail("this is not the bundled library");
  std::set<unsigned> drawn;
  for (const char* source : {"default", "arc4random"}) {
    std::random_device device(source);
    for (int i = 0; i < 100; ++i) drawn.insert(device());
  }
  if (drawn.size() < 190) return Fail("std::random_device repeats itself");

  std::vector<int> caught(kThreads);
  std::vector<std::thread> threads;
  for (int& count : caught) threads.emplace_back([&count] { count = Caught(); });
  for (std::thread& thread : threads) thread.join();
  for (const int count : caught) {
    if (count != kThrown) return Fail("an exception was not caught");
  }
  return 0;
}
