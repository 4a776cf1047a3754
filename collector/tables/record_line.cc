#include "collector/tables/record_line.h"

#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::tables {

std::string Quoted(std::string_view text) {
  using Value = nlohmann::json;
  return text::SafeJson(Value(text).dump(-1, ' ', false, Value::error_handler_t::replace));
}

void Line::Put(std::string_view name, v1::CallSource value) {
  switch (value) {
    case v1::CALL_SOURCE_INTERPOSED:
      return Word(name, "interposed");
    case v1::CALL_SOURCE_RELOCATION:
      return Word(name, "relocation");
    case v1::CALL_SOURCE_PLUGIN:
      return Word(name, "plugin");
    case v1::CALL_SOURCE_NVTX:
      return Word(name, "nvtx");
    case v1::CALL_SOURCE_KERNEL_NAME:
      return Word(name, "kernel_name");
    default:
      return Word(name, "unknown");
  }
}

}  // namespace gpuprobe::tables
