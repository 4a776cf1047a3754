#include "collector/model/steady_transfers.h"

#include <utility>

namespace gpuprobe::model {

void SteadyTransfers::Add(const Call& call, std::optional<uint64_t> from_ns) {
  if (from_ns.has_value()) {
    if (!early_.empty()) CountEarly(*from_ns);
    Count(call, *from_ns);
    return;
  }
  if (early_.size() == kMaxEarly) early_.erase(early_.begin(), early_.begin() + kMaxEarly / 2);
  early_.push_back(call);
}

void SteadyTransfers::CountEarly(uint64_t from_ns) {
  for (const Call& call : std::exchange(early_, {})) Count(call, from_ns);
}

void SteadyTransfers::Count(const Call& call, uint64_t from_ns) {
  if (call.end_ns <= from_ns) return;
  ++sums_.calls;
  sums_.transfer_ns += call.transfer_ns;
  sums_.transfer_squares += absl::uint128(call.transfer_ns) * call.transfer_ns;
  sums_.waited_ns += call.waited_ns;
}

}  // namespace gpuprobe::model
