// Lets a few warnings through and counts the others, so that no client can fill a log.
//
// Example: 5,000 clients send garbage within 10 s. Five lines say so at once, and the first line after the 10
// s ends with "(4995 more omitted)".
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace gpuprobe::ingest {

class Warnings {
 public:
  static constexpr uint64_t kAtOnce = 5;
  static constexpr std::chrono::seconds kPer{10};

  using Clock = std::chrono::steady_clock;

  // Whether to print `text` now; the count of warnings left out before is appended to it.
  bool Pass(std::string& text, Clock::time_point now = Clock::now()) {
    if (now - since_ >= kPer) {
      since_ = now;
      passed_ = 0;
    }
    if (passed_ >= kAtOnce) {
      ++left_out_;
      return false;
    }
    ++passed_;
    if (left_out_ > 0) absl::StrAppend(&text, " (", left_out_, " more omitted)");
    left_out_ = 0;
    return true;
  }

 private:
  Clock::time_point since_{};
  uint64_t passed_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace gpuprobe::ingest
