// The model of a link, T(n) = alpha + n / beta, fitted to the job's own transfers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

// T(n) = alpha + n / beta, fitted over the sizes of one operation on one communicator. n is what the link
// moves (bus bytes, bus_bandwidth.h), so that beta is the link's bandwidth and comparable between operations.
struct LinkModel {
  struct Size {
    uint64_t size_bytes = 0;
    double bus_bytes = 0;
    uint64_t calls = 0;
    double measured_ns = 0;
    double predicted_ns = 0;
    std::optional<double> tree_ns;

    static constexpr void Declare(auto& fields) {
      fields("size_bytes", &Size::size_bytes, "S as nccl-tests counts it ([below](#collectives))");
      fields("calls", &Size::calls, "transfers of this size");
      fields("measured_ns", &Size::measured_ns, "their median");
      fields("predicted_ns", &Size::predicted_ns, "time of a ring by the fit");
      fields("tree_ns", &Size::tree_ns,
             "time of a tree over the same link; `null` for operations other than AllReduce");
      fields.Unwritten(&Size::bus_bytes);
    }
  };
  std::string op;
  std::string comm;
  int comm_ranks = 0;
  double alpha_ns = 0;
  double beta_gbytes_per_s = 0;
  double alpha_error_ns = 0;
  double beta_error_gbytes_per_s = 0;
  double r2 = 0;
  double mean_relative_error = 0;
  double worst_relative_error = 0;
  std::optional<double> hop_alpha_ns;
  std::optional<double> hop_alpha_error_ns;
  std::optional<double> half_bandwidth_bytes;
  bool latency_seen = false;
  bool bandwidth_seen = false;
  std::vector<Size> sizes;  // ascending

  static constexpr void Declare(auto& fields) {
    fields("op", &LinkModel::op, "operation of the transfers");
    fields("comm", &LinkModel::comm, "their communicator");
    fields("comm_ranks", &LinkModel::comm_ranks, "its ranks");
    fields("alpha_ns", &LinkModel::alpha_ns, "latency");
    fields("alpha_error_ns", &LinkModel::alpha_error_ns,
           "standard error of `alpha_ns`, from how far the sizes are from the line (with three sizes it is "
           "uncertain itself)");
    fields("beta_gbytes_per_s", &LinkModel::beta_gbytes_per_s, "bandwidth");
    fields("beta_error_gbytes_per_s", &LinkModel::beta_error_gbytes_per_s,
           "standard error of `beta_gbytes_per_s`");
    fields("r2", &LinkModel::r2, "quality of the fit: coefficient of determination");
    fields("mean_relative_error", &LinkModel::mean_relative_error,
           "the same: mean over the sizes of how far the fit is off");
    fields("worst_relative_error", &LinkModel::worst_relative_error,
           "the same, of the size where it is off most");
    fields("hop_alpha_ns", &LinkModel::hop_alpha_ns,
           "`alpha_ns` for each hop of a ring; `null` if the operation is not run as a ring");
    fields("hop_alpha_error_ns", &LinkModel::hop_alpha_error_ns, "standard error of `hop_alpha_ns`");
    fields("half_bandwidth_bytes", &LinkModel::half_bandwidth_bytes,
           "a message of this size spends as much time on latency as on its bytes; `null`: the fit has no "
           "latency");
    fields("latency_seen", &LinkModel::latency_seen,
           "whether a size is at most `half_bandwidth_bytes`; else the latency is extrapolated");
    fields("bandwidth_seen", &LinkModel::bandwidth_seen,
           "whether a size is at least `half_bandwidth_bytes`; else the bandwidth is extrapolated");
    fields("sizes", &LinkModel::sizes, "the sizes that it was fitted to, ascending");
  }
};

}  // namespace gpuprobe::analysis
