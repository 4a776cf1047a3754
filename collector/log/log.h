// What the collector says about itself: warnings of one line each, on standard error as "gpuprobe: ...".
//
// Only log.cc includes the logging library, which takes seconds to compile.
#pragma once

#include <functional>
#include <string_view>

namespace gpuprobe::log {

void Warn(std::string_view line);

// What is said to people as it is: on standard error, in one piece, because the program writes to the same
// terminal. What could steer the terminal is made harmless, but for our own styles.
void SayForPeople(std::string_view text);

// From now on `take` gets the lines instead of standard error; never from two threads at once.
void Redirect(std::function<void(std::string_view line)> take);

}  // namespace gpuprobe::log
