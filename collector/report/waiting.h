// How long a rank made others wait, and waited itself, in collectives.
#pragma once

#include <cstdint>
#include <optional>

namespace gpuprobe::analysis {

struct CausedWait {
  double total_ns = 0;
  double mean_ns = 0;
  double per_step_ns = 0;  // of each other rank
  double waited_ns = 0;
  uint64_t last_arrivals = 0;
  uint64_t steps = 0;
  uint64_t steps_blamed = 0;
  uint64_t first_blamed_step = 0;
  uint64_t last_blamed_step = 0;
  double compared_share = 1;
  double estimated_share = 0;
  std::optional<double> per_step_error_ns = std::nullopt;
  uint64_t pairs = 0;
  double pair_total_ns = 0;
  double pair_per_step_ns = 0;
  double pair_waited_ns = 0;

  static constexpr void Declare(auto& fields) {
    constexpr auto kStepped = [](const auto& c) { return c.steps > 0; };
    constexpr auto kBlamed = [](const auto& c) { return c.steps_blamed > 0; };
    fields("caused_ns", &CausedWait::total_ns,
           "waiting that this rank caused, summed over the ranks that waited; sends and receives included");
    fields("caused_mean_ns", &CausedWait::mean_ns, "the same per other rank, collectives only");
    fields("caused_per_step_ns", &CausedWait::per_step_ns,
           "the same per step, without the warm-up; `null` without steps")
        .NullUnless(kStepped)
        .InSummary();
    fields("caused_per_step_error_ns", &CausedWait::per_step_error_ns,
           "half the width of the 95 % interval of `caused_per_step_ns`; `null` if nothing was lost, or if "
           "so much was lost that nothing can be said (both shares are 0)");
    fields("compared_share", &CausedWait::compared_share,
           "share of the collectives that were compared because all ranks' records came (with more than 64 "
           "ranks, one in 64 may be missing)");
    fields("estimated_share", &CausedWait::estimated_share,
           "share in which the last rank was estimated from the ranks that were seen and from how long such "
           "a transfer usually takes. The rest is scaled up");
    fields
        .Group("pairs", "of sends and receives alone; `null` without any",
               [](auto& group) {
                 group("compared", &CausedWait::pairs, "sends and receives that were compared");
                 group("caused_ns", &CausedWait::pair_total_ns,
                       "waiting that it caused in them, summed over the ranks that waited");
                 group("caused_per_step_ns", &CausedWait::pair_per_step_ns,
                       "the same per step; `null` without steps")
                     .NullUnless(kStepped);
                 group("waited_ns", &CausedWait::pair_waited_ns, "its own waiting in them");
               })
        .NullUnless([](const auto& c) { return c.pairs > 0; });
    fields("waited_ns", &CausedWait::waited_ns, "its own waiting; sends and receives included").InSummary();
    fields("last_arrivals", &CausedWait::last_arrivals, "collectives in which it came last");
    fields("steps", &CausedWait::steps, "steps that were compared");
    fields("steps_blamed", &CausedWait::steps_blamed,
           "of these, the ones in which each other rank waited 5 % of the step for it");
    fields("first_blamed_step", &CausedWait::first_blamed_step, "the first of them; `null` without any")
        .NullUnless(kBlamed);
    fields("last_blamed_step", &CausedWait::last_blamed_step, "the last of them; `null` without any")
        .NullUnless(kBlamed);
  }
};

}  // namespace gpuprobe::analysis
