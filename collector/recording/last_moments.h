// From the flight recorder's rings of a run directory to what the report says of them.
#pragma once

#include <string>
#include <vector>

#include "collector/report/last_moments.h"
#include "proto/flight_ring.h"

namespace gpuprobe::recording {

// A ring's records as they are; torn ones are counted. `name`: of the file.
analysis::LastMoments MomentsOf(const flight::Ring& ring, const std::string& name);

// What is to be done with a ring that cannot be read.
enum class Missing { kName, kLeaveOut };

// Of every ring in the run directory, in the order of their names; also of processes that run.
std::vector<analysis::LastMoments> LastMomentsIn(const std::string& directory, Missing missing);

}  // namespace gpuprobe::recording
