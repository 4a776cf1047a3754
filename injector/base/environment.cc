#include "injector/base/environment.h"

#include <elf.h>
#include <link.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "injector/base/mapping.h"
#include "injector/base/program_functions.h"

namespace gpuprobe::injector {

namespace {

constinit const char* const* copy_of_environment = nullptr;

constexpr int kMaxAnswers = 4;

struct Answer {
  std::atomic<const char*> name;
  const char* value;
};

constinit Answer answers[kMaxAnswers] = {};

// "NAME=value" at `text`; returns where the next one goes.
char* Write(const Variable& variable, char* text) noexcept {
  text = stpcpy(text, variable.name);
  *text++ = '=';
  return stpcpy(text, variable.value) + 1;
}

struct AuxiliaryVector {
  const void* start;
  size_t bytes;  // including the terminating entry
};

AuxiliaryVector FindAuxiliaryVector(const void* start) noexcept {
  const auto* entry = static_cast<const ElfW(auxv_t)*>(start);
  while (entry->a_type != AT_NULL) ++entry;
  return {start,
          static_cast<size_t>(reinterpret_cast<const char*>(entry + 1) - static_cast<const char*>(start))};
}

}  // namespace

bool AddBeforeMain(char* const* kernel_array, const Variable* variables, size_t count) noexcept {
  if (kernel_array == nullptr || environ != kernel_array || __libc_single_threaded == 0) return false;
  size_t before = 0;
  while (kernel_array[before] != nullptr) ++before;
  const AuxiliaryVector auxiliary = FindAuxiliaryVector(kernel_array + before + 1);
  size_t bytes = (before + count + 1) * sizeof(char*) + auxiliary.bytes;
  for (size_t i = 0; i < count; ++i)
    bytes += std::strlen(variables[i].name) + std::strlen(variables[i].value) + sizeof("=");
  auto* array = static_cast<char**>(MapMemory(bytes));
  if (array == nullptr) return false;
  std::memcpy(array, kernel_array, before * sizeof(char*));
  char* text = reinterpret_cast<char*>(array + before + count + 1) + auxiliary.bytes;
  size_t used = before;
  for (size_t i = 0; i < count; ++i) {
    if (getenv(variables[i].name) != nullptr) continue;
    array[used++] = text;
    text = Write(variables[i], text);
  }
  if (used == before) {
    UnmapMemory(array, bytes);
  } else {
    std::memcpy(array + used + 1, auxiliary.start, auxiliary.bytes);
    environ = array;
  }
  return true;
}

bool AnswerVariable(const char* name, const char* value) noexcept {
  for (Answer& answer : answers) {
    const char* known = answer.name.load(std::memory_order_relaxed);
    if (known != nullptr && std::strcmp(known, name) == 0) return true;
    if (known != nullptr) continue;
    answer.value = value;
    answer.name.store(name, std::memory_order_release);
    return true;
  }
  return false;
}

const char* ReadVariable(const char* name) noexcept {
  if (copy_of_environment == nullptr) return getenv(name);
  const size_t length = std::strlen(name);
  for (const char* const* entry = copy_of_environment; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

void UseCopyOfEnvironment(const char* const* variables) noexcept { copy_of_environment = variables; }

char* AnsweringGetenv(const char* name) noexcept {
  char* const set = program_functions.getenv(name);
  if (set != nullptr || name == nullptr) return set;
  for (const Answer& answer : answers) {
    const char* known = answer.name.load(std::memory_order_acquire);
    if (known == nullptr) break;
    if (std::strcmp(known, name) == 0) return const_cast<char*>(answer.value);
  }
  return nullptr;
}

}  // namespace gpuprobe::injector
