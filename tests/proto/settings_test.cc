// The table of settings is sound, and the README says what it says.
#include "proto/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace gpuprobe::settings {
namespace {

// Angle brackets would be taken for HTML.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? std::string("&lt;") : std::string(1, c);
  return out;
}

std::string MarkdownTable() {
  std::ostringstream out;
  out << "| variable | default | meaning |\n|---|---|---|\n";
  for (const Setting& setting : kSettings) {
    out << "| `" << setting.name << "` | " << setting.default_text;
    if (!setting.unit.empty()) out << ' ' << setting.unit;
    out << " | " << Escaped(setting.help) << " |\n";
  }
  return out.str();
}

TEST(SettingsTest, NamesAreUniqueAndHaveThePrefix) {
  std::set<std::string_view> names;
  for (const Setting& setting : kSettings) {
    EXPECT_THAT(std::string(setting.name), testing::StartsWith("GPUPROBE_"));
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(setting.help.empty()) << setting.name;
  }
}

TEST(SettingsTest, DefaultsAreInRange) {
  for (const Setting& setting : kSettings) {
    if (setting.kind == Kind::kText || setting.default_text.empty()) continue;
    int64_t value = -1;
    const char* end = setting.default_text.data() + setting.default_text.size();
    const auto [stopped, error] = std::from_chars(setting.default_text.data(), end, value);
    EXPECT_EQ(error, std::errc()) << setting.name;
    EXPECT_EQ(stopped, end) << setting.name;
    EXPECT_GE(value, setting.minimum) << setting.name;
    EXPECT_LE(value, setting.maximum) << setting.name;
  }
}

TEST(SettingsTest, ReadmeHoldsTheTable) {
  std::ifstream file(GPUPROBE_README);
  ASSERT_TRUE(file) << GPUPROBE_README;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), testing::HasSubstr(MarkdownTable()))
      << "The README's section \"Environment\" should hold:\n"
      << MarkdownTable();
}

}  // namespace
}  // namespace gpuprobe::settings
