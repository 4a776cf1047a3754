#include "injector/capture/nccl/unknown_functions.h"

#include <atomic>
#include <cstring>
#include <string_view>

#include "injector/base/text.h"
#include "injector/capture/nccl/entry_points.h"

namespace gpuprobe::injector::nccl {

namespace {

// Matched against the start of the name without its prefix: queries, functions that make teams, windows and
// requirements of device code, and those that manage a communicator without moving any data.
constexpr std::string_view kHarmless[] = {
    "Get",   "CommGet", "CommQuery", "CommSuspend", "CommResume", "CommMemStats", "RedOp", "ResetDebug",
    "Param", "Dev",     "WinGet",    "Team",        "Lsa",        "Gin",          "LLA2A", "Profiler",
};

// How NCCL names what it looks for in plugins: "ncclNetPlugin_v10".
constexpr std::string_view kPlugin = "Plugin_v";

constexpr uint32_t kImporters = 8;  // distinct ones; each has the name in its own string table

enum class FunctionState : uint8_t { kFree, kTaken, kNamed };

struct Function {
  std::atomic<FunctionState> state;
  std::atomic<uint32_t> imports;
  std::atomic<const char*> importers[kImporters];
  char name[48];
};

// Empty: by its name not an NCCL function.
std::string_view WithoutPrefix(const char* symbol) noexcept {
  std::string_view name(symbol);
  if (StartsWith(name, "p")) name.remove_prefix(1);
  if (!StartsWith(name, "nccl") || name.size() < 5 || name[4] < 'A' || name[4] > 'Z') return {};
  name.remove_prefix(4);
  return name;
}

void CountImport(Function& function, const char* symbol) noexcept {
  for (uint32_t i = 0; i < kImporters; ++i) {
    const char* known = function.importers[i].load(std::memory_order_relaxed);
    if (known == nullptr &&
        function.importers[i].compare_exchange_strong(known, symbol, std::memory_order_relaxed)) {
      function.imports.store(i + 1, std::memory_order_relaxed);
      return;
    }
    if (known == symbol) return;  // an earlier scan
  }
}

constinit Function functions[kUnknownFunctions] = {};
constinit std::atomic<uint64_t> others[kOtherFunctions] = {};  // hashes of further names, never 0

// FNV-1a.
uint64_t HashOf(std::string_view name) noexcept {
  uint64_t hash = 0xcbf2'9ce4'8422'2325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100'0000'01b3u;
  return hash == 0 ? 1 : hash;
}

void CountOther(std::string_view name) noexcept {
  const uint64_t hash = HashOf(name);
  for (std::atomic<uint64_t>& other : others) {
    uint64_t known = other.load(std::memory_order_relaxed);
    if (known == hash) return;
    if (known == 0 && other.compare_exchange_strong(known, hash, std::memory_order_relaxed)) return;
    if (known == hash) return;
  }
}

}  // namespace

bool IsUnknownFunction(const char* symbol) noexcept {
  const std::string_view name = WithoutPrefix(symbol);
  if (name.empty() || FindOperation(name) != EntryPoint::kCount) return false;
  for (const std::string_view harmless : kHarmless) {
    if (StartsWith(name, harmless)) return false;
  }
  return name.find(kPlugin) == std::string_view::npos;
}

void NoteUnknownFunction(const char* symbol) noexcept {
  if (!IsUnknownFunction(symbol)) return;
  const std::string_view name = WithoutPrefix(symbol);
  if (name.size() >= sizeof(functions[0].name)) return CountOther(name);
  for (Function& function : functions) {
    FunctionState state = function.state.load(std::memory_order_acquire);
    if (state == FunctionState::kFree &&
        function.state.compare_exchange_strong(state, FunctionState::kTaken, std::memory_order_acquire)) {
      std::memcpy(function.name, name.data(), name.size());
      function.name[name.size()] = '\0';
      CountImport(function, symbol);
      function.state.store(FunctionState::kNamed, std::memory_order_release);
      return;
    }
    if (state == FunctionState::kNamed && name == function.name) return CountImport(function, symbol);
  }
  CountOther(name);
}

uint32_t OtherUnknownFunctions() noexcept {
  uint32_t count = 0;
  while (count < kOtherFunctions && others[count].load(std::memory_order_relaxed) != 0) ++count;
  return count;
}

const char* UnknownFunction(size_t place, uint32_t* imports) noexcept {
  if (place >= kUnknownFunctions) return "";
  const Function& function = functions[place];
  if (function.state.load(std::memory_order_acquire) != FunctionState::kNamed) return "";
  *imports = function.imports.load(std::memory_order_relaxed);
  return function.name;
}

}  // namespace gpuprobe::injector::nccl
