// Files that belong to this program, wherever it is installed: found from its own path.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

absl::StatusOr<std::string> OwnPath();

// `file` in one of these folders, which are relative to the program's own. NotFound says where it looked.
absl::StatusOr<std::string> FindBeside(const std::string& file, std::initializer_list<const char*> folders);

// The library that goes into profiled programs.
absl::StatusOr<std::string> FindLibrary();

}  // namespace gpuprobe::cli
