#include "collector/cli/process_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace gpuprobe::cli {

ProcessStat StatOf(pid_t pid) {
  char name[64];
  std::snprintf(name, sizeof(name), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[512];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char* name_end = std::strrchr(text, ')');
  ProcessStat stat;
  constexpr char kFields[] =
      ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64;
  if (name_end == nullptr ||
      std::sscanf(name_end, kFields, &stat.state, &stat.parent, &stat.start_ticks) != 3)
    return {};
  return stat;
}

}  // namespace gpuprobe::cli
