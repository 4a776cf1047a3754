// How much of the devices' peak the model's arithmetic used, and the arithmetic as the user states it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gpuprobe::analysis {

enum class NumberFormat { kBf16, kFp16, kTf32, kFp32, kFp8 };

// The arithmetic of a step, as the user states it; for utilisation.
struct ModelWork {
  double flops_per_step = 0;   // 0: not given
  double parameters = 0;       // of a transformer, with tokens_per_step: 6 x parameters x tokens
  double tokens_per_step = 0;  // of the whole job
  std::optional<bool> recompute = std::nullopt;  // activations are recomputed: the forward pass runs twice
  NumberFormat type = NumberFormat::kBf16;
  double peak_tflops = 0;  // of one device; 0: from the table
};

struct UtilisationReport {
  bool asked = false;  // any work was given
  double flops_per_step = 0;
  std::string formula;
  NumberFormat type = NumberFormat::kBf16;
  uint32_t devices = 0;
  std::optional<double> peak_flops;
  std::string peak_source;
  std::optional<double> mfu;
  std::optional<double> hfu;
  std::string missing;

  static constexpr void Declare(auto& fields) {
    fields.NullUnless([](const auto& u) { return u.asked; });
    fields.WhenRead([](auto& u) { u.asked = true; });
    fields("mfu", &UtilisationReport::mfu, "FLOPs per step / (mean step time x `devices` x `peak_flops`)");
    fields("hfu", &UtilisationReport::hfu,
           "the same with recomputed activations, if `--recompute` says whether they are");
    fields("flops_per_step", &UtilisationReport::flops_per_step, "arithmetic of a step, of the whole job");
    fields("formula", &UtilisationReport::formula, "how it follows from what was given");
    fields("type", &UtilisationReport::type, "number format, which decides the peak");
    fields("devices", &UtilisationReport::devices, "devices that compute");
    fields("peak_flops", &UtilisationReport::peak_flops, "peak of one device, per second");
    fields("peak_source", &UtilisationReport::peak_source, "where the peak is from").NullIfZero();
    fields("missing", &UtilisationReport::missing, "why there is no `mfu`; `null` if there is").NullIfZero();
    fields.Unwritten(&UtilisationReport::asked);
  }
};

}  // namespace gpuprobe::analysis
