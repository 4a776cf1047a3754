// Writes timelines in Perfetto's protobuf format: one trace for all processes, each a packet sequence of its
// own.
//
// Names, categories and repeated text are interned per sequence. Packets are collected in blocks of some 256
// KiB, and each block is written as one compressed packet. A process becomes a process track; streams, steps
// and counters are its children, host threads its threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "collector/timeline/byte_sink.h"
#include "collector/timeline/events.h"

namespace gpuprobe::timeline {

class PerfettoTrace {
 public:
  // `out` outlives it. `begin_ns`: about when the trace begins.
  PerfettoTrace(ByteSink& out, uint64_t begin_ns);

  // Bytes of the file, counting data that waits to be compressed at its full size.
  uint64_t size() const { return out_.written() + block_.size(); }
  // Appends one encoded TracePacket.
  void Append(const std::string& packet);
  // Writes what is left.
  void Finish() { FlushBlock(); }

 private:
  void FlushBlock();

  ByteSink& out_;
  std::string block_;
};

// Encodes one process.
class PerfettoProcess : public EventSink {
 public:
  // Stops when the trace has reached `limit_bytes`. `trace` outlives it.
  PerfettoProcess(PerfettoTrace& trace, const Process& process, uint64_t limit_bytes);

  void DescribeTrack(const TrackKey& track, const std::string& name) override;
  void DescribeCounter(const Counter& counter, const std::string& name, Unit unit) override;
  void OnEvent(const Event& event) override;
  void OnCounter(const Counter& counter, uint64_t time_ns, double value) override;
  bool full() const override { return trace_.size() >= limit_bytes_; }

 private:
  static constexpr size_t kMaxInterned = size_t{1} << 16;  // then the sequence begins anew

  // Text that was given a number on this sequence, for one field of InternedData.
  struct Interned {
    uint32_t field;
    absl::flat_hash_map<std::string, uint64_t> ids;
  };
  uint64_t Intern(Interned& table, std::string_view text);
  void BeginSequence();
  uint64_t FlowId(const Flow& flow) const;
  void BeginPacket(uint64_t time_ns);
  void EndPacket();

  PerfettoTrace& trace_;
  const Process& process_;
  uint64_t limit_bytes_;
  uint64_t process_uuid_;
  uint64_t next_uuid_;
  std::map<TrackKey, uint64_t> tracks_;
  std::map<Counter, uint64_t> counters_;
  Interned categories_;
  Interned names_;
  Interned arg_names_;
  Interned arg_texts_;
  std::string new_texts_;  // InternedData of the packet at hand
  std::string event_;      // TrackEvent of the packet at hand
  std::string packet_;
};

}  // namespace gpuprobe::timeline
