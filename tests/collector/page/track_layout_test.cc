// Bars on tracks: which come first, how ranges nest, and what is joined because nobody could see it apart.
#include "collector/page/track_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuprobe::page {
namespace {

using ::testing::ElementsAre;

PlacedSlice On(uint64_t stream, uint64_t start_ns, uint64_t end_ns, SliceKind kind = SliceKind::kCompute) {
  return {.place = {.range = false, .where = stream, .context = 0},
          .slice = {.start_ns = start_ns, .end_ns = end_ns, .kind = kind}};
}

PlacedSlice RangeOn(uint64_t thread, uint64_t start_ns, uint64_t end_ns) {
  return {.place = {.range = true, .where = thread, .context = 0},
          .slice = {.start_ns = start_ns, .end_ns = end_ns, .kind = SliceKind::kRange}};
}

std::string Name(const Place& place, bool several) {
  return absl::StrCat(place.range ? "thread "
                      : several   ? absl::StrCat("GPU ", place.device(), " stream ")
                                  : "stream ",
                      place.range ? place.where : place.stream());
}

std::vector<std::string> NamesOf(const RankSlices& laid) {
  std::vector<std::string> names;
  for (const Track& track : laid.tracks) names.push_back(track.name);
  return names;
}

std::vector<uint32_t> TracksOf(const RankSlices& laid) {
  std::vector<uint32_t> tracks;
  for (const Slice& slice : laid.slices) tracks.push_back(slice.track);
  return tracks;
}

TEST(TrackLayout, RangesComeFirstThenTheStreamWithMostCompute) {
  const RankSlices laid = LayOut(
      {On(7, 0, 10), On(9, 0, 100, SliceKind::kCommunication), On(8, 0, 50), RangeOn(1, 0, 100)}, Name);
  EXPECT_THAT(NamesOf(laid), ElementsAre("thread 1", "stream 8", "stream 7", "stream 9"));
}

TEST(TrackLayout, NestedRangesGoBelowEachOtherAtMostFourDeep) {
  const RankSlices laid = LayOut({RangeOn(1, 0, 100), RangeOn(1, 10, 50), RangeOn(1, 20, 30),
                                  RangeOn(1, 21, 29), RangeOn(1, 22, 28), RangeOn(1, 60, 90)},
                                 Name);
  EXPECT_EQ(laid.tracks.size(), 4U);
  EXPECT_THAT(TracksOf(laid), ElementsAre(0, 1, 1, 2, 3)) << "the fifth has no room";
}

TEST(TrackLayout, RangesOfTwoThreadsAreShown) {
  const RankSlices laid = LayOut({RangeOn(1, 0, 10), RangeOn(2, 0, 30), RangeOn(3, 0, 20)}, Name);
  EXPECT_THAT(NamesOf(laid), ElementsAre("thread 2", "thread 3"));
  EXPECT_EQ(laid.slices.size(), 2U);
}

TEST(TrackLayout, SeveralDevicesAreToldApart) {
  const RankSlices laid = LayOut({On(7, 0, 10), On(uint64_t{1} << 32 | 7, 0, 5)}, Name);
  EXPECT_THAT(NamesOf(laid), ElementsAre("GPU 0 stream 7", "GPU 1 stream 7"));
}

Slice Bar(uint64_t start_ns, uint64_t end_ns, uint32_t name = 0, uint32_t track = 0) {
  return {.start_ns = start_ns, .end_ns = end_ns, .track = track, .name = name};
}

TEST(JoinShort, LeavesWhatCanBeSeen) {
  std::vector<Slice> slices = {Bar(0, 1000), Bar(1000, 2000), Bar(500'000, 501'000)};
  JoinShort(1'000'000, 10, slices);
  EXPECT_EQ(slices.size(), 3U) << "each is a thousandth of the step";
}

TEST(JoinShort, OneBarForManyWithTheNameOfTheLongest) {
  std::vector<Slice> slices;
  for (uint64_t i = 0; i < 100; ++i)
    slices.push_back(Bar(i * 10, i * 10 + (i == 40 ? 9 : 5), i == 40 ? 7 : 1));
  slices.push_back(Bar(900'000, 900'005, 3));     // far away
  slices.push_back(Bar(900'005, 900'010, 3, 1));  // on another track
  JoinShort(1'000'000, 10, slices);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].count, 100U);
  EXPECT_EQ(slices[0].name, 7U);
  EXPECT_EQ(slices[0].end_ns, 995U);
}

TEST(JoinShort, KeepsTheBoundHoweverManyThereAre) {
  std::vector<Slice> slices;
  for (uint64_t i = 0; i < 5000; ++i) slices.push_back(Bar(i * 10'000, i * 10'000 + 2000));
  JoinShort(1'000'000, 100, slices);
  EXPECT_LE(slices.size(), 100U);
  uint32_t count = 0;
  for (const Slice& slice : slices) count += slice.count;
  EXPECT_EQ(count, 5000U) << "each is in one of them";
}

}  // namespace
}  // namespace gpuprobe::page
