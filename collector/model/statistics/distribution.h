// Statistics of one series of durations, in bounded memory: exact while there are few samples, a log-scaled
// histogram beyond.
//
// Count, total, mean, standard deviation, minimum and maximum are always exact; quantiles are exact (linear
// interpolation between order statistics, as numpy does) up to `exact_limit` samples and within
// kHistogramError of the value beyond.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/numeric/int128.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

// mean, std and quantiles in the unit of the samples (nanoseconds everywhere in this program). `std` is the
// sample standard deviation (n - 1), 0 for a single sample. All zero when count is 0.
struct Summary {
  uint64_t count = 0;
  uint64_t total = 0;
  double mean = 0;
  double std = 0;
  uint64_t min = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  uint64_t max = 0;
  bool quantiles_exact = true;
};

class Distribution {
 public:
  static constexpr size_t kDefaultExactLimit = 4096;
  // Each octave has 128 buckets and a quantile is given as its bucket's middle: off by at most half a bucket,
  // 1/256 of the value.
  static constexpr double kHistogramError = 1.0 / 256;

  explicit Distribution(size_t exact_limit = kDefaultExactLimit) : exact_limit_(exact_limit) {}

  void Add(uint64_t sample) {
    ++count_;
    total_ += sample;
    squares_ += absl::uint128(sample) * sample;
    if (sample < min_) min_ = sample;
    if (sample > max_) max_ = sample;
    if (buckets_.empty() && samples_.size() < exact_limit_) {
      samples_.push_back(sample);
      return;
    }
    const size_t place = BucketOf(sample) - first_bucket_;
    if (place < buckets_.size()) {
      ++buckets_[place];
    } else {
      AddToHistogram(sample);
    }
  }
  void Merge(const Distribution& other);

  uint64_t count() const { return count_; }
  uint64_t total() const { return total_; }
  Summary Summarize() const;
  // Adds to counts[i] the samples that are at most bounds[i], to within a bucket: a count never falls as
  // samples are added, as Prometheus's histograms need. REQUIRES: bounds ascend, and counts has as many.
  void AddCumulative(std::span<const uint64_t> bounds, std::span<uint64_t> counts) const;

 private:
  static constexpr int kSubBits = 7;
  static constexpr uint64_t kSubBuckets = uint64_t{1} << kSubBits;

  // Values below 128 have a bucket each; above, 128 buckets an octave.
  static size_t BucketOf(uint64_t value) {
    if (value < kSubBuckets) return value;
    const int shift = static_cast<int>(std::bit_width(value)) - 1 - kSubBits;
    return (static_cast<size_t>(shift) << kSubBits) + (value >> shift);
  }
  static double BucketMiddle(size_t bucket);
  // Also where the first bucket is not there yet.
  void AddToHistogram(uint64_t sample);
  // Makes room for a bucket; returns its place.
  size_t PlaceOf(size_t bucket);
  void MoveSamplesToHistogram();
  double HistogramQuantile(double q) const;

  size_t exact_limit_;
  uint64_t count_ = 0;
  uint64_t total_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  absl::uint128 squares_ = 0;
  std::vector<uint64_t> samples_;  // while exact
  std::vector<uint64_t> buckets_;  // afterwards; from the smallest bucket that is needed to the largest
  size_t first_bucket_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    constexpr size_t kMaxBuckets = size_t{64} << 7;
    // Rebuilt: the owner's.
    archive.Members(this, Rebuilt(exact_limit_), count_, total_, min_, max_, squares_, samples_, buckets_,
                    first_bucket_);
    archive.Require(buckets_.size() <= kMaxBuckets && first_bucket_ <= kMaxBuckets &&
                    (count_ == 0 || min_ <= max_));
    archive.Require(buckets_.empty() ? samples_.size() == count_ : samples_.empty());
  }
};

}  // namespace gpuprobe::model
