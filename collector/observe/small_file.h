// Reads files of /proc and /sys, which are small and whole in one read.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace gpuprobe::observe {

// At most a page; absent if it cannot be read.
inline std::optional<std::string> ReadSmallFile(int folder, const char* path) {
  const int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char bytes[4096];
  const ssize_t n = read(fd, bytes, sizeof(bytes));
  close(fd);
  if (n < 0) return std::nullopt;
  return std::string(bytes, static_cast<size_t>(n));
}

inline std::optional<std::string> ReadSmallFile(const std::string& path) {
  return ReadSmallFile(AT_FDCWD, path.c_str());
}

}  // namespace gpuprobe::observe
