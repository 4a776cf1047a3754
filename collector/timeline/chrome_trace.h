// Writes one process's timeline as the JSON that tools for PyTorch's profiler read (Chrome's trace event
// format, as Kineto fills it).
//
// Times are microseconds with three decimals after `baseTimeNanoseconds`. Work of the device has the device
// as process and the stream as thread; what the host did has its own pid and thread ids. Launches have no
// recorded duration: they are 0 long.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "collector/timeline/byte_sink.h"
#include "collector/timeline/events.h"

namespace gpuprobe::timeline {

class ChromeTrace : public EventSink {
 public:
  // `out` and `process` outlive it. Stops when the file has reached `limit_bytes`.
  ChromeTrace(ByteSink& out, const Process& process, uint64_t base_ns, uint64_t limit_bytes);

  void DescribeTrack(const TrackKey& track, const std::string& name) override;
  void DescribeCounter(const Counter& counter, const std::string& name, Unit unit) override;
  void OnEvent(const Event& event) override;
  void OnCounter(const Counter& counter, uint64_t time_ns, double value) override;
  bool full() const override { return out_.written() + buffer_.size() >= limit_bytes_; }
  // Closes the file's JSON.
  void Finish();

 private:
  struct Place {
    uint64_t pid;
    uint64_t tid;
  };
  struct CounterText {
    std::string name;  // quoted
    const char* unit;
    uint64_t pid;
  };
  Place PlaceOf(const TrackKey& track) const;
  void BeginEvent(const char* phase);
  void EndEvent();
  void Metadata(const char* name, Place place, const std::string& arg);
  void Time(const char* key, uint64_t ns);
  void OnFlow(const Flow& flow, bool begins, Place place, uint64_t time_ns);

  ByteSink& out_;
  const Process& process_;
  uint64_t base_ns_;
  uint64_t limit_bytes_;
  std::map<Counter, CounterText> counters_;
  std::string buffer_;
  bool first_ = true;
};

}  // namespace gpuprobe::timeline
