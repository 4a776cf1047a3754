#include "injector/base/settings.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuprobe::injector {
namespace {

TEST(Settings, WithoutEnvironmentEverythingHasItsDefault) {
  Settings settings;
  settings.Read(nullptr);
  EXPECT_EQ(settings.Number(SettingIndex("GPUPROBE_FLUSH_MS")), 500);
  EXPECT_TRUE(settings.Flag(SettingIndex("GPUPROBE_AUTOSTART")));
  EXPECT_FALSE(settings.IsSet(SettingIndex("GPUPROBE_RANK")));
  EXPECT_STREQ(settings.Text(SettingIndex("GPUPROBE_SOCKET")), "");
  EXPECT_EQ(settings.rejected(), 0);
  EXPECT_EQ(settings.unknown(), 0);
}

TEST(Settings, EveryDefaultOfTheTableIsAValidValue) {
  Settings settings;
  settings.Read(nullptr);
  for (size_t i = 0; i < kSettingCount; ++i) {
    const settings::Setting& setting = settings::kSettings[i];
    if (setting.kind == settings::Kind::kText || setting.default_text.empty()) continue;
    EXPECT_EQ(std::to_string(settings.Number(i)), setting.default_text) << setting.name;
    EXPECT_GE(settings.Number(i), setting.minimum);
    EXPECT_LE(settings.Number(i), setting.maximum);
  }
}

TEST(Settings, ValuesOfTheEnvironmentAreTaken) {
  const char* environment[] = {"HOME=/", "GPUPROBE_SOCKET=/x/y", "GPUPROBE_FLUSH_MS=10",
                               "GPUPROBE_AUTOSTART=0", nullptr};
  Settings settings;
  settings.Read(environment);
  EXPECT_STREQ(settings.Text(SettingIndex("GPUPROBE_SOCKET")), "/x/y");
  EXPECT_EQ(settings.Number(SettingIndex("GPUPROBE_FLUSH_MS")), 10);
  EXPECT_FALSE(settings.Flag(SettingIndex("GPUPROBE_AUTOSTART")));
}

TEST(Settings, BadValuesKeepTheDefaultAndAreCounted) {
  const std::string too_long = "GPUPROBE_OUT=" + std::string(5000, 'x');
  const char* environment[] = {
      "GPUPROBE_FLUSH_MS=5",    "GPUPROBE_BUFFERS=many",   "GPUPROBE_QUEUE_MIB=9999999999999999999999",
      "GPUPROBE_AUTOSTART=yes", "GPUPROBE_BUFFER_KIB=64 ", "GPUPROBE_EXIT_WAIT_MS=-",
      too_long.c_str(),         "GPUPROBE_VERBOSE=",       nullptr};
  Settings settings;
  settings.Read(environment);
  EXPECT_EQ(settings.rejected(), 7);
  EXPECT_EQ(settings.rejected(0).index, SettingIndex("GPUPROBE_FLUSH_MS"));
  EXPECT_EQ(settings.Number(SettingIndex("GPUPROBE_FLUSH_MS")), 500);
  EXPECT_EQ(settings.Number(SettingIndex("GPUPROBE_BUFFERS")), 16);
  EXPECT_EQ(settings.Number(SettingIndex("GPUPROBE_QUEUE_MIB")), 64);
  EXPECT_STREQ(settings.Text(SettingIndex("GPUPROBE_OUT")), "");
}

TEST(Settings, WhatIsRejectedIsKeptAsItWasGiven) {
  const char* environment[] = {"GPUPROBE_OVERHEAD_BUDGET=0.01", "GPUPROBE_EVERY_STEPS=4", nullptr};
  Settings settings;
  settings.Read(environment);
  settings.Reject(SettingIndex("GPUPROBE_EVERY_STEPS"), "needs a marker");
  ASSERT_EQ(settings.rejected(), 2);
  EXPECT_EQ(settings.rejected(0).index, SettingIndex("GPUPROBE_OVERHEAD_BUDGET"));
  EXPECT_STREQ(settings.rejected(0).value, "0.01");
  EXPECT_EQ(settings.rejected(0).remedy, nullptr);
  EXPECT_STREQ(settings.rejected(1).value, "4");
  EXPECT_STREQ(settings.rejected(1).remedy, "needs a marker");
}

TEST(Settings, EveryTextSaysWhatItMustBe) {
  for (const settings::Setting& setting : settings::kSettings)
    EXPECT_EQ(setting.kind == settings::Kind::kText, !setting.form.empty()) << setting.name;
}

TEST(Settings, TheNearestNameOfOneThatIsUnknown) {
  EXPECT_EQ(settings::NearestName("GPUPROBE_SOKET"), "GPUPROBE_SOCKET");
  EXPECT_EQ(settings::NearestName("GPUPROBE_EVERY_STEP"), "GPUPROBE_EVERY_STEPS");
  EXPECT_EQ(settings::NearestName("GPUPROBE_NO_SUCH"), "");
  EXPECT_EQ(settings::NearestName("GPUPROBE_"), "");
}

TEST(Settings, UnknownNamesAreNoticed) {
  const char* environment[] = {"GPUPROBE_SOKET=/x", "GPUPROBE_FLUSH=1", "GPUPROBEX=1", nullptr};
  Settings settings;
  settings.Read(environment);
  EXPECT_EQ(settings.unknown(), 2);
  EXPECT_EQ(settings.first_unknown(), "GPUPROBE_SOKET");
}

}  // namespace
}  // namespace gpuprobe::injector
