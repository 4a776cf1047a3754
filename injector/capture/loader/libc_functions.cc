#include "injector/capture/loader/libc_functions.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "injector/base/text.h"

namespace gpuprobe::injector::nccl {

namespace {

struct LibcFunction {
  const char* name;
  void* real;
  void* ours;
  bool for_look_ups;
  bool defined_elsewhere;
};
constexpr size_t kMostFunctions = 8;
constinit LibcFunction functions[kMostFunctions] = {};
constinit size_t function_count = 0;

// Before glibc 2.34, dlsym and dlopen are libdl's.
constexpr std::string_view kLibc[] = {"libc.so", "libc-2.", "libdl", "libpthread", "ld-linux", "ld-2."};

bool IsLibc(const ElfObject& object) noexcept {
  return std::any_of(std::begin(kLibc), std::end(kLibc),
                     [&](std::string_view start) { return StartsWith(object.FileName(), start); });
}

LibcFunction* Find(const char* name) noexcept {
  for (size_t i = 0; i < function_count; ++i) {
    if (std::strcmp(functions[i].name, name) == 0) return &functions[i];
  }
  return nullptr;
}

// The function `name` at `address`, or the C library's if `address` is a stub.
void* Behind(const char* name, void* address) noexcept {
  struct Search {
    const char* name;
    void* address;
    bool defined;
    void* in_libc;
  } search{name, address, false, nullptr};
  ForEachObject(
      [](const ElfObject& object, void* data) noexcept {
        auto* wanted = static_cast<Search*>(data);
        if (object.Contains(reinterpret_cast<uintptr_t>(wanted->address)))
          wanted->defined = object.FindSymbol(wanted->name) != nullptr;
        if (wanted->in_libc == nullptr && IsLibc(object)) wanted->in_libc = object.FindSymbol(wanted->name);
      },
      &search);
  return search.defined || search.in_libc == nullptr ? address : search.in_libc;
}

}  // namespace

void* RedirectLibcFunction(const char* name, void* address, void* ours, bool for_look_ups) noexcept {
  void* const real = Behind(name, address);
  LibcFunction* function = Find(name);
  if (function == nullptr && function_count < kMostFunctions) function = &functions[function_count++];
  if (function == nullptr) return real;
  *function = {name, real, ours, for_look_ups, false};
  if (real != address) BindOwnCalls(name, address, real);
  return real;
}

void NoteDefinitions(const ElfObject& object) noexcept {
  if (IsLibc(object) || IsOurself(object)) return;
  for (size_t i = 0; i < function_count; ++i) {
    LibcFunction& function = functions[i];
    if (function.defined_elsewhere || object.Contains(reinterpret_cast<uintptr_t>(function.real))) continue;
    function.defined_elsewhere = object.FindSymbol(function.name) != nullptr;
  }
}

bool IsRedirected(const char* symbol) noexcept { return Find(symbol) != nullptr; }

void* LibcReplacement(const Slot& slot) noexcept {
  const LibcFunction* function = Find(slot.symbol);
  if (function == nullptr) return nullptr;
  const bool leads_there = slot.unresolved ? !function->defined_elsewhere : slot.value == function->real;
  return leads_there ? function->ours : nullptr;
}

bool ConcernsLookUps(const char* name) noexcept {
  const LibcFunction* function = Find(name);
  return function != nullptr && function->for_look_ups;
}

void* AnswerForLookUp(const char* name, const void* found) noexcept {
  const LibcFunction* function = Find(name);
  return function != nullptr && function->for_look_ups && function->real == found ? function->ours : nullptr;
}

}  // namespace gpuprobe::injector::nccl
