// Devices that several processes use: those on which they compute, those on which they only hold memory,
// and those on which nobody computes.
//
// Example: all ranks load a checkpoint to GPU 0 and then train on their own GPU. Ranks 1 to 3 compute nothing
// on GPU 0, but what they loaded stays there, and rank 0 has that much less memory.
#pragma once

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

class ProcessLabels;
struct Conditions;

void FillDeviceSharing(const model::JobModel& job, const ProcessLabels& labels, Conditions& c);

}  // namespace gpuprobe::analysis
