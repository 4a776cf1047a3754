#include "collector/text/characters.h"

#include <algorithm>

namespace gpuprobe::text {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Terminals obey control characters (also the 8-bit ones), and turn text around or break lines at these
// marks.
bool IsObeyed(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x061c || code == 0x200e ||
         code == 0x200f || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

// Calls `emit` with each character, or each byte that belongs to none (code 0, size 0).
template <typename Emit>
void ForEachCharacter(std::string_view text, const Emit& emit) {
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t size = CharacterAt(text, code);
    const size_t taken = std::max<size_t>(size, 1);
    emit(text.substr(0, taken), code, size != 0);
    text.remove_prefix(taken);
  }
}

void AppendEscape(uint32_t code, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kDigits[code >> shift & 0xf]);
}

}  // namespace

size_t CharacterAt(std::string_view text, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.empty()) return 0;
  const uint8_t first = byte(0);
  const size_t size = first < 0x80         ? 1
                      : first >> 5 == 0x6  ? 2
                      : first >> 4 == 0xe  ? 3
                      : first >> 3 == 0x1e ? 4
                                           : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code >= kLeast[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? size : 0;
}

std::string Printable(std::string_view text) {
  std::string out = PrintableLines(text);
  std::replace(out.begin(), out.end(), '\n', '?');
  return out;
}

std::string PrintableLines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](std::string_view bytes, uint32_t code, bool valid) {
    if (valid && (code == '\n' || !IsObeyed(code))) {
      out.append(bytes);
    } else {
      out.push_back('?');
    }
  });
  return out;
}

std::string PrintableStyled(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t escape = text.find('\x1b');
    out += PrintableLines(text.substr(0, escape));
    if (escape == std::string_view::npos) break;
    text.remove_prefix(escape);
    const size_t end = text.find_first_not_of("0123456789;", 2);
    const bool is_style =
        text.size() > 2 && text[1] == '[' && end != std::string_view::npos && text[end] == 'm';
    const size_t taken = is_style ? end + 1 : 1;
    if (is_style) {
      out.append(text.substr(0, taken));
    } else {
      out.push_back('?');
    }
    text.remove_prefix(taken);
  }
  return out;
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEachCharacter(text, [&](std::string_view bytes, uint32_t /*code*/, bool valid) {
    out.append(valid ? bytes : kReplacement);
  });
  return out;
}

std::string SafeJson(std::string json) {
  // The first bytes of all that JSON itself does not escape; the rest of most texts has none of them.
  if (json.find_first_of("\x7f\xc2\xd8\xe2") == std::string::npos) return json;
  std::string out;
  out.reserve(json.size());
  ForEachCharacter(json, [&](std::string_view bytes, uint32_t code, bool valid) {
    // Line ends and blanks between values are not in strings.
    if (valid && code >= 0x20 && IsObeyed(code)) {
      AppendEscape(code, out);
    } else {
      out.append(bytes);
    }
  });
  return out;
}

}  // namespace gpuprobe::text
