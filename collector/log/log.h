// What the collector says about itself: warnings of one line each, on standard error as "gpuprobe: ...".
//
// Separate from its users so that only log.cc includes the logging library, which takes seconds to compile.
#pragma once

#include <functional>
#include <string_view>

namespace gpuprobe::log {

void Warn(std::string_view line);

// From now on `take` gets the lines instead of standard error; never from two threads at once.
void Redirect(std::function<void(std::string_view line)> take);

}  // namespace gpuprobe::log
