// Reads a report.json from standard input, and writes it again.
#include <iostream>
#include <iterator>
#include <string>

#include "collector/render/json_report.h"
#include "collector/report/json.h"

int main() {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const auto report =
      gpuprobe::report::FromJson(nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false));
  if (!report.ok()) return 1;
  std::cout << gpuprobe::render::JsonReport(*report);
  return 0;
}
