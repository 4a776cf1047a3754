// Text from programs and files, made fit to go out.
#include "collector/text/characters.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace gpuprobe::text {
namespace {

TEST(Printable, KeepsTextInAnyLanguageAndDropsWhatATerminalObeys) {
  for (const char* kept : {"", "LinearForward<float>", "Zürich 東京 🙂",
                           "a\xc2\xa0"
                           "b"})
    EXPECT_EQ(Printable(kept), kept);
  EXPECT_EQ(Printable("\x1b]0;title\x07"), "?]0;title?");
  EXPECT_EQ(Printable("two\nlines\r\t\x7f"), "two?lines???");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "?31m")
      << "the 8-bit form of an escape sequence";
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "abc"),
            "?abc")
      << "a mark that turns text around";
}

TEST(Printable, ReplacesEachByteThatIsNotUtf8) {
  EXPECT_EQ(Printable("a\xc3"), "a?") << "cut";
  EXPECT_EQ(Printable("\xc3("), "?(");
  EXPECT_EQ(Printable("\xc0\xaf"), "??") << "longer than it needs to be";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???") << "half of a surrogate pair";
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????") << "beyond the last character";
  EXPECT_EQ(Printable(std::string_view("\0x", 2)), "?x");
}

TEST(ValidUtf8, ValidTextStaysAsItIs) {
  for (const char* text : {"", "step", "Schritt \xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_EQ(ValidUtf8(text), text);
}

TEST(ValidUtf8, EachWrongByteIsReplaced) {
  const std::string wrong = "\xef\xbf\xbd";
  EXPECT_EQ(ValidUtf8("a\xff"
                      "b"),
            "a" + wrong + "b");
  EXPECT_EQ(ValidUtf8("\xc3"), wrong);                          // cut off
  EXPECT_EQ(ValidUtf8("\xc0\x80"), wrong + wrong);              // longer than need be
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), wrong + wrong + wrong);  // half of a pair
  EXPECT_EQ(ValidUtf8("\xe2\x82"
                      "a"),
            wrong + wrong + "a");
}

// Every character that terminals obey, and some that they do not, as UTF-8.
TEST(Printable, NoCodePointThatATerminalObeysIsLeft) {
  for (const char* obeyed :
       {"\xc2\x80", "\xc2\x9f", "\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xa9",
        "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"}) {
    EXPECT_EQ(Printable(obeyed), "?");
    EXPECT_EQ(PrintableLines(obeyed), "?");
  }
  EXPECT_EQ(PrintableLines("two\nlines\x1b["), "two\nlines?[");
}

TEST(SafeJson, EscapesWhatJsonWritersLeaveAsItIs) {
  EXPECT_EQ(SafeJson("{\n  \"a\": \"\xc2\x9b"
                     "2J \xe2\x80\xae \x7f\"\n}\n"),
            "{\n  \"a\": \"\\u009b2J \\u202e \\u007f\"\n}\n");
  for (const char* kept : {"{}", "\"Z\xc3\xbcrich\"", "\"\xc2\xb5s\"", "\"\xe2\x82\xac\"", "\"\\u001b\""})
    EXPECT_EQ(SafeJson(kept), kept);
}

}  // namespace
}  // namespace gpuprobe::text
