#include "collector/analysis/communication/bucket_advice.h"

#include <algorithm>

#include "collector/analysis/communication/link_model.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// As people write them into bucket_cap_mb. DDP's own is 25, and with it ties are decided.
constexpr uint64_t kSizes[] = {25 * kMiB, 50 * kMiB, 10 * kMiB, 100 * kMiB, 5 * kMiB, 200 * kMiB, 2 * kMiB};
constexpr uint64_t kUsual = 25 * kMiB;
constexpr uint64_t kFirstBucket = kMiB;
constexpr double kTie = 0.01;                    // of backward: what is closer is the same
constexpr uint64_t kBandwidthAlone = 64 * kMiB;  // in a message this large, latency is negligible

const LinkModel* ModelOf(const Buckets& buckets, const std::vector<LinkModel>& models) {
  const auto found = std::find_if(models.begin(), models.end(), [&](const LinkModel& m) {
    return m.op == buckets.op && m.comm == buckets.comm;
  });
  return found == models.end() ? nullptr : &*found;
}

// Two sizes make a line as well, though not one that can be judged: here it is asked for no more than what is
// gained.
std::optional<AlphaBeta> FitOf(const Buckets& buckets) {
  std::vector<TransferPoint> points;
  for (const Buckets::Size& size : buckets.sizes) {
    if (size.transfer_ns > 0)
      points.push_back({static_cast<double>(size.size_bytes), size.transfer_ns, size.calls_per_step});
  }
  if (points.size() < 2 || points.front().bus_bytes < 2 * points.back().bus_bytes) return std::nullopt;
  const AlphaBeta fit = FitAlphaBeta(points);
  if (fit.alpha_ns <= 0 || fit.ns_per_byte <= 0) return std::nullopt;
  return fit;
}

}  // namespace

double ExposedOfBuckets(const GradientReduction& reduction, uint64_t first_bytes, uint64_t bucket_bytes) {
  double filled = 0;
  double done_ns = 0;
  for (auto size = static_cast<double>(first_bytes); filled < reduction.bytes;
       size = static_cast<double>(bucket_bytes)) {
    const double bytes = std::min(size, reduction.bytes - filled);
    filled += bytes;
    const double ready_ns = reduction.backward_ns * filled / reduction.bytes;
    done_ns = std::max(done_ns, ready_ns) + reduction.alpha_ns + bytes * reduction.ns_per_byte;
  }
  return std::max(done_ns - reduction.backward_ns, 0.0);
}

std::optional<BucketAdvice> AdviseBuckets(const Buckets& buckets, const std::vector<LinkModel>& models,
                                          double backward_ns) {
  if (nccl::OperationOf(buckets.op) != nccl::Operation::kAllReduce || backward_ns <= 0 ||
      buckets.sizes.empty())
    return std::nullopt;
  GradientReduction reduction{.bytes = buckets.bytes_per_step, .backward_ns = backward_ns};
  const LinkModel* model = ModelOf(buckets, models);
  bool fitted = model != nullptr;
  const Buckets::Size& largest = buckets.sizes.front();
  if (model != nullptr) {
    const LinkModel::Size& size = model->sizes.back();
    reduction.alpha_ns = std::max(model->alpha_ns, 0.0);
    reduction.ns_per_byte = size.bus_bytes / static_cast<double>(size.size_bytes) / model->beta_gbytes_per_s;
  } else if (const std::optional<AlphaBeta> fit = FitOf(buckets); fit.has_value()) {
    reduction.alpha_ns = fit->alpha_ns;
    reduction.ns_per_byte = fit->ns_per_byte;
    fitted = true;
  } else if (largest.size_bytes >= kBandwidthAlone) {
    reduction.ns_per_byte = largest.transfer_ns / static_cast<double>(largest.size_bytes);
  } else {
    return std::nullopt;
  }
  std::optional<BucketAdvice> best;
  for (const uint64_t size : kSizes) {
    if (!fitted && size < kUsual) continue;
    const double exposed_ns = ExposedOfBuckets(reduction, kFirstBucket, size);
    if (best.has_value() && exposed_ns > best->exposed_ns - kTie * backward_ns) continue;
    best = BucketAdvice{.bucket_bytes = size, .exposed_ns = exposed_ns, .fitted = fitted};
  }
  return best;
}

}  // namespace gpuprobe::analysis
