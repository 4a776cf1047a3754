// The layouts themselves are held against real interpreters in tests/e2e/test_stacks.py.
#include "stacks/python_layout.h"

#include <unistd.h>

#include <array>
#include <cstring>

#include "gtest/gtest.h"

namespace gpuprobe::stacks {
namespace {

// What CPython 3.13 and newer have at the start of their runtime.
struct Table {
  explicit Table(uint64_t version, bool free_threaded = false) {
    std::memcpy(entries.data(), "xdebugpy", 8);
    entries[1] = version;
    entries[2] = free_threaded ? 1 : 0;
  }
  Unreadable Read(PythonLayout& layout) const {
    return ReadPythonLayout(ProcessMemory(getpid()), reinterpret_cast<uint64_t>(entries.data()), 0, layout);
  }
  std::array<uint64_t, 128> entries{};
};

TEST(PythonLayout, AFreeThreadedBuildIsNotRead) {
  PythonLayout layout;
  EXPECT_EQ(Table(0x030d00f0, true).Read(layout), Unreadable::kFreeThreaded);
  EXPECT_EQ(layout.version, 0x030d00f0U);
}

TEST(PythonLayout, ANewerVersionIsNotRead) {
  PythonLayout layout;
  EXPECT_EQ(Table(0x030f00f0).Read(layout), Unreadable::kUnknownVersion);
  EXPECT_EQ(layout.version, 0x030f00f0U);
}

TEST(PythonLayout, ADamagedTableIsNotRead) {
  PythonLayout layout;
  Table table(0x030d00f0);
  EXPECT_EQ(table.Read(layout), Unreadable::kNo);
  table.entries[5] = ~uint64_t{0};
  EXPECT_EQ(table.Read(layout), Unreadable::kUnknownVersion);
}

TEST(PythonLayout, OlderVersionsAreKnownByTheirNumberOnly) {
  const std::array<uint64_t, 128> runtime{};
  const auto read = [&](uint32_t version, PythonLayout& layout) {
    return ReadPythonLayout(ProcessMemory(getpid()), reinterpret_cast<uint64_t>(runtime.data()), version,
                            layout);
  };
  PythonLayout layout;
  for (const uint32_t minor : {8U, 9U, 10U, 11U, 12U})
    EXPECT_EQ(read(0x03000000 | minor << 16, layout), Unreadable::kNo) << minor;
  for (const uint32_t minor : {6U, 7U, 13U})
    EXPECT_EQ(read(0x03000000 | minor << 16, layout), Unreadable::kUnknownVersion) << minor;
  EXPECT_EQ(read(0, layout), Unreadable::kUnknownVersion);
}

}  // namespace
}  // namespace gpuprobe::stacks
