#include "collector/records/python_files.h"

#include <algorithm>
#include <iterator>

namespace gpuprobe::model {

bool IsLibraryFile(std::string_view file) {
  constexpr std::string_view kFolders[] = {"/site-packages/", "/dist-packages/", kStandardLibrary};
  return file.starts_with("<") ||
         std::any_of(std::begin(kFolders), std::end(kFolders),
                     [&](std::string_view folder) { return file.find(folder) != std::string_view::npos; });
}

}  // namespace gpuprobe::model
