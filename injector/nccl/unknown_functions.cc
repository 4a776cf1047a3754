#include "injector/nccl/unknown_functions.h"

#include <atomic>
#include <cstring>
#include <string_view>

#include "injector/stream/text.h"

namespace gpuprobe::injector::nccl {

namespace {

// By the start of the name without its prefix.
constexpr std::string_view kHarmless[] = {"GetErrorString",
                                          "GetLastError",
                                          "CommGetAsyncError",
                                          "CommGetUniqueId",
                                          "CommInitRankScal",
                                          "CommQuery",
                                          "CommSuspend",
                                          "CommResume",
                                          "CommMemStats",
                                          "RedOp",
                                          "Group",
                                          "ResetDebug",
                                          "Param",
                                          "Dev",
                                          "WinGet",
                                          "TeamWorld",
                                          "Profiler",
                                          "NetPlugin",
                                          "CollNetPlugin",
                                          "TunerPlugin",
                                          "GetVersion",
                                          "GetUniqueId"};

constexpr uint32_t kImporters = 8;  // that are told apart; each has the name in its own table of strings

struct Function {
  std::atomic<uint32_t> imports;
  const char* importers[kImporters];
  char name[48];
};

void CountImport(Function& function, const char* symbol) noexcept {
  const uint32_t imports = function.imports.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < imports; ++i) {
    if (function.importers[i] == symbol) return;  // an earlier scan
  }
  if (imports == kImporters) return;
  function.importers[imports] = symbol;
  function.imports.store(imports + 1, std::memory_order_release);
}

constinit Function functions[kUnknownFunctions] = {};
constinit std::atomic<size_t> count{0};

}  // namespace

void NoteUnknownFunction(const char* symbol) noexcept {
  std::string_view name(symbol);
  if (StartsWith(name, "p")) name.remove_prefix(1);
  if (!StartsWith(name, "nccl") || name.size() < 5 || name[4] < 'A' || name[4] > 'Z') return;
  name.remove_prefix(4);
  for (const std::string_view harmless : kHarmless) {
    if (StartsWith(name, harmless)) return;
  }
  const size_t known = count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < known; ++i) {
    if (name != functions[i].name) continue;
    CountImport(functions[i], symbol);
    return;
  }
  if (known == kUnknownFunctions || name.size() >= sizeof(functions[0].name)) return;
  std::memcpy(functions[known].name, name.data(), name.size());
  functions[known].name[name.size()] = '\0';
  functions[known].imports.store(0, std::memory_order_relaxed);
  CountImport(functions[known], symbol);
  count.store(known + 1, std::memory_order_release);
}

const char* UnknownFunction(size_t place, uint32_t* imports) noexcept {
  if (place >= count.load(std::memory_order_acquire)) return "";
  *imports = functions[place].imports.load(std::memory_order_relaxed);
  return functions[place].name;
}

void ForgetUnknownFunctionsForTest() noexcept { count.store(0); }

}  // namespace gpuprobe::injector::nccl
