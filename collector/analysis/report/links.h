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
    uint64_t size_bytes = 0;  // S as nccl-tests counts it
    double bus_bytes = 0;
    uint64_t calls = 0;
    double measured_ns = 0;  // median of the transfers
    double predicted_ns = 0;
    std::optional<double> tree_ns;  // what a tree would take, by the same link; of AllReduce
  };
  std::string op;
  std::string comm;
  int comm_ranks = 0;
  double alpha_ns = 0;
  double beta_gbytes_per_s = 0;
  // Standard errors, from what the sizes stray from the line.
  double alpha_error_ns = 0;
  double beta_error_gbytes_per_s = 0;
  double r2 = 0;
  double mean_relative_error = 0;
  double worst_relative_error = 0;
  // For a ring: alpha for each of its steps.
  std::optional<double> hop_alpha_ns;
  std::optional<double> hop_alpha_error_ns;
  std::vector<Size> sizes;  // ascending
};

}  // namespace gpuprobe::analysis
