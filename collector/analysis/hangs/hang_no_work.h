// A job that stands still without waiting for a collective.
#pragma once

#include <cstdint>
#include <optional>

#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// Example: both ranks have trained for 300 steps and now poll for a lock file that nobody removes. No call is
// open, the GPUs are idle, and so are the hosts.
//
// Only of a job whose ranks share a communicator: a single process may be a notebook. Nothing before its
// first GPU work, while anything runs on a GPU, while a process is stopped or has ended, and nothing that a
// rank's reading and writing explains. What a job has paused for before is no news: the limit is a multiple
// of that. It is said as `idle`, and late, if no rank was seen to train (a server without requests, or a job
// that still sets up, looks the same from outside), or if a host is busy, or a main thread waits for a child
// process or for a message (an evaluation, a compilation).
std::optional<Hang> JobWithoutWork(const model::JobModel& job, const ProcessLabels& labels, uint64_t now_ns,
                                   uint64_t after_ns);

}  // namespace gpuprobe::analysis
