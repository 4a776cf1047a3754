// The report as HTML without a script: the findings, and the tables of the text report.
#pragma once

#include <string>

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

// A page that needs nothing else.
std::string HtmlReport(const analysis::Report& report);
// What it has in its body.
std::string PlainReport(const analysis::Report& report);

}  // namespace gpuprobe::render
