// The message about damage to a log, the same for every subcommand that reads logs.
#pragma once

#include <string>

#include "collector/store/run_log_reader.h"

namespace gpuprobe::cli {

// "rank-3.gpr is damaged after 81.2 s (bad checksum at byte 40,113,152); everything before it is reported"
std::string DamageLine(const store::Damage& damage);

}  // namespace gpuprobe::cli
