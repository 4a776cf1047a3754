#include "collector/page/track_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace gpuprobe::page {
namespace {

constexpr size_t kRangeThreads = 2;
constexpr uint32_t kRangeDepth = 4;

using Key = std::pair<bool, uint64_t>;  // whether it is a stream, and where

Key KeyOf(const Place& place) { return {!place.range, place.where}; }

// What a place has, and where its tracks begin.
struct Lane {
  Place place;
  uint64_t compute_ns = 0;
  uint64_t busy_ns = 0;
  std::vector<uint64_t> open;  // ends of the ranges around the next one
  uint32_t depth = 1;          // tracks that it needs
  bool shown = false;
  uint32_t first_track = 0;
};

// How many ranges of its thread are around a slice; 0 on a stream.
uint32_t DepthIn(Lane& lane, const Slice& slice) {
  if (!lane.place.range) return 0;
  while (!lane.open.empty() && lane.open.back() <= slice.start_ns) lane.open.pop_back();
  const auto depth = static_cast<uint32_t>(lane.open.size());
  lane.open.push_back(slice.end_ns);
  lane.depth = std::max(lane.depth, std::min(depth + 1, kRangeDepth));
  return depth;
}

// Gives each lane its tracks.
std::vector<Track> TracksOf(std::map<Key, Lane>& lanes,
                            absl::FunctionRef<std::string(const Place& place, bool several)> name) {
  std::vector<Lane*> order;
  std::set<uint32_t> devices;
  for (auto& [key, lane] : lanes) {
    order.push_back(&lane);
    if (!lane.place.range) devices.insert(lane.place.device());
  }
  std::stable_sort(order.begin(), order.end(), [](const Lane* a, const Lane* b) {
    return std::tuple(!a->place.range, b->compute_ns, b->busy_ns) <
           std::tuple(!b->place.range, a->compute_ns, a->busy_ns);
  });
  std::vector<Track> tracks;
  size_t threads = 0;
  for (Lane* lane : order) {
    if (lane->place.range && ++threads > kRangeThreads) continue;
    lane->shown = true;
    lane->first_track = static_cast<uint32_t>(tracks.size());
    tracks.insert(tracks.end(), lane->depth,
                  {.name = name(lane->place, devices.size() > 1), .ranges = lane->place.range});
  }
  return tracks;
}

}  // namespace

RankSlices LayOut(std::vector<PlacedSlice> slices,
                  absl::FunctionRef<std::string(const Place& place, bool several)> name) {
  // Outer ranges come before inner ones.
  std::sort(slices.begin(), slices.end(), [](const PlacedSlice& a, const PlacedSlice& b) {
    return std::tuple(KeyOf(a.place), a.slice.start_ns, b.slice.end_ns) <
           std::tuple(KeyOf(b.place), b.slice.start_ns, a.slice.end_ns);
  });
  std::map<Key, Lane> lanes;
  for (PlacedSlice& placed : slices) {
    Lane& lane = lanes[KeyOf(placed.place)];
    lane.place = placed.place;
    const uint64_t length_ns = placed.slice.end_ns - placed.slice.start_ns;
    lane.busy_ns += length_ns;
    if (placed.slice.kind == SliceKind::kCompute) lane.compute_ns += length_ns;
    placed.slice.track = DepthIn(lane, placed.slice);
  }
  RankSlices out;
  out.tracks = TracksOf(lanes, name);
  for (const PlacedSlice& placed : slices) {
    const Lane& lane = lanes[KeyOf(placed.place)];
    if (!lane.shown || placed.slice.track >= kRangeDepth) continue;
    out.slices.push_back(placed.slice);
    out.slices.back().track += lane.first_track;
  }
  std::stable_sort(out.slices.begin(), out.slices.end(), [](const Slice& a, const Slice& b) {
    return std::tuple(a.track, a.start_ns) < std::tuple(b.track, b.start_ns);
  });
  return out;
}

}  // namespace gpuprobe::page
