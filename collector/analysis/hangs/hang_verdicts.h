// Hangs that were reported while the job ran: how they are written down, when they are over, and how the
// report shows them.
//
// Separate from the search (hangs.h), which does not know what was reported before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// The same for the same hang: communicator and sequence, of a transfer the rank whose sequence it is, of a
// graph which replay.
std::string HangKey(const Hang& hang);

// `seen_ns`, `until_ns`: as HangVerdict has them.
v1::HangVerdict VerdictOf(const Hang& hang, uint64_t seen_ns, uint64_t until_ns);
Hang HangOf(const v1::HangVerdict& verdict);

// Whether the same ranks are at fault for the same reason.
bool SameCulprits(const Hang& a, const Hang& b);
// Whether a rank waits in both.
bool ShareWaiting(const Hang& a, const Hang& b);
// Whether a rank that waited is known to have gone on after that time.
bool WentOn(const model::JobModel& job, const Hang& hang, uint64_t seen_ns);
// Whether a rank that waited has ended.
bool WaitingEnded(const model::JobModel& job, const Hang& hang);

// Puts what was reported live into `hangs`, which were found at the end: the same hang stands once, with the
// culprits that were reported; one that lasted and was not found is added. Returns those that were over.
std::vector<PastHang> TakeVerdicts(const model::JobModel& job, std::vector<Hang>& hangs);

}  // namespace gpuprobe::analysis
