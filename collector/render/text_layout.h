// Lays out sentences and tables for a screen: a terminal of any width from 60 columns, or a file.
//
// Example: on 60 columns the table "rank  kernels  busy  of time  h2d  d2h  memory peak" is shown in two
// parts, "rank  kernels  busy  of time" and, below it, "rank  h2d  d2h  memory peak".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "collector/render/table.h"

namespace gpuprobe::render {

struct Screen {
  static constexpr size_t kNarrowest = 60;
  static constexpr size_t kReadable = 118;  // sentences are never longer

  size_t width = kReadable;  // of tables; sentences take less if they can
  bool colors = false;
  bool is_terminal = false;  // else the first line of a report stays one line, for scripts
};

// How text is emphasised where the screen has colours. Nothing is said by colour alone.
enum class Emphasis { kNone, kStrong, kError, kWarning, kQuiet };

class Layout {
 public:
  explicit Layout(Screen screen = {}) : screen_(screen) {}

  // `text`, made printable, in lines, the first with `lead` in front, the others with `indent`. Numbers stay
  // with their unit, and no last line holds one word alone.
  std::string Wrap(const std::string& lead, const std::string& indent, const std::string& text,
                   Emphasis emphasis = Emphasis::kNone) const;
  // The table with columns as wide as they need to be, every cell printable, and the note below. What does
  // not fit the screen is shortened in the middle if it is text, then continues in a further part below.
  std::string Lay(const Table& table) const;
  // A first line: wrapped for a terminal only.
  std::string FirstLine(const std::string& indent, const std::string& text) const;
  // `text`, as it is, in this emphasis.
  std::string In(Emphasis emphasis, std::string_view text) const;

 private:
  Screen screen_;
};

}  // namespace gpuprobe::render
