#include "collector/model/steps/host_places.h"

#include <algorithm>

namespace gpuprobe::model {

void HostPlaces::Add(uint64_t step, std::span<const HostShare> shares) {
  for (const HostShare& share : shares) {
    Total& total = places_[{share.cause, share.place}];
    total.time.Add(share.time);
    ++total.steps;
    if (share.time.ns == 0) continue;
    const auto place = std::partition_point(total.longest.begin(), total.longest.end(),
                                            [&](const Step& kept) { return kept.time.ns >= share.time.ns; });
    if (place == total.longest.end() && total.longest.size() == kLongest) continue;
    total.longest.insert(place, {.index = step, .time = share.time});
    if (total.longest.size() > kLongest) total.longest.pop_back();
  }
  if (places_.size() > kMost) Shrink();
}

void HostPlaces::Shrink() {
  std::vector<uint64_t> ns;
  ns.reserve(places_.size());
  for (const auto& [key, total] : places_) ns.push_back(total.time.ns);
  const auto middle = ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2);
  std::nth_element(ns.begin(), middle, ns.end());
  size_t left = places_.size() - kMost / 2;  // of equal ones, as many as must go
  for (const uint64_t least : {*middle, *middle + 1}) {
    for (auto it = places_.begin(); it != places_.end() && left > 0;) {
      if (it->second.time.ns >= least) {
        ++it;
        continue;
      }
      other_[static_cast<size_t>(it->first.first)].Add(it->second.time);
      it = places_.erase(it);
      --left;
    }
  }
}

}  // namespace gpuprobe::model
