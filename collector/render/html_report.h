// report.html: the report as one page that needs nothing else: no network, no script.
#pragma once

#include <string>

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

std::string HtmlReport(const analysis::Report& report);

}  // namespace gpuprobe::render
