// The report's types in TypeScript, for the page (page/web/report.d.ts).
#pragma once

#include <string>

namespace gpuprobe::report {

std::string ReportTypes();

}  // namespace gpuprobe::report
