#include "collector/model/steps/host_places.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "collector/model/state/archive.h"

namespace gpuprobe::model {
namespace {

HostShare ShareOf(uint32_t line, uint64_t ns, IdleCause cause = IdleCause::kPause) {
  HostShare share{.cause = cause, .place = {}, .time = {.ns = ns, .samples = 1}};
  share.place.own = {.function = 1, .file = 1, .line = line};
  return share;
}

HostTime SumOf(const HostPlaces& places) {
  HostTime sum;
  for (const auto& [key, total] : places.places()) {
    sum.ns += total.time.ns;
    sum.samples += total.time.samples;
  }
  for (const IdleCause cause : {IdleCause::kPause, IdleCause::kInput}) {
    sum.ns += places.other(cause).ns;
    sum.samples += places.other(cause).samples;
  }
  return sum;
}

TEST(HostPlacesTest, KeepsTheStepsInWhichAPlaceTookLongest) {
  HostPlaces places;
  for (uint64_t step = 0; step < 100; ++step) {
    const std::vector<HostShare> shares = {ShareOf(1, step == 30 ? 500 : step)};
    places.Add(step, shares);
  }
  const HostPlaces::Total& total = places.places().begin()->second;
  EXPECT_EQ(total.steps, 100);
  EXPECT_EQ(total.time.ns, 99 * 100 / 2 - 30 + 500);
  ASSERT_EQ(total.longest.size(), HostPlaces::kLongest);
  EXPECT_EQ(total.longest[0].index, 30);
  EXPECT_EQ(total.longest[0].time.ns, 500);
  EXPECT_EQ(total.longest[1].index, 99);
}

TEST(HostPlacesTest, IsBoundedAndLosesNoTime) {
  HostPlaces places;
  uint64_t ns = 0;
  uint64_t samples = 0;
  for (uint32_t line = 0; line < 5000; ++line) {
    const std::vector<HostShare> shares = {ShareOf(line, line < 3 ? 1'000'000 : line % 2,
                                                   line % 2 == 0 ? IdleCause::kPause : IdleCause::kInput)};
    places.Add(line, shares);
    ns += shares[0].time.ns;
    ++samples;
    ASSERT_LE(places.places().size(), HostPlaces::kMost);
  }
  EXPECT_EQ(SumOf(places).ns, ns);
  EXPECT_EQ(SumOf(places).samples, samples);
  for (uint32_t line = 0; line < 3; ++line) {
    const HostShare kept = ShareOf(line, 0, line % 2 == 0 ? IdleCause::kPause : IdleCause::kInput);
    EXPECT_EQ(places.places().at({kept.cause, kept.place}).time.ns, 1'000'000) << "the longest stay";
  }
}

TEST(HostPlacesTest, GoesOnAfterItWasSavedAndLoaded) {
  HostPlaces places;
  for (uint32_t line = 0; line < 700; ++line) {
    const std::vector<HostShare> shares = {ShareOf(line % 600, line)};
    places.Add(line, shares);
  }
  StateWriter writer;
  writer(places);
  const std::string bytes = writer.Take();
  HostPlaces loaded;
  StateReader reader(bytes);
  reader(loaded);
  ASSERT_TRUE(reader.ok() && reader.at_end());
  for (HostPlaces* each : {&places, &loaded}) {
    const std::vector<HostShare> shares = {ShareOf(3, 11)};
    each->Add(1000, shares);
  }
  StateWriter first;
  first(places);
  StateWriter second;
  second(loaded);
  EXPECT_EQ(first.Take(), second.Take());
}

}  // namespace
}  // namespace gpuprobe::model
