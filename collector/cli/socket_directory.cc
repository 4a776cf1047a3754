#include "collector/cli/socket_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {

absl::StatusOr<std::string> MakeSocketDirectory(bool private_place) {
  const char* runtime = private_place ? std::getenv("XDG_RUNTIME_DIR") : nullptr;
  std::vector<std::string> bases;
  if (runtime != nullptr && *runtime != '\0') bases.emplace_back(runtime);
  bases.emplace_back("/tmp");
  int error = 0;
  for (const std::string& base : bases) {
    std::string path = base + "/gpuprobe-run-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
    error = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot create a directory for the socket: ", bases.back(), ": ", std::strerror(error)));
}

void RemoveSocketDirectory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace gpuprobe::cli
