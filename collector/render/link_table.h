// The communicators of a job and the measured performance of their links, as tables.
#pragma once

#include <vector>

#include "collector/render/table.h"
#include "collector/report/links.h"

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

// Latency and bandwidth of each operation that was called with sizes enough; what a tree would take instead.
Table LinksTable(const std::vector<analysis::LinkModel>& links);

// Only of jobs over several hosts, or with communicators of different ranks.
Table CommunicatorsTable(const analysis::Report& report);

}  // namespace gpuprobe::render
