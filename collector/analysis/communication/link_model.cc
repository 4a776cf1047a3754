#include "collector/analysis/communication/link_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string_view>
#include <tuple>

#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/median.h"
#include "collector/analysis/names.h"
#include "collector/model/statistics/whole_number.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

constexpr double kHuber = 1.345;  // 95 % as efficient as least squares where nothing strays
constexpr int kRounds = 12;

// Steps of a ring, each of which takes alpha; 0: not a ring's operation.
int RingSteps(std::string_view op, int ranks) { return nccl::FactsOf(op).ring_rounds * (ranks - 1); }

void Judge(LinkModel& model) {
  double mean = 0;
  for (const LinkModel::Size& s : model.sizes)
    mean += s.measured_ns / static_cast<double>(model.sizes.size());
  double residual = 0;
  double spread = 0;
  double errors = 0;
  for (const LinkModel::Size& s : model.sizes) {
    residual += (s.measured_ns - s.predicted_ns) * (s.measured_ns - s.predicted_ns);
    spread += (s.measured_ns - mean) * (s.measured_ns - mean);
    const double error = std::abs(s.predicted_ns - s.measured_ns) / s.measured_ns;
    errors += error;
    model.worst_relative_error = std::max(model.worst_relative_error, error);
  }
  model.r2 = spread > 0 ? 1 - residual / spread : 0;
  model.mean_relative_error = errors / static_cast<double>(model.sizes.size());
}

// Which part of the line the sizes show.
void SetSeen(LinkModel& model) {
  const LinkModel::Size& largest = model.sizes.back();
  const double bus_factor = largest.bus_bytes / static_cast<double>(largest.size_bytes);
  if (model.alpha_ns <= 0) {
    model.bandwidth_seen = true;
    return;
  }
  const double half = model.alpha_ns * model.beta_gbytes_per_s / bus_factor;
  model.half_bandwidth_bytes = half;
  model.latency_seen = static_cast<double>(model.sizes.front().size_bytes) <= half;
  model.bandwidth_seen = static_cast<double>(largest.size_bytes) >= half;
}

}  // namespace

AlphaBeta FitAlphaBeta(std::span<const TransferPoint> points) {
  std::vector<double> robust(points.size(), 1);
  AlphaBeta fit;
  for (int round = 0; round < kRounds; ++round) {
    double w = 0;
    double wx = 0;
    double wy = 0;
    double wxx = 0;
    double wxy = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const TransferPoint& p = points[i];
      const double weight = robust[i] * std::sqrt(p.calls) / (p.time_ns * p.time_ns);
      w += weight;
      wx += weight * p.bus_bytes;
      wy += weight * p.time_ns;
      wxx += weight * p.bus_bytes * p.bus_bytes;
      wxy += weight * p.bus_bytes * p.time_ns;
    }
    const double determinant = w * wxx - wx * wx;
    if (determinant <= 0) return fit;
    fit.ns_per_byte = (w * wxy - wx * wy) / determinant;
    fit.alpha_ns = (wy - fit.ns_per_byte * wx) / w;
    double squares = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const TransferPoint& p = points[i];
      const double off_ns = p.time_ns - fit.alpha_ns - fit.ns_per_byte * p.bus_bytes;
      squares += robust[i] * std::sqrt(p.calls) / (p.time_ns * p.time_ns) * off_ns * off_ns;
    }
    const double variance = points.size() > 2 ? squares / static_cast<double>(points.size() - 2) : 0;
    fit.alpha_error_ns = std::sqrt(variance * wxx / determinant);
    fit.ns_per_byte_error = std::sqrt(variance * w / determinant);
    std::vector<double> errors;
    for (const TransferPoint& p : points)
      errors.push_back(std::abs(p.time_ns - fit.alpha_ns - fit.ns_per_byte * p.bus_bytes) / p.time_ns);
    const double scale = std::max(kMadToSigma * UpperMedian(errors), 1e-6);
    for (size_t i = 0; i < points.size(); ++i)
      robust[i] = errors[i] <= kHuber * scale ? 1 : kHuber * scale / errors[i];
  }
  return fit;
}

std::vector<LinkModel> LinkModelsOf(const model::JobModel& job) {
  std::map<std::tuple<uint64_t, std::string>, LinkModel> models;
  for (const auto& transfers : job.comparison().transfers()) {
    // A plan of several operations has a kernel of its own kind.
    if (transfers.bytes_of_op.size() != 1 || transfers.ranks < 2 || transfers.time_ns.count() == 0) continue;
    const auto& [op, bytes] = *transfers.bytes_of_op.begin();
    const MovedBytes moved = MovedBytesOf(op, bytes, transfers.ranks);
    LinkModel& model = models[{transfers.hash, op}];
    model.op = op;
    model.comm = CommName(transfers.hash);
    model.comm_ranks = transfers.ranks;
    const model::Summary times = transfers.time_ns.Summarize();
    if (times.p50 <= 0 || moved.bus <= 0) continue;
    model.sizes.push_back({.size_bytes = model::WholeNumber(moved.algorithm),
                           .bus_bytes = moved.bus,
                           .calls = times.count,
                           .measured_ns = times.p50,
                           .predicted_ns = 0,
                           .tree_ns = std::nullopt});
  }
  std::vector<LinkModel> out;
  for (auto& [key, model] : models) {
    std::sort(model.sizes.begin(), model.sizes.end(),
              [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
    std::vector<TransferPoint> points;
    size_t distinct = 0;
    for (size_t i = 0; i < model.sizes.size(); ++i) {
      const LinkModel::Size& s = model.sizes[i];
      points.push_back({s.bus_bytes, s.measured_ns, static_cast<double>(s.calls)});
      distinct += i == 0 || s.size_bytes != model.sizes[i - 1].size_bytes ? 1 : 0;
    }
    if (distinct < kLeastSizesFitted) continue;
    const AlphaBeta fit = FitAlphaBeta(points);
    if (fit.ns_per_byte <= 0) continue;  // time does not grow with size: no line to speak of
    model.alpha_ns = fit.alpha_ns;
    model.beta_gbytes_per_s = 1 / fit.ns_per_byte;
    model.alpha_error_ns = fit.alpha_error_ns;
    model.beta_error_gbytes_per_s = fit.ns_per_byte_error / (fit.ns_per_byte * fit.ns_per_byte);
    const int ranks = model.comm_ranks;
    const int steps = RingSteps(model.op, ranks);
    if (steps > 0) {
      model.hop_alpha_ns = fit.alpha_ns / steps;
      model.hop_alpha_error_ns = fit.alpha_error_ns / steps;
    }
    for (LinkModel::Size& s : model.sizes) {
      s.predicted_ns = fit.alpha_ns + fit.ns_per_byte * s.bus_bytes;
      if (nccl::OperationOf(model.op) != nccl::Operation::kAllReduce || !model.hop_alpha_ns.has_value())
        continue;
      const auto levels =
          static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));  // ceil(log2 ranks)
      s.tree_ns =
          2.0 * levels * *model.hop_alpha_ns + 2 * static_cast<double>(s.size_bytes) * fit.ns_per_byte;
    }
    Judge(model);
    SetSeen(model);
    out.push_back(std::move(model));
  }
  const auto calls = [](const LinkModel& m) {
    uint64_t sum = 0;
    for (const auto& s : m.sizes) sum += s.calls;
    return sum;
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const LinkModel& a, const LinkModel& b) { return calls(a) > calls(b); });
  return out;
}

}  // namespace gpuprobe::analysis
