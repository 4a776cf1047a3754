#include "collector/cli/look_screen.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace gpuprobe::cli {
namespace {

// A rank whose main thread is in this function of train.py; no function: its stack is not known.
LookedAt Rank(int rank, const std::string& function, std::optional<bool> moved, char state = 'S') {
  LookedAt out;
  out.rank = rank;
  out.moved = moved;
  out.stacks.label = "rank " + std::to_string(rank);
  out.stacks.process.pid = 100 + rank;
  observe::ThreadStack main;
  main.tid = out.stacks.process.pid;
  main.state = state;
  main.python = !function.empty();
  if (!function.empty()) {
    observe::StackFrame frame;
    frame.function = function;
    frame.file = "/home/me/train.py";
    frame.line = 7;
    main.frames.push_back(frame);
  }
  out.stacks.process.threads.push_back(main);
  return out;
}

std::string VerdictOf(std::vector<LookedAt> processes) {
  return LookVerdict({.processes = std::move(processes), .seconds = 1});
}

TEST(LookVerdict, WhoIsElsewhere) {
  EXPECT_EQ(VerdictOf({Rank(0, "wait", false), Rank(1, "read", false), Rank(2, "wait", false)}),
            "Rank 1 is somewhere else than the 2 others, sleeping: read (/home/me/train.py:7). None of them "
            "has moved "
            "for 1.0 s.");
  EXPECT_EQ(VerdictOf({Rank(0, "wait", false), Rank(1, "read", false), Rank(2, "wait", false),
                       Rank(3, "load", false), Rank(4, "wait", false)}),
            "Ranks 1, 3 are somewhere else than the 3 others. None of them has moved for 1.0 s.");
}

TEST(LookVerdict, NoPlaceHasMost) {
  EXPECT_EQ(
      VerdictOf({Rank(0, "a", false), Rank(1, "b", false)}),
      "They are in 2 different places, none of which has most of them. None of them has moved for 1.0 s.");
}

TEST(LookVerdict, AllInOnePlace) {
  EXPECT_EQ(VerdictOf({Rank(0, "wait", false), Rank(1, "wait", false)}),
            "All 2 ranks are in the same place, sleeping: wait (/home/me/train.py:7). None of them has moved "
            "for 1.0 s.");
}

TEST(LookVerdict, RanksThatGoOnAreSomewhereElseByChance) {
  EXPECT_EQ(VerdictOf({Rank(0, "a", true), Rank(1, "b", true), Rank(2, "a", true)}),
            "All of them moved within 1.0 s: they do not hang.");
  EXPECT_EQ(VerdictOf({Rank(0, "a", true)}), "It moved within 1.0 s: it does not hang.");
}

TEST(LookVerdict, WhoCannotRunComesFirst) {
  EXPECT_EQ(VerdictOf({Rank(0, "wait", false), Rank(1, "wait", false, 'T'), Rank(2, "wait", true)}),
            "Rank 1 is stopped, by a signal or a debugger. All 3 ranks are in the same place, sleeping: wait "
            "(/home/me/train.py:7). Only rank 2 moved within 1.0 s.");
  EXPECT_TRUE(VerdictOf({Rank(0, "wait", false, 'D')})
                  .starts_with("Rank 0 is in the kernel and cannot be interrupted"));
}

TEST(LookVerdict, WhatIsNotKnownIsNotSaid) {
  EXPECT_EQ(VerdictOf({Rank(0, "", std::nullopt), Rank(1, "", std::nullopt)}), "");
  EXPECT_EQ(VerdictOf({Rank(0, "", std::nullopt), Rank(1, "wait", false), Rank(2, "wait", false)}),
            "The 2 ranks whose stack is known are in the same place, sleeping: wait (/home/me/train.py:7). "
            "None of the 2 "
            "whose stack is known has moved for 1.0 s.");
}

}  // namespace
}  // namespace gpuprobe::cli
