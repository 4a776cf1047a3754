// A comparison of two runs for a terminal, and as JSON for tools.
#pragma once

#include <string>

#include "collector/analysis/comparison/comparison.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::render {

// `a`, `b`: what to call the runs.
std::string ComparisonText(const analysis::Comparison& comparison, const std::string& a, const std::string& b,
                           const Layout& layout = Layout());
std::string ComparisonJson(const analysis::Comparison& comparison, const std::string& a,
                           const std::string& b);

}  // namespace gpuprobe::render
