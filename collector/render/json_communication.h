// Communication as JSON: its cost per step, links, communicators, and the clocks that it aligns.
#pragma once

#include <vector>

#include "collector/analysis/communicator_report.h"
#include "collector/analysis/report/clocks.h"
#include "collector/analysis/report/communication.h"
#include "collector/analysis/report/links.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json CommunicationJson(const analysis::CommunicationReport& c,
                                         const std::vector<analysis::LinkModel>& links);
nlohmann::ordered_json ClockJson(const analysis::ClockReport& clock);
nlohmann::ordered_json CommunicatorsJson(const std::vector<analysis::CommunicatorReport>& all);

}  // namespace gpuprobe::render
