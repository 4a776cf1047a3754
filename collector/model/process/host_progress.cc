#include "collector/model/process/host_progress.h"

#include <algorithm>

namespace gpuprobe::model {

void HostProgress::On(const LaunchRecord& r) {
  if (r.time_ns <= last_launch_ns) return;
  if (last_launch_ns != 0) longest_pause_ns = std::max(longest_pause_ns, r.time_ns - last_launch_ns);
  last_launch_ns = r.time_ns;
}

void HostProgress::On(const CollectiveRecord& r) {
  last_call = {.issue_ns = r.issue_ns,
               .return_ns = r.return_ns,
               .op = r.op,
               .comm = r.comm,
               .seq = r.seq,
               .plan = r.plan};
}

void HostProgress::On(const TracedCallRecord& r) {
  last_call = {.issue_ns = r.issue_ns,
               .return_ns = r.return_ns,
               .op = r.op,
               .comm = r.comm,
               .seq = r.seq,
               .traced = true};
}

void HostProgress::OnFinished(uint32_t comm, uint64_t seq, uint64_t end_ns) {
  if (last_call.comm == comm && last_call.seq == seq) last_call.done_ns = end_ns;
}

void HostProgress::OnBatch(const v1::Batch& batch, ContinuousClock& line, uint64_t left_out) {
  const uint64_t sealed_ns = batch.clock().realtime_ns();
  if (const uint64_t until_ns = batch.self().left_out_until_ns(); until_ns != 0) {
    last_left_out_ns = std::max(last_left_out_ns, line.Before(until_ns, sealed_ns));
  } else if (batch.self().records_outside_window() > left_out) {
    last_left_out_ns = line.Now(sealed_ns);
  }
  for (const v1::Loss& loss : batch.losses()) {
    if (loss.reason() != v1::LOSS_UNFINISHED_AT_FLUSH || loss.records() <= unfinished_records) continue;
    unfinished_records = loss.records();
    last_full_flush_ns = line.Now(sealed_ns);
  }
  if (!batch.has_host_state()) return;
  const v1::HostState& state = batch.host_state();
  if (state.io_bytes() > io_bytes + kIoWorthMentioning) last_io_ns = line.Now(sealed_ns);
  io_bytes = state.io_bytes();
  open_ranges.assign(state.open_ranges().begin(), state.open_ranges().end());
  blocked_in = state.blocked_in();
  const auto on_line = [&](uint64_t time_ns) { return time_ns == 0 ? 0 : line.Before(time_ns, sealed_ns); };
  blocked_since_ns = on_line(state.blocked_since_ns());
  last_wait_end_ns = on_line(state.last_wait_end_ns());
  const auto creation = [&](const v1::CommunicatorCreation& c) {
    return Creation{.since_ns = on_line(c.since_ns()),
                    .hash = c.hash(),
                    .parent = c.parent(),
                    .rank = c.rank(),
                    .ranks = c.ranks(),
                    .made_by = c.made_by(),
                    .result = c.result()};
  };
  creating = state.has_creating() ? creation(state.creating()) : Creation{};
  if (state.has_refused()) refused = creation(state.refused());
}

}  // namespace gpuprobe::model
