// Running totals over every record that a process sent: one structure that analysis may read.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "collector/model/state/members.h"
#include "collector/model/statistics/interval_union.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

struct CopyTotals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;  // sum, what bandwidth is computed from
  IntervalUnion busy;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, count, bytes, duration_ns, busy);
  }
};

// Copies whose host side is pageable memory: they are staged, and the host waits for most of them.
struct PageableTotals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, count, bytes, duration_ns);
  }
};

struct SyncTotals {
  uint64_t count = 0;
  uint64_t duration_ns = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, count, duration_ns);
  }
};

struct OverheadTotals {
  uint64_t count = 0;
  uint64_t duration_ns = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, count, duration_ns);
  }
};

struct ProcessTotals {
  // A launch costs the host 2 to 5 us: below this the device is likely to run dry between kernels.
  static constexpr uint64_t kShortKernelNs = 10'000;

  uint64_t records = 0;  // of every kind, as received
  uint64_t batches = 0;
  uint64_t batches_missing = 0;    // gaps in the sequence numbers
  uint64_t records_missing = 0;    // in batches that were sent and never came
  uint64_t records_elsewhere = 0;  // before these: another collector's run has them
  uint64_t wire_bytes = 0;
  uint64_t kernels = 0;
  uint64_t graph_kernels = 0;
  uint64_t short_kernels = 0;  // that took less than kShortKernelNs, and their time
  uint64_t short_kernel_ns = 0;
  uint64_t reversed_times = 0;  // records whose end is before their start
  uint64_t launches = 0;
  uint64_t marks = 0;
  uint64_t ranges_unclosed = 0;
  uint64_t memsets = 0;
  uint64_t memset_bytes = 0;
  uint64_t memset_ns = 0;
  uint64_t first_ns = UINT64_MAX;  // of any record
  uint64_t last_ns = 0;
  uint64_t last_clock_ns = 0;        // of the last batch
  int64_t clock_step_ns = 0;         // largest change of REALTIME against MONOTONIC
  std::array<CopyTotals, 6> copies;  // by v1::CopyDirection
  std::array<SyncTotals, 5> syncs;   // by v1::SyncKind
  std::array<OverheadTotals, v1::OverheadKind_ARRAYSIZE> overheads;  // by v1::OverheadKind
  PageableTotals pageable_h2d;
  PageableTotals pageable_d2h;
  std::map<int, uint64_t> losses;  // by v1::LossReason, cumulative, as reported by the process
  v1::SelfReport self;
  uint64_t host_samples = 0;  // moments, of whichever threads
  uint64_t last_host_sample_ns = 0;

  // Notes a record's times. False: they are reversed, and the record cannot be used.
  bool Observe(uint64_t start_ns, uint64_t end_ns) {
    if (end_ns < start_ns) [[unlikely]] {
      ++reversed_times;
      return false;
    }
    if (start_ns < first_ns) first_ns = start_ns;
    if (end_ns > last_ns) last_ns = end_ns;
    return true;
  }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, records, batches, batches_missing, records_missing, records_elsewhere, wire_bytes,
                    kernels, graph_kernels, short_kernels, short_kernel_ns, reversed_times, launches, marks,
                    ranges_unclosed, memsets, memset_bytes, memset_ns, first_ns, last_ns, last_clock_ns,
                    clock_step_ns, copies, syncs, overheads, pageable_h2d, pageable_d2h, losses, self,
                    host_samples, last_host_sample_ns);
  }
};

}  // namespace gpuprobe::model
