// Shared state and checks of the rules library's interposed calls; host_rules.cc explains its purpose.
#pragma once

#include <dlfcn.h>
#include <sys/types.h>

#define RULE(name, function)              \
  do {                                    \
    if (host_rules::IsProbe(CALLER)) {    \
      host_rules::Break(name, #function); \
    }                                     \
  } while (false)
#define CALLER __builtin_return_address(0)
#define NEXT(function) \
  static auto* const next = reinterpret_cast<decltype(&function)>(dlsym(RTLD_NEXT, #function))

namespace host_rules {

enum class Kind { kApplication, kOwn, kWorker };

// This thread's owner, and whether the probe has blocked its signals.
extern thread_local Kind kind;
extern thread_local bool blocked;

// Whether the probe makes the call, in the program itself. A child that shares the memory until it execs is
// not the program.
bool IsProbe(const void* caller);

// Writes the call down, once for each function and rule.
void Break(const char* rule, const char* function);
void BreakOnApplication(const void* caller, const char* rule, const char* function);

}  // namespace host_rules
