// The page's program and styles, as the build embeds them (collector/page/CMakeLists.txt).
#pragma once

#include <string_view>

namespace gpuprobe::page {

extern const std::string_view kProgram;  // empty: built without esbuild or node-d3
extern const std::string_view kStyle;

}  // namespace gpuprobe::page
