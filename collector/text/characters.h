// Text that comes from programs, files and clients, made fit to go out: to a terminal, into JSON, or to
// readers that accept nothing but UTF-8.
//
// Example: a kernel is named "\x9b2J", which clears the screen of many terminals. Printable makes it "?2J",
// and SafeJson keeps it as "\u009b2J", which every JSON parser reads as the name that it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuprobe::text {

// Length of the UTF-8 character at the beginning of `text`, and its code point; 0 if there is none.
size_t CharacterAt(std::string_view text, uint32_t& code);

// Replaces every terminal control character (escape sequences, line ends, bidirectional marks) and every byte
// that is not UTF-8 by '?'.
std::string Printable(std::string_view text);

// The same, but line ends stay.
std::string PrintableLines(std::string_view text);

// The same, but colours ("\x1b[1;31m") stay, too: for our own output, in which we emphasise words.
std::string PrintableStyled(std::string_view text);

// With each byte that is not UTF-8 replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

// JSON text with these characters in its strings written as \uXXXX. REQUIRES: `json` is UTF-8.
std::string SafeJson(std::string json);

}  // namespace gpuprobe::text
