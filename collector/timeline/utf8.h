// Makes text from outside valid UTF-8: both formats of a trace require it, and names are whatever a program
// passed.
#pragma once

#include <string>
#include <string_view>

namespace gpuprobe::timeline {

// Each byte that belongs to no valid sequence becomes U+FFFD.
std::string ToUtf8(std::string_view text);

}  // namespace gpuprobe::timeline
