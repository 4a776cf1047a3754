// Standard output, checked: a report that did not reach its file must not look like success.
//
// Subcommands print with Print; main calls FinishOutput once, which flushes and turns a failure into an exit
// code. The first error stands: nothing is written after it.
#pragma once

#include <string>
#include <string_view>

namespace gpuprobe::cli {

void Print(std::string_view text);
// The same for text that people read: colours are kept, other terminal control characters are replaced.
void PrintForPeople(std::string_view text);
// Whether everything so far could be written, as far as that is known.
bool OutputWorks();
// Flushes everything printed so far; false as above.
bool FlushOutput();
// `code`, or kFailed with a line on stderr if standard output could not be written.
int FinishOutput(const std::string& command, int code);

// Keeps files that are opened later from becoming standard output or error where the caller has closed these:
// puts something in their place that cannot be written, and that programs we start do not inherit.
void HoldStandardStreams();

}  // namespace gpuprobe::cli
