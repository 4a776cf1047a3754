// What hosts did while GPUs were idle for them: places of the model, merged over ranks and folded by line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collector/model/job/member.h"
#include "collector/report/host_time.h"

namespace gpuprobe::model {
class JobModel;
class ProcessModel;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

// Advice for whatever a loop's host does.
inline constexpr char kDoItElsewhere[] =
    "Move it out of the loop or to fewer steps, or let another thread do it while the GPU works.";

// For hosts that wait for a CPU.
inline constexpr char kPinMemory[] =
    "pin_memory=True in the data loader and non_blocking=True in the copy; cudaHostAlloc or cudaHostRegister "
    "for "
    "buffers of your own.";
inline constexpr char kGiveMoreCpus[] =
    "Give each rank enough cores: check its affinity (taskset, Slurm's --cpus-per-task), how many "
    "data-loader "
    "workers and OpenMP threads (OMP_NUM_THREADS) share them, and what else runs there.";

// By cause; of those for which something is known.
std::vector<HostTimeReport> HostTimeOf(std::span<const model::Member> members);
// A step, as all ranks count, with the member that determined its length.
struct PacedStep {
  uint64_t step = 0;
  uint32_t member = 0;
  // What that member did for this step it did in the one before: it came late from there.
  bool with_previous = false;
};
// What these members did in and before these steps, per step; empty: nothing is known.
std::vector<HostPlaceReport> HostPlacesIn(const model::JobModel& job, std::span<const PacedStep> steps);
// One place, as its process saw it.
HostPlaceReport HostPlaceOf(const model::ProcessModel& process, const model::HostPlace& place);
// By how much each place of a rank exceeds the others' median, per step.
std::vector<HostPlaceReport> HostPlacesBeyond(const model::Member& member,
                                              std::span<const model::Member> all);

// nullptr: nothing is known for this cause.
const HostTimeReport* HostTimeOf(const std::vector<HostTimeReport>& all, model::IdleCause cause);
// The place that explains half of `ns` or more, or of as many samples, and is no chance; nullptr: none does.
// Time without a CPU counts only if it is half of all. nullopt: whatever it explains of it, because samples
// were taken where they could be.
const HostPlaceReport* ExplainedBy(const std::vector<HostPlaceReport>& places,
                                   std::optional<double> ns = std::nullopt);
// What to do about what a place shows; `other`: where its names show nothing in particular.
std::string AdviceFor(const HostPlaceReport& place, const std::string& other);
// "it writes a checkpoint: write of ckpt.pt, called from save (torch/serialization.py:940), called from train
// (train.py:88) (71 % of 50 samples)"
std::string HostDoesWhat(const HostPlaceReport& place);
// The places but this one with a tenth of the time or more: "34 % step (torch/optim/adamw.py:220), called
// from train (train.py:30); 12 % ...". Empty: there are none.
std::string PlacesText(const std::vector<HostPlaceReport>& places, const HostPlaceReport* but);

}  // namespace gpuprobe::analysis
