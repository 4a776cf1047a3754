// What report.json says about ranks compared with each other: hangs, communicators, and what else is known
// only between them.
//
// Separate from json_report.cc, which writes what each rank did by itself.
#pragma once

#include "collector/analysis/report.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json CommunicatorsJson(const analysis::Report& report);
nlohmann::ordered_json HangsJson(const analysis::Report& report);
nlohmann::ordered_json PastHangsJson(const analysis::Report& report);
nlohmann::ordered_json StragglersJson(const analysis::Report& report);
// null where no step stands out.
nlohmann::ordered_json LongStepsJson(const analysis::Report& report);
nlohmann::ordered_json ClockJson(const analysis::Report& report);
nlohmann::ordered_json CommunicationJson(const analysis::Report& report);
// Why a process cannot run, and what its host cost it; null: not known.
nlohmann::ordered_json HaltJson(const std::optional<analysis::Halt>& halt);
nlohmann::ordered_json StopsJson(const std::vector<analysis::Stop>& stops);
nlohmann::ordered_json HostLoadJson(const analysis::HostLoad& load);
// How long one rank made others wait, and waited itself.
nlohmann::ordered_json CausedWaitJson(const analysis::CausedWait& caused);

}  // namespace gpuprobe::render
