// What injection_test injects: counts how often it was initialised, in the environment of the process.
#include <cstdlib>
#include <string>

extern "C" int InitializeInjection() {
  const char* before = std::getenv("GPUSIM_TEST_INJECTED");
  const int count = before != nullptr ? std::atoi(before) : 0;
  setenv("GPUSIM_TEST_INJECTED", std::to_string(count + 1).c_str(), 1);
  return 0;  // a tool that says it failed: the driver goes on
}
