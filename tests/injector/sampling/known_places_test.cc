#include "injector/sampling/known_places.h"

#include <gtest/gtest.h>

namespace gpuprobe::injector {
namespace {

stacks::PythonPlace PlaceAt(uint64_t code, uint64_t instruction) {
  return {.code = code, .instruction = instruction, .function = 1, .file = 2, .lines = 3, .first_line = 4};
}

TEST(KnownPlaces, AreFoundUnlessAnythingOfTheCodeHasChanged) {
  KnownPlaces places;
  const stacks::PythonPlace place = PlaceAt(0x1000, 10);
  EXPECT_EQ(places.Find(place), 0U);
  places.Add(place, {.function = 7, .file = 8, .line = 9});
  ASSERT_NE(places.Find(place), 0U);
  EXPECT_EQ(places.Of(places.Find(place)).line, 9U);
  EXPECT_EQ(places.Find(PlaceAt(0x1000, 12)), 0U);
  stacks::PythonPlace other = place;  // its memory was used again
  other.function = 5;
  EXPECT_EQ(places.Find(other), 0U);
  places.Add(other, {.function = 17, .file = 18, .line = 19});
  EXPECT_EQ(places.Of(places.Find(other)).function, 17U);
  EXPECT_EQ(places.Of(places.Find(place)).function, 7U);
}

TEST(KnownPlaces, AFullTableStartsAgain) {
  KnownPlaces places;
  for (uint32_t i = 1; i <= 100'000; ++i) {
    places.Add(PlaceAt(0x1000, i), {.function = i, .file = 1, .line = 1});
    ASSERT_EQ(places.Of(places.Find(PlaceAt(0x1000, i))).function, i);
  }
  EXPECT_EQ(places.Find(PlaceAt(0x1000, 1)), 0U);
}

}  // namespace
}  // namespace gpuprobe::injector
