// A folder for the socket of one recording, which is removed at its end.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

// `private_place`: in $XDG_RUNTIME_DIR if that is set; else in /tmp, where other users may be let into it.
absl::StatusOr<std::string> MakeSocketDirectory(bool private_place = true);
void RemoveSocketDirectory(const std::string& path);

}  // namespace gpuprobe::cli
