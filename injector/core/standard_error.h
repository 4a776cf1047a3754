// Writes the probe's few lines to standard error without ever harming the program.
//
// Descriptor 2 is the program's. It may have been closed when the program started, and be a data file by now;
// it may be a full pipe without an active reader (write() would block) or one whose read end is closed
// (write() would raise SIGPIPE); a file size limit raises SIGXFSZ. So a line is written only
// - if descriptor 2 is still what it was when the library was loaded, by device, inode and type;
// - by a thread of our own, which has all signals blocked, and never by the program's;
// - if it can be written at once. Terminals and pipes are opened a second time for that, without blocking,
//   so that the program's own setting stays as it is. A file gets the line at its end or not at all.
//
// When loaded by CUDA_INJECTION64_PATH alone, we first see descriptor 2 when CUDA starts, and cannot know
// what it was before. A file created after the process started, a socket that is neither standard input nor
// output, or a device that is not a terminal is then assumed to be the program's own.
//
// Thread: SayLine on any, WriteLines on our own. Allocation: none. Failure: the line is not written.
#pragma once

#include <string_view>

namespace gpuprobe::injector {

// In the library's constructor: what descriptor 2 is now. `at_start`: the program has not run yet.
void RememberStandardError(bool at_start) noexcept;

// True while the program is being started; false when it has opened the library later. In the constructor.
bool LoadedAtStart() noexcept;

// Keeps a line, prefixed with "gpuprobe: ", for whichever thread of ours comes next. At most kMaxLines in a
// process's life.
inline constexpr int kMaxLines = 16;
void SayLine(std::string_view text) noexcept;

// On a thread of our own: writes what was kept.
void WriteLines() noexcept;

// When no thread of ours runs: starts one that writes what was kept, and ends. At exit the program waits for
// it, at most a fifth of a second.
void WriteLinesOnOwnThread() noexcept;

}  // namespace gpuprobe::injector
