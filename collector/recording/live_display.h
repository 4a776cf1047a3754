// Shows a job while it runs: lines on a terminal, and the screen of `gpuprobe top`.
//
// `run` shares its terminal with the program, whose output must stay untouched: it adds whole lines now and
// then and never moves or erases anything. Used from the server's thread only.
#pragma once

#include <cstdint>
#include <string>

#include "collector/analysis/live_status.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::recording {

// Whether a collector wrote into the directory lately.
bool IsLive(const std::string& directory);

class LiveDisplay {
 public:
  // `seconds`: 0 says nothing. Also silent when standard error is not a terminal.
  LiveDisplay(uint64_t seconds, const render::Screen& screen);

  // Says a line when it is time to, and an introduction before the first.
  void Tick(const analysis::LiveStatus& status, uint64_t monotonic_ns);

 private:
  render::Screen screen_;
  uint64_t interval_ns_;
  uint64_t next_ns_ = 0;
  bool introduced_ = false;
};

}  // namespace gpuprobe::recording
