// How much of the devices' peak the model's arithmetic used, and the arithmetic as the user states it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpuprobe::analysis {

// The arithmetic of a step, as the user states it; for utilisation.
struct ModelWork {
  double flops_per_step = 0;   // 0: not given
  double parameters = 0;       // of a transformer, with tokens_per_step: 6 x parameters x tokens
  double tokens_per_step = 0;  // of the whole job
  std::optional<bool> recompute = std::nullopt;  // activations are recomputed: the forward pass runs twice
  std::string type = "bf16";
  double peak_tflops = 0;  // of one device; 0: from the table
};

struct UtilisationReport {
  bool asked = false;  // any work was given
  double flops_per_step = 0;
  std::string formula;
  std::string type;
  uint32_t devices = 0;
  std::optional<double> peak_flops;  // of one device
  std::string peak_source;
  std::optional<double> mfu;
  std::optional<double> hfu;
  std::string missing;  // why there is no mfu; empty if there is
};

}  // namespace gpuprobe::analysis
