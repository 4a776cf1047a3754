// What ran on one rank in a step, as bars on tracks: what a timeline of report.html draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace gpuprobe::page {

// The names of all timelines of a page, each once.
class NameTable {
 public:
  uint32_t Intern(std::string_view name) {
    const auto [it, added] = ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
    if (added) names_.emplace_back(name);
    return it->second;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint32_t> ids_;
};

enum class SliceKind : uint8_t { kCompute, kCommunication, kCopy, kRange };

struct Slice {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t seq = 0;   // of a collective, on its communicator; 0: none, or not known
  uint32_t comm = 0;  // its communicator: place in NameTable, from 1; 0: as for seq
  uint32_t track = 0;
  uint32_t name = 0;   // NameTable; of a joined slice, the longest one's
  uint32_t count = 1;  // slices that were joined
  SliceKind kind = SliceKind::kCompute;
};

struct Track {
  std::string name;  // "stream 7", "ranges of main"
  bool ranges = false;
};

// What samples found a thread of the host in.
struct HostSlice {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t thread = 0;   // NameTable
  uint32_t name = 0;     // NameTable: the call, the function of Python or the system call
  uint32_t details = 0;  // NameTable: a line each, the system call first, then the stack, innermost first
  uint32_t samples = 1;
};

struct RankSlices {
  std::vector<Track> tracks;    // ranges first, then streams, the one with most compute first
  std::vector<Slice> slices;    // by track, then by start
  std::vector<HostSlice> host;  // by start
};

// Joins neighbours on a track that are too short to be seen apart, until at most `most` slices are left.
// Slices of at least a thousandth of `span_ns` stay as they are if there is room.
//
// Example: of 4,000 kernels of 5 us in a step of 400 ms, those without a gap of 400 us between them become
// one slice with count 4,000.
void JoinShort(uint64_t span_ns, size_t most, std::vector<Slice>& slices);

// The longest ones stay, in their order of start.
void KeepLongest(size_t most, std::vector<HostSlice>& slices);

}  // namespace gpuprobe::page
