// The search for collectives that hang, over what is known so far: live once a second, afterwards once.
//
// Separate from IssuedCalls, which records calls: this decides. Pure: the time is a parameter.
//
// A collective is suspected when a rank has waited in it for `after_ns` without an explanation. It is not a
// hang while a rank that has not issued it launches, computes, copies, or reads and writes (a checkpoint, an
// evaluation), nor, for five times as long, while work that a waiting rank launched before it is not known to
// have ended. None of that holds for a rank whose process cannot run, according to the kernel (stopped,
// frozen, dead): its last launches will never be recorded, so they are no excuse, and whether it issued the
// call is not known. When others have waited for `after_ns` since then, it is to blame. A collective that
// waits only because one of its ranks waits in another one is not reported beside that other one. Calls that
// differ between ranks are reported at once.
#pragma once

#include <cstdint>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// `now_ns`: on the processes' clock (CLOCK_REALTIME). After the end: JobEndNs. `held_back`, if not null:
// processes (indices into JobModel::processes) that wait in something that is about to be, or would be a hang
// if the records of what they launched before it were there. CUPTI holds records of work that has ended back
// while other work in the same buffer runs; asked for in time, they come (Control.flush_unfinished).
std::vector<Hang> HangsOf(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns,
                          std::vector<uint32_t>* held_back = nullptr);

// When any process last reported anything; 0: never.
uint64_t JobEndNs(const model::JobModel& job);

}  // namespace gpuprobe::analysis
