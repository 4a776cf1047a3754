// A progress line on a terminal while a run is read: "gpuprobe: reading DIR: 34 % of 8.0 GiB".
//
// Shown only on a terminal that can erase it, and only after a second; erased when the work is done or before
// other output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprobe::cli {

class Progress {
 public:
  explicit Progress(const std::vector<std::string>& directories);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Erases the line; the next piece that is read shows it again. Fail() calls this, so that lines do not mix.
  static void Hide();

 private:
  void Note(uint64_t bytes);

  std::string what_;
  uint64_t total_ = 0;  // bytes; the run is read one or more times
  uint64_t done_ = 0;
  uint64_t next_ns_ = 0;
};

}  // namespace gpuprobe::cli
