#include "collector/report/fields.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collector/report/report_type.h"

namespace gpuprobe::report {

std::string ObjectName(std::string_view function) {
  function = function.substr(function.rfind("T = ") + 4);
  function = function.substr(0, function.find_first_of(";]"));
  std::string name;
  const std::vector<std::string> parts = absl::StrSplit(std::string(function), "::", absl::SkipEmpty());
  for (std::string part : parts) {
    if (!absl::ascii_isupper(static_cast<unsigned char>(part.front()))) continue;
    if (part != "Report") part = std::string(absl::StripSuffix(part, "Report"));
    name += part;
  }
  return name;
}

const Type& ReportType() { return TypeOf<analysis::Report>(); }
const Type& RankType() { return TypeOf<analysis::RankReport>(); }
const Type& LastMomentsType() { return TypeOf<analysis::LastMoments>(); }

}  // namespace gpuprobe::report
