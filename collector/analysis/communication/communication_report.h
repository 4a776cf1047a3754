// The cost of communication per step, and what could be done about it.
//
// Separate from collective_report.h, which is about calls: this is about steps. Waiting for a late rank is
// not communication: a transfer begins when the last rank of its call has come. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "collector/report/communication.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

class Exchanges;
struct Report;

// 1e9 bytes per second that the links between the devices of one host carry in one direction, as published;
// nullopt: not known.
std::optional<double> KnownLinkPeak(std::string_view device_name);

// From the ranks, collectives and conditions of `report`, and what `job` knows of steps. `link_peak`: what
// the user says.
CommunicationReport CommunicationOf(const Report& report, const model::JobModel& job,
                                    const Exchanges& exchanges, std::optional<double> link_peak);

// Each collective's share of the link's peak, where one is known.
void SetPeakShares(Report& report);

}  // namespace gpuprobe::analysis
