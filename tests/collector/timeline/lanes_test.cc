#include "collector/timeline/lanes.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace gpuprobe::timeline {
namespace {

struct Slice {
  uint64_t start;
  uint64_t end;
};

std::vector<uint32_t> PlaceAll(Lanes::Form form, const std::vector<Slice>& slices) {
  Lanes lanes(form);
  std::vector<uint32_t> placed;
  for (const Slice& slice : slices)
    placed.push_back(lanes.Place(slice.start, slice.end).value_or(UINT32_MAX));
  return placed;
}

using Placed = std::vector<uint32_t>;

TEST(Lanes, FlatSlicesThatFollowEachOtherShareALane) {
  EXPECT_EQ(PlaceAll(Lanes::Form::kFlat, {{0, 10}, {10, 20}, {20, 20}, {20, 25}}), (Placed{0, 0, 0, 0}));
}

TEST(Lanes, FlatSlicesThatOverlapDoNot) {
  EXPECT_EQ(PlaceAll(Lanes::Form::kFlat, {{0, 10}, {5, 8}, {7, 9}, {9, 12}, {10, 11}}),
            (Placed{0, 1, 2, 1, 0}));
}

TEST(Lanes, ASliceWithinAnotherIsAnOverlapOnlyIfFlat) {
  const std::vector<Slice> nested = {{0, 10}, {2, 5}, {3, 5}, {5, 10}};
  EXPECT_EQ(PlaceAll(Lanes::Form::kFlat, nested), (Placed{0, 1, 2, 1}));
  EXPECT_EQ(PlaceAll(Lanes::Form::kNested, nested), (Placed{0, 0, 0, 0}));
}

TEST(Lanes, ASliceThatEndsAfterWhatItBeganInGetsItsOwn) {
  EXPECT_EQ(PlaceAll(Lanes::Form::kNested, {{0, 10}, {5, 11}, {6, 9}}), (Placed{0, 1, 0}));
}

TEST(Lanes, ASliceThatComesTooLateGetsItsOwn) {
  EXPECT_EQ(PlaceAll(Lanes::Form::kNested, {{5, 10}, {0, 20}}), (Placed{0, 1}));
}

TEST(Lanes, TheyAreLimited) {
  Lanes lanes;
  for (uint32_t i = 0; i < Lanes::kMaxLanes; ++i) EXPECT_EQ(lanes.Place(0, 10), i);
  EXPECT_EQ(lanes.Place(0, 10), std::nullopt);
  EXPECT_EQ(lanes.Place(10, 20), 0);
}

}  // namespace
}  // namespace gpuprobe::timeline
