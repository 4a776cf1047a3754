#include "collector/cli/attach/variables.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/observe/process_start.h"
#include "proto/launchers.h"
#include "stacks/mapped_objects.h"
#include "stacks/process_memory.h"

namespace gpuprobe::cli::attach {
namespace {

constexpr size_t kMostVariables = 4096;
constexpr size_t kLongestVariable = 1024;

// Where `environ` is: a program that uses the variable itself has the one that its C library uses, too.
uint64_t AddressOfEnviron(pid_t pid, const stacks::ProcessMemory& memory) {
  std::error_code error;
  const std::string program =
      std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).string();
  std::optional<uint64_t> own;
  std::optional<uint64_t> library;
  stacks::Mappings list(pid);
  stacks::Mapping mapping;
  while (list.Next(mapping)) {
    if (mapping.offset != 0) continue;
    const std::string_view name = std::string_view(mapping.path).substr(mapping.path.rfind('/') + 1);
    if (!own.has_value() && mapping.path == program) own = mapping.begin;
    if (!library.has_value() && (name == "libc.so.6" || name.starts_with("libc-2."))) library = mapping.begin;
  }
  for (const std::optional<uint64_t>& object : {own, library}) {
    if (!object.has_value()) continue;
    for (const char* name : {"environ", "__environ"}) {
      if (const uint64_t address = stacks::FindExported(memory, *object, name); address != 0) return address;
    }
  }
  return 0;
}

using Variables = std::map<std::string, std::string>;

// Empty: it cannot be read.
Variables EnvironmentNow(pid_t pid) {
  const stacks::ProcessMemory memory(pid);
  uint64_t array = 0;
  const uint64_t address = AddressOfEnviron(pid, memory);
  if (address == 0 || !memory.Read(address, array)) return {};
  Variables all;
  for (size_t i = 0; i < kMostVariables; ++i) {
    uint64_t text = 0;
    if (!memory.Read(array + i * sizeof text, text) || text == 0) break;
    std::array<char, kLongestVariable> bytes{};
    const size_t size = memory.ReadSome(text, bytes.data(), bytes.size());
    std::string_view variable(bytes.data(), size);
    const size_t end = variable.find('\0');
    variable = variable.substr(0, end);
    const size_t equals = variable.find('=');
    // Of two of a name, getenv finds the first.
    if (end != std::string_view::npos && equals != std::string_view::npos)
      all.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  return all;
}

// NCCL finds such a plugin by itself, and ours must not take its place.
bool HasPluginOnItsPath(const Variables& all) {
  const auto path = all.find("LD_LIBRARY_PATH");
  if (path == all.end()) return false;
  const std::vector<std::string> folders = absl::StrSplit(path->second, ':', absl::SkipEmpty());
  for (const std::string& folder : folders) {
    std::error_code error;
    if (std::filesystem::exists(absl::StrCat(folder, "/libnccl-profiler.so"), error)) return true;
  }
  return false;
}

bool IsOfInterest(std::string_view name) {
  static const std::set<std::string_view>& of_interest = *[] {
    auto* names = new std::set<std::string_view>{"MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID",
                                                 "NCCL_PROFILER_PLUGIN", "NCCL_NET_PLUGIN"};
    for (const launchers::Launcher& launcher :
         {launchers::kTorchrun, launchers::kOpenMpi, launchers::kPmix, launchers::kPmi, launchers::kSlurm}) {
      for (const char* each : {launcher.rank, launcher.local_rank, launcher.world_size, launcher.job}) {
        if (each != nullptr) names->insert(each);
      }
    }
    return names;
  }();
  return name.starts_with("GPUPROBE_") || of_interest.contains(name);
}

}  // namespace

std::vector<std::string> VariablesFor(pid_t pid, const std::vector<std::string>& settings) {
  Variables all = EnvironmentNow(pid);
  if (all.empty()) all = observe::VariablesOf(pid);
  if (HasPluginOnItsPath(all)) all.emplace("NCCL_PROFILER_PLUGIN", "libnccl-profiler.so");
  std::erase_if(all, [](const auto& variable) { return !IsOfInterest(variable.first); });
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    all[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  std::vector<std::string> out;
  out.reserve(all.size());
  for (const auto& [name, value] : all) out.push_back(absl::StrCat(name, "=", value));
  return out;
}

}  // namespace gpuprobe::cli::attach
