#include "injector/base/flat_map.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace gpuprobe::injector {
namespace {

TEST(FlatMap, AgreesWithTheStandardMapUnderRandomUse) {
  FlatMap<uint64_t> map(1 << 16);
  std::unordered_map<uint64_t, uint64_t> model;
  std::mt19937_64 random(7);
  for (int i = 0; i < 300000; ++i) {
    const uint64_t key = random() % 5000 * 4096;  // like addresses
    switch (random() % 3) {
      case 0: {
        const uint64_t value = random();
        ASSERT_NE(map.Insert(key, value), nullptr);
        model[key] = value;
        break;
      }
      case 1:
        ASSERT_EQ(map.Erase(key), model.erase(key) == 1);
        break;
      default: {
        const uint64_t* found = map.Find(key);
        const auto expected = model.find(key);
        ASSERT_EQ(found != nullptr, expected != model.end());
        if (found != nullptr) {
          ASSERT_EQ(*found, expected->second);
        }
      }
    }
    ASSERT_EQ(map.size(), model.size());
  }
}

TEST(FlatMap, TheLimitIsKeptAndKnownKeysStillChange) {
  FlatMap<int> map(10);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_NE(map.Insert(i, 1), nullptr);
  EXPECT_EQ(map.Insert(10, 1), nullptr);
  EXPECT_NE(map.Insert(5, 2), nullptr);
  EXPECT_EQ(*map.Find(5), 2);
  EXPECT_TRUE(map.Erase(5));
  EXPECT_NE(map.Insert(10, 1), nullptr);
}

TEST(FlatMap, AnEmptyMapFindsAndErasesNothing) {
  FlatMap<int> map(10);
  EXPECT_EQ(map.Find(1), nullptr);
  EXPECT_FALSE(map.Erase(1));
}

}  // namespace
}  // namespace gpuprobe::injector
