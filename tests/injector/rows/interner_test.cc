#include "injector/rows/interner.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace gpuprobe::injector {
namespace {

TEST(StringInterner, EqualTextsHaveOneIdAndOnlyTheFirstIsNew) {
  StringInterner interner;
  ASSERT_TRUE(interner.Init());
  const Interned first = interner.Intern("forward");
  EXPECT_TRUE(first.is_new);
  EXPECT_NE(first.id, 0u);
  const Interned again = interner.Intern(std::string("forward"));
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.id, first.id);
  EXPECT_NE(interner.Intern("backward").id, first.id);
  EXPECT_EQ(interner.Intern("").id, 0u);
}

TEST(StringInterner, APointerThatComesToMeanAnotherTextGetsAnotherId) {
  StringInterner interner;
  ASSERT_TRUE(interner.Init());
  char name[16] = "kernel_a";
  const Interned a = interner.InternPointer(name, 1);
  EXPECT_TRUE(a.is_new);
  EXPECT_EQ(interner.InternPointer(name, 1).id, a.id);
  EXPECT_EQ(interner.InternPointer(name, 2).id, a.id);
  std::strcpy(name, "kernel_b");  // the module was unloaded, its memory used again
  const Interned b = interner.InternPointer(name, 3);
  EXPECT_TRUE(b.is_new);
  EXPECT_NE(b.id, a.id);
  EXPECT_EQ(interner.Intern("kernel_b").id, b.id);
}

TEST(StringInterner, AFullTableStartsAgainWithNewIds) {
  StringInterner interner;
  ASSERT_TRUE(interner.Init());
  std::set<uint32_t> ids;
  for (int i = 0; i < 200000; ++i) {
    const Interned interned = interner.Intern("range " + std::to_string(i));
    ASSERT_TRUE(interned.is_new);
    ASSERT_TRUE(ids.insert(interned.id).second);
    ASSERT_EQ(interner.Intern("range " + std::to_string(i)).id, interned.id);
  }
}

TEST(StringInterner, LongTextsFillTheRoomWithoutLosingTheNewOne) {
  StringInterner interner;
  ASSERT_TRUE(interner.Init());
  for (int i = 0; i < 300; ++i) {
    const std::string text = std::string(100000, 'x') + std::to_string(i);
    const Interned interned = interner.Intern(text);
    ASSERT_TRUE(interned.is_new);
    const Interned again = interner.Intern(text);
    ASSERT_FALSE(again.is_new);
    ASSERT_EQ(again.id, interned.id);
  }
}

TEST(SiteInterner, EveryFieldMakesADifference) {
  SiteInterner interner;
  const SiteKey base{};
  const Interned first = interner.Intern(base);
  EXPECT_TRUE(first.is_new);
  std::set<uint32_t> ids{first.id};
  for (size_t i = 0; i < sizeof(SiteKey) / sizeof(uint32_t); ++i) {
    SiteKey key = base;
    reinterpret_cast<uint32_t*>(&key)[i] = 1;
    EXPECT_TRUE(ids.insert(interner.Intern(key).id).second) << "field " << i;
  }
  EXPECT_EQ(interner.Intern(base).id, first.id);
  EXPECT_FALSE(interner.Intern(base).is_new);
}

TEST(SiteInterner, MoreSitesThanTheTableHoldsStillGetIds) {
  SiteInterner interner;
  std::set<uint32_t> ids;
  for (uint32_t i = 0; i < 150000; ++i) {
    SiteKey key{};
    key.grid[0] = i;
    const Interned interned = interner.Intern(key);
    ASSERT_NE(interned.id, 0u);
    ASSERT_TRUE(ids.insert(interned.id).second);
  }
}

TEST(FrameInterner, StacksShareTheirCallersAndAFullTableRefusesWhatIsNew) {
  FrameInterner frames;
  const Interned main = frames.Intern({0, 1, 2, 10});
  EXPECT_TRUE(main.is_new);
  EXPECT_EQ(main.id, 1u);
  const Interned a = frames.Intern({main.id, 3, 2, 20});
  EXPECT_EQ(frames.Intern({0, 1, 2, 10}).id, main.id);
  EXPECT_FALSE(frames.Intern({main.id, 3, 2, 20}).is_new);
  EXPECT_NE(frames.Intern({main.id, 3, 2, 21}).id, a.id);  // another line
  EXPECT_NE(frames.Intern({a.id, 3, 2, 20}).id, a.id);     // it calls itself
  std::set<uint32_t> ids;
  uint32_t line = 0;
  while (const uint32_t id = frames.Intern({0, 5, 2, ++line}).id) ASSERT_TRUE(ids.insert(id).second);
  EXPECT_EQ(ids.size() + 4, FrameInterner::kMaxFrames);
  EXPECT_EQ(frames.Intern({main.id, 3, 2, 20}).id, a.id);
  EXPECT_EQ(frames.Intern({0, 5, 2, 100'000}).id, 0u);
}

}  // namespace
}  // namespace gpuprobe::injector
