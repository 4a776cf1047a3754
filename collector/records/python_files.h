// Which files of Python's are libraries: the rest is the user's own program.
#pragma once

#include <string_view>

namespace gpuprobe::model {

inline constexpr std::string_view kStandardLibrary = "/lib/python3.";

// In site-packages, dist-packages, the standard library, or no file: "<frozen runpy>".
bool IsLibraryFile(std::string_view file);

}  // namespace gpuprobe::model
