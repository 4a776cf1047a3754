// A whole file, mapped read-only: it stays readable when it is renamed or removed, and costs no descriptor.
//
// Nothing reads the mapping itself. Whoever may write the file may also cut it off meanwhile, and a read
// beyond its new end would be a SIGBUS; so the kernel copies, which says that there is nothing any more.
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

  // As it was opened: what is appended later is not seen.
  size_t size() const { return size_; }
  // At most `size` bytes from `offset` on; fewer at the end and where the file was cut off.
  std::string Read(size_t offset, size_t size) const;
  // Whether what stands under its name is shorter than it was when it was opened.
  bool Shrunk() const;

 private:
  MappedFile(std::string path, const void* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const void* data_;
  size_t size_;
};

}  // namespace gpuprobe::store
