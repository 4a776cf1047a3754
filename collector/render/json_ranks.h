// What ranks cost each other, as JSON: waiting, stragglers, long steps, processes that could not run.
#pragma once

#include <optional>
#include <vector>

#include "collector/analysis/long_steps.h"
#include "collector/analysis/process_state.h"
#include "collector/analysis/report/stragglers.h"
#include "collector/analysis/report/waiting.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

// null: it can run, or nobody knows.
nlohmann::ordered_json HaltJson(const std::optional<analysis::Halt>& halt);
nlohmann::ordered_json StopsJson(const std::vector<analysis::Stop>& stops);
// null: nothing is known.
nlohmann::ordered_json HostLoadJson(const analysis::HostLoad& load);
nlohmann::ordered_json CausedWaitJson(const analysis::CausedWait& caused);
nlohmann::ordered_json StragglersJson(const std::vector<analysis::Straggler>& stragglers);
// null: no step stands out.
nlohmann::ordered_json LongStepsJson(const std::optional<analysis::LongStepsReport>& all);

}  // namespace gpuprobe::render
