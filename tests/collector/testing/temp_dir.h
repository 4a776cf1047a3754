// A folder of its own for a test, gone afterwards.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace gpuprobe::testing {

class TempDir {
 public:
  TempDir() {
    std::string path = std::filesystem::temp_directory_path() / "gpuprobe-test-XXXXXX";
    path_ = mkdtemp(path.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace gpuprobe::testing
