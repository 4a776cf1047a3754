#include "injector/core/call_clock.h"

#include <algorithm>

namespace gpuprobe::injector {

constinit CallClock call_clock;
constinit CallClock::Call CallClock::remembered[kRemembered] = {};

namespace {

// With so many calls on others that are as large, and none on this one, it is no longer in use.
constexpr uint32_t kMostOnOthers = 256;
constexpr uint64_t kLeastPeriods = 4;  // that must be alike
constexpr uint64_t kMuchLonger = 3;
constexpr uint64_t kMostRounds = 8;   // whose pauses are compared
constexpr uint64_t kMostAlike = 256;  // equal calls in a step

void StoreMax(std::atomic<uint64_t>& value, uint64_t candidate) noexcept {
  uint64_t known = value.load(std::memory_order_seq_cst);
  while (known < candidate && !value.compare_exchange_weak(known, candidate, std::memory_order_seq_cst)) {
  }
}

}  // namespace

void CallClock::Reset() noexcept {
  watched_.store(0);
  calls_.store(0);
  on_others_.store(0);
}

void CallClock::Watch(uint64_t watched, uint64_t candidate) noexcept {
  if (!watched_.compare_exchange_strong(watched, candidate, std::memory_order_acq_rel)) return;
  calls_.store(0, std::memory_order_seq_cst);
  on_others_.store(0, std::memory_order_relaxed);
}

void CallClock::Note(uint32_t communicator, int32_t ranks, uint64_t number, uint32_t kind,
                     uint64_t stamp) noexcept {
  if (communicator == 0 || ranks < 2) return;
  const uint64_t candidate = static_cast<uint64_t>(ranks) << 32 | communicator;
  const uint64_t watched = watched_.load(std::memory_order_acquire);
  if (candidate != watched) {
    const uint64_t size = watched >> 32;
    if (static_cast<uint64_t>(ranks) < size) return;
    if (static_cast<uint64_t>(ranks) == size &&
        on_others_.fetch_add(1, std::memory_order_relaxed) < kMostOnOthers)
      return;
    Watch(watched, candidate);
    if (watched_.load(std::memory_order_acquire) != candidate) return;
  }
  on_others_.store(0, std::memory_order_relaxed);
  Call& call = remembered[number % kRemembered];
  call.what.store(0, std::memory_order_relaxed);
  call.stamp.store(stamp, std::memory_order_release);
  call.what.store(WhatOf(number, kind), std::memory_order_release);
  StoreMax(calls_, number + 1);
}

bool CallClock::IsKnown(uint64_t number) noexcept {
  const uint64_t what = remembered[number % kRemembered].what.load(std::memory_order_acquire);
  return what >> 32 == (number & UINT32_MAX) && static_cast<uint32_t>(what) != 0;
}

uint32_t CallClock::KindOf(uint64_t number) noexcept {
  return static_cast<uint32_t>(remembered[number % kRemembered].what.load(std::memory_order_acquire));
}

// The shortest of several rounds: a long one may be an accident.
uint64_t CallClock::PauseBefore(uint64_t number, uint64_t period, uint64_t rounds) noexcept {
  uint64_t shortest = UINT64_MAX;
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t at = number - round * period;
    const uint64_t now = remembered[at % kRemembered].stamp.load(std::memory_order_acquire);
    const uint64_t before = remembered[(at - 1) % kRemembered].stamp.load(std::memory_order_acquire);
    shortest = std::min(shortest, now > before ? now - before : 0);
  }
  return shortest;
}

// Where in a period the longest pause is. True: it is much longer than the others. `known`: the last calls,
// kLeastPeriods periods or more.
bool CallClock::FindBegin(uint64_t end, uint64_t known, uint64_t period, uint64_t* begin) noexcept {
  const uint64_t rounds = std::min(kMostRounds, known / period - 1);
  uint64_t longest = 0;
  uint64_t second = 0;
  *begin = end - period;
  for (uint64_t number = end - period; number < end; ++number) {
    const uint64_t pause = PauseBefore(number, period, rounds);
    if (pause > longest) {
      second = longest;
      longest = pause;
      *begin = number;
    } else {
      second = std::max(second, pause);
    }
  }
  return period > 1 && longest > kMuchLonger * second;
}

CallClock::Period CallClock::FindPeriod() const noexcept {
  const uint64_t end = calls();
  uint64_t known = 0;  // of the last ones, without a gap
  while (known < std::min(end, kRemembered) && IsKnown(end - 1 - known)) ++known;
  // Alike for a quarter of what is known, too: equal calls in a row within a step are not yet a step.
  const auto repeats = [&](uint64_t period) noexcept {
    const uint64_t tail = std::max(period * kLeastPeriods, known / 4);
    uint64_t back = 0;
    while (back + period < tail && KindOf(end - 1 - back) == KindOf(end - 1 - back - period)) ++back;
    return back + period >= tail;
  };
  uint64_t period = 1;
  while (period * kLeastPeriods <= known && !repeats(period)) ++period;
  if (period * kLeastPeriods > known) return {};
  // If the calls of a step are alike among themselves, pauses show how many they are.
  uint64_t begin = 0;
  for (uint64_t steps = 1; steps <= kMostAlike && steps * period * kLeastPeriods <= known; ++steps) {
    if (FindBegin(end, known, steps * period, &begin))
      return {.calls = static_cast<uint32_t>(steps * period), .begin = begin};
  }
  static_cast<void>(FindBegin(end, known, period, &begin));
  return {.calls = static_cast<uint32_t>(period), .begin = begin};
}

}  // namespace gpuprobe::injector
