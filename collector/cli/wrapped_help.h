// Breaks help text into lines that fit a terminal.
//
// Example, on 60 columns:
//   --keep SIZE              maximum size of a run's
//                            records, 16MiB or more
// Help that goes anywhere else keeps its lines: scripts and completions read it line by line.
#pragma once

#include <string>
#include <string_view>

#include "collector/render/text_layout.h"

namespace gpuprobe::cli {

// A line's second column begins after two spaces or more, and its lines stay there. A command that stands
// alone on its line is not broken, so that it can be copied.
std::string Wrapped(std::string_view help, const render::Screen& screen);

// `help` as it is shown on descriptor `fd`.
std::string WrappedFor(int fd, std::string_view help);

}  // namespace gpuprobe::cli
