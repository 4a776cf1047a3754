#include "collector/observe/cgroups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::observe {
namespace {

class CgroupsTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = dir_.path() + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<MemoryLimit> LimitOf(const std::string& controller, const std::string& group) {
    return Cgroups::Open({{controller, {.root = "/", .point = dir_.path()}}}, {{controller, group}})
        .ReadMemoryLimit();
  }

  gpuprobe::testing::TempDir dir_;
};

TEST_F(CgroupsTest, TheGroupThatLeavesTheLeastMemory) {
  Write("/pod/memory.max", "1000\n");
  Write("/pod/memory.current", "950\n");
  Write("/pod/job/memory.max", "400\n");
  Write("/pod/job/memory.current", "100\n");
  Write("/other/memory.max", "max\n");
  const std::optional<MemoryLimit> limit = LimitOf("", "/pod/job");
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->limit_bytes, 1000u);
  EXPECT_EQ(limit->left_bytes(), 50u);
  EXPECT_FALSE(LimitOf("", "/other").has_value());
  EXPECT_FALSE(LimitOf("", "/missing").has_value());
}

TEST_F(CgroupsTest, FilesThatCanBeDroppedAreNotInUse) {
  Write("/a/memory.max", "1000\n");
  Write("/a/memory.current", "1000\n");
  Write("/a/memory.stat", "anon 300\nfile 700\nactive_file 100\ninactive_file 600\n");
  const std::optional<MemoryLimit> limit = LimitOf("", "/a");
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->left_bytes(), 600u);
}

TEST_F(CgroupsTest, TheOlderHierarchyHasItsOwnWords) {
  Write("/a/memory.limit_in_bytes", "500\n");
  Write("/a/memory.usage_in_bytes", "600\n");
  Write("/a/memory.stat", "cache 90\ninactive_file 70\ntotal_inactive_file 20\n");
  Write("/b/memory.limit_in_bytes", "9223372036854771712\n");
  const std::optional<MemoryLimit> limit = LimitOf("memory", "/a");
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->left_bytes(), 0u);
  EXPECT_FALSE(LimitOf("memory", "/b").has_value()) << "that is none";
}

}  // namespace
}  // namespace gpuprobe::observe
