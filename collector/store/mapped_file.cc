#include "collector/store/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::store {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe in this place would block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  const auto size = static_cast<size_t>(st.st_size);
  void* data = nullptr;
  if (size > 0) data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  return std::unique_ptr<MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), size_);
}

std::string MappedFile::Read(size_t offset, size_t size) const {
  if (offset >= size_) return {};
  std::string bytes(std::min(size, size_ - offset), '\0');
  const char* const from = static_cast<const char*>(data_) + offset;
  const iovec to{bytes.data(), bytes.size()};
  const iovec source{const_cast<char*>(from), bytes.size()};
  const ssize_t copied = process_vm_readv(getpid(), &to, 1, &source, 1, 0);
  if (copied < 0 && errno != EFAULT) {
    std::memcpy(bytes.data(), from, bytes.size());  // a sandbox without this call
    return bytes;
  }
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(copied, 0)));
  return bytes;
}

bool MappedFile::Shrunk() const {
  struct stat st {};
  return stat(path_.c_str(), &st) == 0 && static_cast<size_t>(st.st_size) < size_;
}

}  // namespace gpuprobe::store
