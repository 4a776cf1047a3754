#include "collector/report/python_stack.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/records/python_files.h"

namespace gpuprobe::analysis {

std::string ShortPythonFile(const std::string& file) {
  if (file.empty()) return "?";
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(folder);
    if (at != std::string::npos) return file.substr(at + folder.size());
  }
  if (const size_t at = file.rfind(model::kStandardLibrary); at != std::string::npos)
    return file.substr(at + std::string_view("/lib/").size());
  return file;
}

std::string PythonFrameText(const PythonFrame& frame) {
  return absl::StrCat(frame.function, " (", ShortPythonFile(frame.file),
                      frame.line > 0 ? absl::StrCat(":", frame.line) : "", ")");
}

std::string PythonPlace(const std::vector<PythonFrame>& stack) {
  if (stack.empty()) return "";
  const auto own = std::find_if(stack.begin(), stack.end(),
                                [](const PythonFrame& frame) { return !model::IsLibraryFile(frame.file); });
  return absl::StrCat(PythonFrameText(stack.front()),
                      own == stack.begin() || own == stack.end()
                          ? ""
                          : absl::StrCat(", called from ", PythonFrameText(*own)));
}

}  // namespace gpuprobe::analysis
