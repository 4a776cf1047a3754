// Sentences and tables laid out for a terminal of at most 120 columns.
//
// Separate because every text that the program prints is laid out alike.
#pragma once

#include <string>

#include "collector/render/table.h"

namespace gpuprobe::render {

// `text` in lines, the first with `lead` in front, the others with `indent`. Numbers stay with their unit,
// and no last line holds one word alone.
std::string Wrap(const std::string& lead, const std::string& indent, const std::string& text);
// Columns as wide as they need to be, and the note below.
std::string Lay(const Table& table);

}  // namespace gpuprobe::render
