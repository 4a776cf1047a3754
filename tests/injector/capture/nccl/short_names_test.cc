#include "injector/capture/nccl/short_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace gpuprobe::injector::nccl {
namespace {

// The table is the process's: names of one test stay for the next.
TEST(ShortNames, ANameKeepsItsNumberAndIsGivenBack) {
  const uint8_t ring = NumberOfName("RING");
  ASSERT_NE(ring, 0);
  EXPECT_EQ(NumberOfName(std::string("RING").c_str()), ring);
  EXPECT_STREQ(NameOfNumber(ring), "RING");
  const uint8_t tree = NumberOfName("TREE");
  EXPECT_NE(tree, ring);
  EXPECT_STREQ(NameOfNumber(tree), "TREE");
}

TEST(ShortNames, NoNameIsNumberZero) {
  EXPECT_EQ(NumberOfName(nullptr), 0);
  EXPECT_EQ(NumberOfName(""), 0);
  EXPECT_STREQ(NameOfNumber(0), "");
  EXPECT_STREQ(NameOfNumber(255), "");
}

TEST(ShortNames, ANameThatIsTooLongIsNone) {
  const std::string longest(kShortNameBytes, 'a');
  const uint8_t number = NumberOfName(longest.c_str());
  EXPECT_NE(number, 0);
  EXPECT_EQ(NameOfNumber(number), longest);
  EXPECT_EQ(NumberOfName((longest + "a").c_str()), 0);
}

TEST(ShortNames, ThreadsThatAddTheSameNamesAgree) {
  const std::vector<std::string> names = {"NVLS", "PAT", "LL128", "SIMPLE"};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&names] {
      for (int round = 0; round < 1000; ++round) {
        for (const std::string& name : names) {
          const uint8_t number = NumberOfName(name.c_str());
          if (number != 0) {
            EXPECT_EQ(NameOfNumber(number), name);
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Last: it fills the table.
TEST(ShortNames, WhenTheTableIsFullNewNamesAreNoneAndOldOnesStay) {
  const uint8_t kept = NumberOfName("kept");
  std::set<uint8_t> numbers;
  for (size_t i = 0; i < 2 * kShortNames; ++i)
    numbers.insert(NumberOfName(("name " + std::to_string(i)).c_str()));
  EXPECT_TRUE(numbers.contains(0));
  EXPECT_LT(numbers.size(), kShortNames);
  EXPECT_EQ(NumberOfName("kept"), kept);
  EXPECT_STREQ(NameOfNumber(kept), "kept");
}

}  // namespace
}  // namespace gpuprobe::injector::nccl
