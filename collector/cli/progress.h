// A line on a terminal that says how far a long reading of a run is: "gpuprobe: reading DIR: 34 % of 8.0
// GiB".
//
// Only on a terminal that can erase it, after a second, and gone when the work is done or something else is
// to be said.
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
