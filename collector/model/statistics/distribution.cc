#include "collector/model/statistics/distribution.h"

#include <algorithm>
#include <cmath>

namespace gpuprobe::model {
namespace {

double ExactQuantile(const std::vector<uint64_t>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  const auto low = static_cast<double>(sorted[below]);
  return low + share * (static_cast<double>(sorted[above]) - low);
}

}  // namespace

double Distribution::BucketMiddle(size_t bucket) {
  if (bucket < kSubBuckets) return static_cast<double>(bucket);
  const int shift = static_cast<int>(bucket >> kSubBits) - 1;
  const uint64_t low = ((bucket & (kSubBuckets - 1)) | kSubBuckets) << shift;
  return static_cast<double>(low) + static_cast<double>((uint64_t{1} << shift) - 1) / 2;
}

void Distribution::AddToHistogram(uint64_t sample) {
  if (!samples_.empty()) MoveSamplesToHistogram();
  const size_t bucket = BucketOf(sample);
  ++buckets_[PlaceOf(bucket)];
}

size_t Distribution::PlaceOf(size_t bucket) {
  if (buckets_.empty()) first_bucket_ = bucket;
  if (bucket < first_bucket_) {
    buckets_.insert(buckets_.begin(), first_bucket_ - bucket, 0);
    first_bucket_ = bucket;
  }
  const size_t place = bucket - first_bucket_;
  if (place >= buckets_.size()) buckets_.resize(place + 1);
  return place;
}

void Distribution::MoveSamplesToHistogram() {
  std::vector<uint64_t> samples;
  samples.swap(samples_);
  for (const uint64_t sample : samples) AddToHistogram(sample);
}

void Distribution::AddCumulative(std::span<const uint64_t> bounds, std::span<uint64_t> counts) const {
  std::vector<size_t> last;  // bucket of each bound
  last.reserve(bounds.size());
  for (const uint64_t bound : bounds) last.push_back(BucketOf(bound));
  std::vector<uint64_t> of_bound(bounds.size());
  const auto add = [&](size_t bucket, uint64_t samples) {
    const auto first = std::lower_bound(last.begin(), last.end(), bucket);
    if (first != last.end()) of_bound[static_cast<size_t>(first - last.begin())] += samples;
  };
  for (const uint64_t sample : samples_) add(BucketOf(sample), 1);
  for (size_t place = 0; place < buckets_.size(); ++place) {
    if (buckets_[place] > 0) add(first_bucket_ + place, buckets_[place]);
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < bounds.size(); ++i) counts[i] += sum += of_bound[i];
}

void Distribution::Merge(const Distribution& other) {
  if (other.count_ == 0) return;
  count_ += other.count_;
  total_ += other.total_;
  squares_ += other.squares_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  if (buckets_.empty() && other.buckets_.empty() && samples_.size() + other.samples_.size() <= exact_limit_) {
    samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end());
    return;
  }
  MoveSamplesToHistogram();
  for (const uint64_t sample : other.samples_) AddToHistogram(sample);
  if (other.buckets_.empty()) return;
  PlaceOf(other.first_bucket_ + other.buckets_.size() - 1);
  const size_t first = PlaceOf(other.first_bucket_);
  for (size_t i = 0; i < other.buckets_.size(); ++i) buckets_[first + i] += other.buckets_[i];
}

double Distribution::HistogramQuantile(double q) const {
  const auto rank = static_cast<uint64_t>(q * static_cast<double>(count_ - 1));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen > rank) {
      return std::clamp(BucketMiddle(first_bucket_ + i), static_cast<double>(min_),
                        static_cast<double>(max_));
    }
  }
  return static_cast<double>(max_);
}

Summary Distribution::Summarize() const {
  Summary s;
  if (count_ == 0) return s;
  s.count = count_;
  s.total = total_;
  s.min = min_;
  s.max = max_;
  const auto n = static_cast<double>(count_);
  s.mean = static_cast<double>(total_) / n;
  if (count_ > 1) {
    // n * sum(x^2) - sum(x)^2 in integers, so that nothing cancels: exact as long as it fits, and clamped
    // when it would not.
    const absl::uint128 square_of_sum = absl::uint128(total_) * total_;
    const absl::uint128 mean_square = square_of_sum / count_;
    const absl::uint128 spread = squares_ > mean_square ? squares_ - mean_square : absl::uint128(0);
    s.std = std::sqrt(static_cast<double>(spread) / (n - 1));
  }
  if (buckets_.empty()) {
    std::vector<uint64_t> sorted = samples_;
    std::sort(sorted.begin(), sorted.end());
    s.p50 = ExactQuantile(sorted, 0.50);
    s.p95 = ExactQuantile(sorted, 0.95);
    s.p99 = ExactQuantile(sorted, 0.99);
  } else {
    s.quantiles_exact = false;
    s.p50 = HistogramQuantile(0.50);
    s.p95 = HistogramQuantile(0.95);
    s.p99 = HistogramQuantile(0.99);
  }
  return s;
}

}  // namespace gpuprobe::model
