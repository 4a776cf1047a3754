#include "collector/model/steps/lost_operations.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "collector/model/statistics/whole_number.h"

namespace gpuprobe::model {
namespace {

// Least share of a step's operations that must have a place in the usual one.
constexpr double kLeastAligned = 0.8;
// A gap with nothing seen after it has about the usual length.
constexpr double kOpenEndVariation = 0.05;
// Standard deviations that hold 95 of 100 errors.
constexpr double kDeviations = 1.96;

bool Seen(const StepOperation& operation) { return operation.work != WorkClass::kUnseen; }

bool Alike(const StepOperation& seen, const StepOperation& usual) {
  return !Seen(seen) || seen.coarse == usual.coarse;
}

// Pairs of equal operations of two sequences in their order, as many as there are; what was not seen is equal
// to anything. For each operation of the first its place in the second, kNone where it has none; empty: they
// differ by too many.
class Pairing {
 public:
  static constexpr size_t kNone = SIZE_MAX;
  Pairing(std::span<const StepOperation> own, std::span<const StepOperation> usual)
      : own_(own), usual_(usual) {
    const auto by = static_cast<int64_t>(usual.size()) - static_cast<int64_t>(own.size());
    lowest_ = std::min<int64_t>(by, 0) - kDrift;
    width_ = static_cast<size_t>(std::abs(by) + 2 * kDrift + 1);
  }
  bool TooWide() const { return width_ > kMostWidth; }

  std::vector<size_t> Places() {
    // Cost of operations without a partner, by how far the second sequence is ahead of the first.
    std::vector<uint32_t> cost(width_, kNever);
    std::vector<uint32_t> next(width_);
    steps_.assign((own_.size() + 1) * width_, Step::kNothing);
    for (size_t i = 0; i <= own_.size(); ++i) {
      next.assign(width_, kNever);
      for (size_t d = 0; d < width_; ++d) Reach(i, d, cost, next);
      std::swap(cost, next);
    }
    return Trace();
  }

 private:
  // By which two steps may be apart besides their lengths: where steps end among what was lost is known to a
  // few operations only.
  static constexpr int64_t kDrift = 8;
  static constexpr size_t kMostWidth = 64;
  static constexpr uint32_t kNever = UINT32_MAX / 2;
  enum class Step : uint8_t { kNothing, kPair, kOwn, kUsual };

  // Place in the second sequence, before everything that is not paired yet.
  int64_t At(size_t i, size_t d) const { return static_cast<int64_t>(i) + lowest_ + static_cast<int64_t>(d); }
  void Reach(size_t i, size_t d, const std::vector<uint32_t>& before, std::vector<uint32_t>& now) {
    const int64_t j = At(i, d);
    if (j < 0 || j > static_cast<int64_t>(usual_.size())) return;
    Step& step = steps_[i * width_ + d];
    if (i == 0 && j == 0) now[d] = 0;
    const auto take = [&](uint32_t cost, Step by) {
      if (cost >= now[d]) return;
      now[d] = cost;
      step = by;
    };
    // Ties go to the alignment whose missing operations come latest: the step's end may be what was lost.
    if (j > 0 && d > 0) take(now[d - 1] + 1, Step::kUsual);
    if (i > 0 && d + 1 < width_) take(before[d + 1] + 1, Step::kOwn);
    if (i > 0 && j > 0 && Alike(own_[i - 1], usual_[static_cast<size_t>(j - 1)]))
      take(before[d], Step::kPair);
  }
  std::vector<size_t> Trace() const {
    std::vector<size_t> places(own_.size(), kNone);
    size_t i = own_.size();
    auto d = static_cast<size_t>(static_cast<int64_t>(usual_.size()) - static_cast<int64_t>(i) - lowest_);
    while (true) {
      switch (steps_[i * width_ + d]) {
        case Step::kNothing:
          return i == 0 && At(i, d) == 0 ? places : std::vector<size_t>();
        case Step::kPair:
          places[i - 1] = static_cast<size_t>(At(i, d) - 1);
          --i;
          break;
        case Step::kOwn:
          --i;
          ++d;
          break;
        case Step::kUsual:
          --d;
          break;
      }
    }
  }

  std::span<const StepOperation> own_;
  std::span<const StepOperation> usual_;
  int64_t lowest_ = 0;
  size_t width_ = 0;
  std::vector<Step> steps_;
};

// How well a step begins at `place`, where it is not the first: the host's pause, in nanoseconds.
int64_t BeginScore(std::span<const StepOperation> operations, size_t place, uint32_t head) {
  constexpr int64_t kCertain = int64_t{1} << 40;
  if (place >= operations.size()) return 0;
  const StepOperation& at = operations[place];
  if (Seen(at) && head != 0) return at.coarse == head ? kCertain : -kCertain;
  const uint64_t before_ns = operations[place - 1].launch_ns;
  if (at.launch_ns <= before_ns) return 0;
  return static_cast<int64_t>(std::min<uint64_t>(at.launch_ns - before_ns, kCertain / 2));
}

}  // namespace

std::vector<size_t> EndsOfLostSteps(std::span<const StepOperation> operations, size_t usual, uint32_t head,
                                    bool first) {
  constexpr size_t kMostMore = 16;   // operations than usual, in all steps
  constexpr size_t kMostInStep = 3;  // in one
  if (usual == 0) return {};
  const size_t steps = operations.size() / usual;
  const size_t more = operations.size() - steps * usual;
  if (steps < 2 || more > kMostMore) return {};
  // best[s][e]: of s steps that hold e more operations than usual; and how many of them the last step has.
  struct Best {
    int64_t score = INT64_MIN;
    size_t more = 0;
  };
  std::vector<std::vector<Best>> best(steps + 1, std::vector<Best>(more + 1));
  best[0][0].score = 0;
  for (size_t s = 1; s <= steps; ++s) {
    for (size_t e = 0; e <= more; ++e) {
      for (size_t own = 0; own <= (s == 1 && first ? e : std::min(e, kMostInStep)); ++own) {
        const int64_t before = best[s - 1][e - own].score;
        if (before == INT64_MIN) continue;
        const int64_t score = before + BeginScore(operations, s * usual + e, head);
        if (score > best[s][e].score) best[s][e] = {.score = score, .more = own};
      }
    }
  }
  if (best[steps][more].score == INT64_MIN) return {};
  std::vector<size_t> ends(steps);
  size_t e = more;
  for (size_t s = steps; s > 0; --s) {
    ends[s - 1] = s * usual + e;
    e -= best[s][e].more;
  }
  return ends;
}

// An instant of the usual timeline, and when that was.
struct UsualStep::Point {
  double usual_ns = 0;
  double seen_ns = 0;
};

// From the usual timeline to the real one: straight between the points that were seen, at the usual pace
// beyond.
class UsualStep::Timeline {
 public:
  explicit Timeline(std::vector<Point> points) : points_(std::move(points)) {
    std::stable_sort(points_.begin(), points_.end(),
                     [](const Point& a, const Point& b) { return a.usual_ns < b.usual_ns; });
    // Streams run apart from each other by a little: what would go back in time says nothing.
    size_t kept = 0;
    for (const Point& point : points_) {
      if (kept == 0 || point.seen_ns >= points_[kept - 1].seen_ns) points_[kept++] = point;
    }
    points_.resize(kept);
  }
  bool empty() const { return points_.empty(); }
  double last_ns() const { return points_.back().usual_ns; }
  double first_real_ns() const { return points_.front().seen_ns; }

  struct Place {
    double real_ns = 0;
    double from_seen_ns = 0;  // distance to the nearest point that was seen
    double stretch_ns = 0;    // by which the gap around it is longer or shorter than usual
    bool before = false;      // nothing was seen before it,
    bool after = false;       // or after it
  };
  Place At(double usual_ns) const {
    const auto after =
        std::lower_bound(points_.begin(), points_.end(), usual_ns,
                         [](const Point& point, double at_ns) { return point.usual_ns < at_ns; });
    if (after == points_.end() || after == points_.begin()) {
      const Point& nearest = after == points_.end() ? points_.back() : *after;
      return {.real_ns = nearest.seen_ns + usual_ns - nearest.usual_ns,
              .from_seen_ns = std::abs(usual_ns - nearest.usual_ns),
              .stretch_ns = 0,
              .before = usual_ns<nearest.usual_ns, .after = usual_ns> nearest.usual_ns};
    }
    const Point& before = *std::prev(after);
    const double usual_gap_ns = after->usual_ns - before.usual_ns;
    const double real_gap_ns = after->seen_ns - before.seen_ns;
    const double share = (usual_ns - before.usual_ns) / usual_gap_ns;
    const double nearest_ns = std::min(usual_ns - before.usual_ns, after->usual_ns - usual_ns);
    return {.real_ns = before.seen_ns + share * real_gap_ns,
            .from_seen_ns = nearest_ns,
            .stretch_ns = nearest_ns > 0 ? std::abs(real_gap_ns - usual_gap_ns) : 0};
  }

 private:
  std::vector<Point> points_;
};

void UsualStep::Learn(std::span<const StepOperation> own, uint64_t start_ns, uint64_t end_ns) {
  operations_.assign(own.begin(), own.end());
  for (StepOperation& operation : operations_) {
    operation.start_ns = std::max(operation.start_ns, start_ns) - start_ns;
    operation.end_ns = std::max(operation.end_ns, start_ns) - start_ns;
  }
  length_ns_ = end_ns - start_ns;
  parts_.clear();
}

void UsualStep::LearnPart(std::span<const StepOperation> own, uint64_t start_ns, uint64_t end_ns) {
  bool another = parts_.size() != own.size();
  for (size_t i = 0; i < own.size() && !another; ++i) another = Seen(parts_[i]) && !Alike(own[i], parts_[i]);
  if (another) {
    parts_.assign(own.begin(), own.end());
    parts_length_ns_ = end_ns - start_ns;
    for (StepOperation& operation : parts_) {
      operation.start_ns = std::max(operation.start_ns, start_ns) - start_ns;
      operation.end_ns = std::max(operation.end_ns, start_ns) - start_ns;
    }
    return;
  }
  const auto since_start = [start_ns](uint64_t time_ns) {
    return static_cast<double>(std::max(time_ns, start_ns) - start_ns);
  };
  std::vector<Point> points{{0, 0}, {since_start(end_ns), static_cast<double>(parts_length_ns_)}};
  for (size_t i = 0; i < own.size(); ++i) {
    if (!Seen(own[i]) || !Seen(parts_[i])) continue;
    points.push_back({since_start(own[i].start_ns), static_cast<double>(parts_[i].start_ns)});
    points.push_back({since_start(own[i].end_ns), static_cast<double>(parts_[i].end_ns)});
  }
  const Timeline timeline(std::move(points));
  bool whole = true;
  for (size_t i = 0; i < own.size(); ++i) {
    if (Seen(parts_[i])) continue;
    whole = whole && Seen(own[i]);
    if (!Seen(own[i])) continue;
    parts_[i] = own[i];
    parts_[i].start_ns = WholeNumber(std::round(timeline.At(since_start(own[i].start_ns)).real_ns));
    parts_[i].end_ns = std::max(WholeNumber(std::round(timeline.At(since_start(own[i].end_ns)).real_ns)),
                                parts_[i].start_ns);
    parts_length_ns_ = std::max(parts_length_ns_, parts_[i].end_ns);
  }
  if (!whole) return;
  operations_ = std::exchange(parts_, {});
  length_ns_ = parts_length_ns_;
}

std::vector<size_t> UsualStep::Align(std::span<const StepOperation> own) const {
  std::vector<size_t> places(own.size(), kNone);
  const size_t common = std::min(own.size(), operations_.size());
  size_t front = 0;
  while (front < common && Alike(own[front], operations_[front])) {
    places[front] = front;
    ++front;
  }
  if (front == own.size() && front == operations_.size()) return places;
  if (Pairing pairing(own, operations_); !pairing.TooWide()) {
    places = pairing.Places();
  } else {
    // From both ends up to the first difference: what is in the middle is more, or less, than usual.
    for (size_t back = 0; back < common - front; ++back) {
      const size_t i = own.size() - 1 - back;
      const size_t usual = operations_.size() - 1 - back;
      if (!Alike(own[i], operations_[usual])) break;
      places[i] = usual;
    }
  }
  const auto aligned = places.size() - static_cast<size_t>(std::count(places.begin(), places.end(), kNone));
  const auto longer = static_cast<double>(std::max(own.size(), operations_.size()));
  if (static_cast<double>(aligned) < kLeastAligned * longer) return {};
  return places;
}

uint64_t UsualStep::MissingAtEnd(const std::vector<size_t>& places) const {
  const auto last = std::find_if(places.rbegin(), places.rend(), [](size_t place) { return place != kNone; });
  if (last == places.rend() || *last + 1 == operations_.size()) return 0;
  uint64_t end_ns = 0;
  for (size_t i = 0; i <= *last; ++i) end_ns = std::max(end_ns, operations_[i].end_ns);
  return length_ns_ - std::min(end_ns, length_ns_);
}

void UsualStep::Restore(std::span<StepOperation> operations, std::span<RestoredStep> steps,
                        uint64_t known_until_ns, double variation, bool all) const {
  std::vector<std::vector<size_t>> places(steps.size());
  for (size_t s = 0; s < steps.size(); ++s) {
    places[s] = Align(operations.subspan(steps[s].begin, steps[s].end - steps[s].begin));
    steps[s].fits = !places[s].empty();
    if (steps[s].fits || steps[s].left == 0) continue;
    steps[s].left = 0;  // and never will be
    steps[s].end_error_ns = UINT64_MAX;
  }
  for (size_t first = 0; first < steps.size();) {
    size_t end = first;
    while (end < steps.size() && steps[end].fits && (end == first || steps[end].begin == steps[end - 1].end))
      ++end;
    if (end == first) {
      ++first;
      continue;
    }
    const auto run = steps.subspan(first, end - first);
    RestoreRun(operations, run,
               {places.begin() + static_cast<ptrdiff_t>(first), places.begin() + static_cast<ptrdiff_t>(end)},
               first == 0 && run.front().begin == 0 ? known_until_ns : 0, variation, all);
    first = end;
  }
}

void UsualStep::RestoreRun(std::span<StepOperation> operations, std::span<RestoredStep> run,
                           const std::vector<std::vector<size_t>>& places, uint64_t known_until_ns,
                           double variation, bool all) const {
  // Doubles hold whole nanoseconds for 104 days: times are kept from the first one on.
  std::optional<uint64_t> origin_ns;
  if (known_until_ns != 0) origin_ns = known_until_ns;
  const auto length_ns = static_cast<double>(length_ns_);
  std::vector<Point> points;
  const auto real = [&](uint64_t time_ns) {
    if (!origin_ns.has_value()) origin_ns = time_ns;
    return static_cast<double>(static_cast<int64_t>(time_ns - *origin_ns));
  };
  if (known_until_ns != 0) points.push_back({0, 0});
  for (size_t s = 0; s < run.size(); ++s) {
    for (size_t i = 0; i < places[s].size(); ++i) {
      const StepOperation& operation = operations[run[s].begin + i];
      if (!Seen(operation) || places[s][i] == kNone) continue;
      const StepOperation& usual = operations_[places[s][i]];
      const double at_ns = static_cast<double>(s) * length_ns;
      points.push_back({at_ns + static_cast<double>(usual.start_ns), real(operation.start_ns)});
      points.push_back({at_ns + static_cast<double>(usual.end_ns), real(operation.end_ns)});
    }
  }
  const Timeline timeline(std::move(points));
  if (timeline.empty()) return;
  const auto time = [&](double real_ns) {
    const double epoch_ns = -static_cast<double>(*origin_ns);
    return *origin_ns + static_cast<uint64_t>(SignedWholeNumber(std::round(std::max(real_ns, epoch_ns))));
  };
  for (size_t s = 0; s < run.size(); ++s) {
    RestoredStep& step = run[s];
    const double step_ns = static_cast<double>(s) * length_ns;
    const uint32_t lost = std::exchange(step.left, 0);
    for (size_t i = 0; i < places[s].size() && lost > 0; ++i) {
      StepOperation& operation = operations[step.begin + i];
      if (Seen(operation)) continue;
      // Operations that the usual step lacks take no time, and come last.
      const bool placed = places[s][i] != kNone;
      const double start_ns =
          step_ns + (placed ? static_cast<double>(operations_[places[s][i]].start_ns) : length_ns);
      const double end_ns =
          step_ns + (placed ? static_cast<double>(operations_[places[s][i]].end_ns) : length_ns);
      if (!all && end_ns > timeline.last_ns()) {
        ++step.left;
        continue;
      }
      operation.start_ns = std::max(time(timeline.At(start_ns).real_ns), operation.launch_ns);
      operation.end_ns = std::max(time(timeline.At(end_ns).real_ns), operation.start_ns);
    }
    if (lost == 0) continue;
    const Timeline::Place end = timeline.At(step_ns + length_ns);
    const double spread = end.after ? std::max(variation, kOpenEndVariation) : variation;
    double error_ns = end.stretch_ns + kDeviations * spread * end.from_seen_ns;
    if (end.before) {
      // The first steps may be like no other: it was after their launches.
      const double launched_ns = real(operations[step.end - 1].launch_ns);
      error_ns = std::max(timeline.first_real_ns() - launched_ns, end.from_seen_ns);
    }
    step.end_error_ns = WholeNumber(std::round(error_ns)) + MissingAtEnd(places[s]);
  }
  // Only now, since a step is restored in parts: whatever is no longer unseen counts as seen.
  for (size_t s = 0; s < run.size(); ++s) {
    if (run[s].left > 0) continue;
    for (size_t i = 0; i < places[s].size(); ++i) {
      StepOperation& operation = operations[run[s].begin + i];
      if (Seen(operation) || places[s][i] == kNone) continue;
      const StepOperation& usual = operations_[places[s][i]];
      operation.token = usual.token;
      operation.coarse = usual.coarse;
      operation.work = usual.work;
      operation.roles |= usual.roles;
    }
  }
}

}  // namespace gpuprobe::model
