#include "collector/model/calls/steady_transfers.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::model {

void SteadyTransfers::Add(const Call& call, const SteadyRuns& runs) {
  if (const auto from_ns = runs.from_ns(); from_ns.has_value()) {
    if (!pending_.empty() || !by_run_.empty()) CountEarly(runs);
    if (call.end_ns > *from_ns) Count(call, sums_);
    return;
  }
  pending_.push_back(call);
  if (pending_.size() < next_sort_) return;
  Sort(runs, false);
  if (pending_.size() >= kMaxPending) Sort(runs, true);
  // Not with every call: most are of steps that are still open.
  next_sort_ = std::min(2 * pending_.size() + 16, kMaxPending);
}

void SteadyTransfers::Sort(const SteadyRuns& runs, bool all) {
  std::erase_if(pending_, [&](const Call& call) {
    if (!all && call.end_ns > runs.until_ns()) return false;
    const size_t run = runs.RunAt(call.end_ns);
    if (by_run_.size() <= run) by_run_.resize(run + 1);
    Count(call, by_run_[run]);
    return true;
  });
}

void SteadyTransfers::CountEarly(const SteadyRuns& runs) {
  for (const Call& call : std::exchange(pending_, {})) {
    if (call.end_ns > runs.from_ns().value_or(0)) Count(call, sums_);
  }
  const std::vector<Sums> by_run = std::exchange(by_run_, {});
  for (size_t run = 0; run < by_run.size(); ++run) {
    if (runs.IsSteady(run)) Merge(by_run[run], sums_);
  }
}

void SteadyTransfers::Count(const Call& call, Sums& sums) {
  ++sums.calls;
  sums.transfer_ns += call.transfer_ns;
  sums.transfer_squares += absl::uint128(call.transfer_ns) * call.transfer_ns;
  sums.waited_ns += call.waited_ns;
}

void SteadyTransfers::Merge(const Sums& from, Sums& into) {
  into.calls += from.calls;
  into.transfer_ns += from.transfer_ns;
  into.transfer_squares += from.transfer_squares;
  into.waited_ns += from.waited_ns;
}

}  // namespace gpuprobe::model
