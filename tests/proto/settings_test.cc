// The table of settings is sound. tests/e2e/test_documentation.py shows that docs/settings.md holds it.
#include "proto/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <set>
#include <string>
#include <string_view>

namespace gpuprobe::settings {
namespace {

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

}  // namespace
}  // namespace gpuprobe::settings
