// A whole file, mapped read-only: it stays readable when it is renamed or removed, and costs no descriptor.
//
// Nothing reads the mapping itself. A process with write access may truncate the file meanwhile, and a read
// beyond its new end would raise SIGBUS; so the kernel copies the bytes, and reports an error there instead.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::store {

class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // The size when it was opened: later appends are not seen.
  size_t size() const { return size_; }
  // At most `size` bytes from `offset` on; fewer at the end and where the file was cut off.
  std::string Read(size_t offset, size_t size) const;
  // Whether the file under its name is now shorter than when it was opened.
  bool Shrunk() const;

 private:
  MappedFile(std::string path, const void* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const void* data_;
  size_t size_;
};

}  // namespace gpuprobe::store
