#include "collector/model/steady_transfers.h"

#include <algorithm>
#include <utility>

namespace gpuprobe::model {

void SteadyTransfers::Add(const Call& call, std::optional<uint64_t> from_ns) {
  if (from_ns.has_value()) {
    if (!early_.empty()) CountEarly(*from_ns);
    if (call.end_ns > *from_ns) Count(call, sums_);
    return;
  }
  if (early_.empty() || early_.back().sums.calls >= calls_of_early_) {
    if (early_.size() == kMaxEarly) {
      for (size_t i = 0; i < kMaxEarly / 2; ++i) {
        Early merged = early_[2 * i];
        Merge(early_[2 * i + 1].sums, merged.sums);
        merged.first_end_ns = std::min(merged.first_end_ns, early_[2 * i + 1].first_end_ns);
        early_[i] = merged;
      }
      early_.resize(kMaxEarly / 2);
      calls_of_early_ *= 2;
    }
    early_.push_back({.first_end_ns = call.end_ns, .sums = {}});
  }
  early_.back().first_end_ns = std::min(early_.back().first_end_ns, call.end_ns);
  Count(call, early_.back().sums);
}

void SteadyTransfers::CountEarly(uint64_t from_ns) {
  for (const Early& early : std::exchange(early_, {})) {
    if (early.first_end_ns > from_ns) Merge(early.sums, sums_);
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
