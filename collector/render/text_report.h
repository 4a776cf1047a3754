// The report as text: findings first, then the tables, then where more is.
#pragma once

#include <string>

#include "collector/render/text_layout.h"

namespace gpuprobe::analysis {
struct Hang;
struct Report;
}  // namespace gpuprobe::analysis

namespace gpuprobe::render {

// `page`: path of report.html for the last line; empty: no last line.
std::string TextReport(const analysis::Report& report, const std::string& page,
                       const Layout& layout = Layout());

// That last line, with an empty one before it.
std::string PageLine(const std::string& page);

// "HANG  AllReduce seq ...", with what the ranks did and what to look at: as it is said while the job runs.
std::string HangBlock(const analysis::Hang& hang, const Layout& layout = Layout());

}  // namespace gpuprobe::render
