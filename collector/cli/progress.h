// A progress line on a terminal while a run is read or copied: "gpuprobe: reading DIR: 34 % of 8.0 GiB".
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
  // While runs are read.
  explicit Progress(const std::vector<std::string>& directories);
  // While `total` bytes are "copied" from `what`; Note says how many have come.
  Progress(std::string verb, const std::string& what, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Erases the line; the next piece that is read shows it again. Fail() calls this, so that lines do not mix.
  static void Hide();
  void Note(uint64_t bytes);

 private:
  std::string verb_;
  std::string what_;
  uint64_t total_ = 0;  // bytes; a run is read one or more times
  uint64_t done_ = 0;
  uint64_t next_ns_ = UINT64_MAX;  // when the line is shown again; never where it cannot be
};

}  // namespace gpuprobe::cli
