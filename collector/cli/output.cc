#include "collector/cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/progress.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

int output_error = 0;  // the first errno

void NoteFailure() { output_error = errno != 0 ? errno : EIO; }

}  // namespace

void Print(std::string_view text) {
  if (output_error != 0) return;
  Progress::Hide();
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) NoteFailure();
}

void PrintForPeople(std::string_view text) { Print(text::PrintableStyled(text)); }

bool OutputWorks() { return output_error == 0; }

bool FlushOutput() {
  if (output_error != 0) return false;
  errno = 0;
  if (std::fflush(stdout) != 0) NoteFailure();
  return output_error == 0;
}

int FinishOutput(const std::string& command, int code) {
  if (FlushOutput()) return code;
  Fail(command, absl::StrCat("cannot write to standard output: ", std::strerror(output_error)), kFailed);
  return code == kDone ? kFailed : code;
}

void HoldStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number, which is this one.
    if (open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0) return;
  }
}

}  // namespace gpuprobe::cli
