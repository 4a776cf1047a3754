// Looks for hangs while a job runs, and reports each once, and once more when it is over.
//
// The search (analysis/hangs/hangs.h) is pure; this class remembers what was reported. Used from the server's
// thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::recording {

class HangWatch {
 public:
  using Say = std::function<void(const std::string& text)>;
  using Write = std::function<void(const v1::HangVerdict& verdict)>;
  // `say` gets whole lines; `write` gets verdicts for the run's log.
  HangWatch(uint64_t after_ns, Say say, Write write, render::Layout layout = render::Layout())
      : after_ns_(after_ns), say_(std::move(say)), write_(std::move(write)), layout_(layout) {}

  // Looks when a second has passed since it last did; `now_ns` on CLOCK_REALTIME, `monotonic_ns` on
  // CLOCK_MONOTONIC.
  void Tick(const model::JobModel& job, uint64_t now_ns, uint64_t monotonic_ns);
  // The hangs at the moment.
  std::vector<std::string> Statements() const;
  // Whether to ask this process for the records it holds back; once for each look that wanted them.
  bool TakeRequest(const model::ProcessModel& process);

 private:
  struct Told {
    analysis::Hang hang;  // as of the last look that found it
    uint64_t seen_ns = 0;
  };

  void SayDeaths(const model::JobModel& job, uint64_t now_ns);
  void Tell(const std::string& key, const analysis::Hang& hang, uint64_t now_ns);
  // Handles a hang that is no longer found. True: forget it, because the call went on, which is reported, or
  // because another hang replaced it, which withdraws its verdict. False: its processes ended, and the
  // verdict stands.
  bool EndOf(const Told& told, const model::JobModel& job, const std::vector<analysis::Hang>& hangs,
             uint64_t now_ns);

  uint64_t after_ns_;
  Say say_;
  Write write_;
  render::Layout layout_;
  // Whether the clock was set forward lately. Calls issued before seem to have waited longer by as much, so
  // no new hang is reported until the whole limit has passed since.
  bool SetForward(uint64_t now_ns, uint64_t monotonic_ns);

  uint64_t next_ns_ = 0;
  std::optional<uint64_t> clock_offset_ns_;
  uint64_t quiet_until_ns_ = 0;                // on CLOCK_MONOTONIC
  std::map<std::string, Told> told_;           // by HangKey
  std::set<std::string> unsure_;               // keys of the last tick that one more must confirm
  std::set<const model::ProcessModel*> dead_;  // already reported
  struct Request {
    uint64_t again_ns = 0;  // on CLOCK_MONOTONIC, not before
    bool taken = false;
  };
  std::map<const model::ProcessModel*, Request> requests_;
};

}  // namespace gpuprobe::recording
