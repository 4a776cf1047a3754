// Text as JSON writes it.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace gpuprobe::timeline {

// `text` is UTF-8.
inline void AppendQuoted(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

}  // namespace gpuprobe::timeline
