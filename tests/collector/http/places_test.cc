// Nobody can take all of the server's connections.
#include "collector/http/places.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuprobe::http {
namespace {

using Admission = Places::Admission;

size_t TakeAll(Places& places, const Peer& peer) {
  size_t taken = 0;
  while (places.Take(peer) == Admission::kPlace) ++taken;
  return taken;
}

TEST(Places, OneUserGetsAShareAndOthersStillGetTheirs) {
  Places places;
  EXPECT_EQ(TakeAll(places, {.name = "uid 1"}), Places::kMostOfPeer);
  EXPECT_EQ(TakeAll(places, {.name = "uid 2"}), Places::kMostOfOthers - Places::kMostOfPeer);
  EXPECT_EQ(TakeAll(places, {.name = "uid 3"}), 0U);
  EXPECT_EQ(TakeAll(places, {.is_owner = true, .name = "uid 0"}), Places::kMost - Places::kMostOfOthers);
}

TEST(Places, WhoeverGetsNoneIsAdmittedBriefly) {
  Places places;
  for (int user = 0; user < 10; ++user) TakeAll(places, {.name = std::to_string(user)});
  const Peer late{.name = "late"};
  for (size_t i = 0; i < Places::kMostBriefOfPeer; ++i) EXPECT_EQ(places.Take(late), Admission::kBrief);
  EXPECT_EQ(places.Take(late), Admission::kRefused);
  places.Leave(late, Admission::kBrief);
  EXPECT_EQ(places.Take(late), Admission::kBrief);
}

TEST(Places, WhatIsLeftIsFreeAgain) {
  Places places;
  const Peer peer{.name = "10.0.0.7"};
  const size_t first = TakeAll(places, peer);
  for (size_t i = 0; i < first; ++i) places.Leave(peer, Admission::kPlace);
  places.Leave(peer, Admission::kBrief);  // TakeAll's last one
  EXPECT_EQ(TakeAll(places, peer), first);
}

}  // namespace
}  // namespace gpuprobe::http
