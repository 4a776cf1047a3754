// Sentences and tables laid out for a terminal of at most 120 columns.
//
// Separate because every text that the program prints is laid out alike.
#pragma once

#include <string>
#include <string_view>

#include "collector/render/table.h"

namespace gpuprobe::render {

// `text` with every character that a terminal would obey (escape sequences, line ends, marks that turn text
// around) and every byte that is not UTF-8 replaced by '?': names come from the profiled program, which may
// not be the reader's.
std::string Printable(std::string_view text);

// `text`, made printable, in lines, the first with `lead` in front, the others with `indent`. Numbers stay
// with their unit, and no last line holds one word alone.
std::string Wrap(const std::string& lead, const std::string& indent, const std::string& text);
// Columns as wide as they need to be, every cell printable, and the note below.
std::string Lay(const Table& table);

}  // namespace gpuprobe::render
