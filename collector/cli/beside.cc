#include "collector/cli/beside.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace fs = std::filesystem;

absl::StatusOr<std::string> OwnPath() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError("/proc/self/exe cannot be read");
  return program.string();
}

absl::StatusOr<std::string> FindBeside(const std::string& file, std::initializer_list<const char*> folders) {
  const absl::StatusOr<std::string> own = OwnPath();
  if (!own.ok()) return own.status();
  std::string looked;
  for (const char* folder : folders) {
    const fs::path candidate = (fs::path(*own).parent_path() / folder / file).lexically_normal();
    std::error_code error;
    if (fs::exists(candidate, error)) return candidate.string();
    absl::StrAppend(&looked, looked.empty() ? "" : ", ", candidate.parent_path().string());
  }
  return absl::NotFoundError(absl::StrCat(file, " not found; looked in ", looked));
}

absl::StatusOr<std::string> FindLibrary() {
  return FindBeside("libgpuprobe.so", {"", "../lib", "../injector"});
}

}  // namespace gpuprobe::cli
