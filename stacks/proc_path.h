// Paths below /proc, without the locale's locks that snprintf takes.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace gpuprobe::stacks {

// "/proc/PID" and what follows: Add("/task/").Add(TID).
class ProcPath {
 public:
  explicit ProcPath(pid_t pid, const char* rest = "") { Add("/proc/").Add(pid).Add(rest); }

  ProcPath& Add(const char* text) {
    while (*text != '\0' && size_ + 1 < sizeof path_) path_[size_++] = *text++;
    path_[size_] = '\0';
    return *this;
  }
  ProcPath& Add(pid_t number) {
    char digits[16] = {};
    size_t at = sizeof digits - 1;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return Add(digits + at);
  }
  const char* c_str() const { return path_; }

 private:
  char path_[64];
  size_t size_ = 0;
};

}  // namespace gpuprobe::stacks
