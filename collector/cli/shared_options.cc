#include "collector/cli/shared_options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/cli/checks.h"
#include "collector/store/run_settings.h"

namespace gpuprobe::cli {

void PlaceOption::AddTo(CLI::App& app) {
  auto* const directory =
      app.add_option("--out", out, "run directory [gpuprobe-runs/<UTC time>-<name>]")->check(NotEmpty());
  app.add_option("--name", name, "name of the run in the default of --out [the program's]")
      ->check(NotEmpty())
      ->excludes(directory);
}

void KeepOption::AddTo(CLI::App& app) {
  app.add_option(
         "--keep", bytes,
         "maximum size of a run's records, 16MiB or more; older detail is dropped, totals stay [2GiB]")
      ->transform(Size(kSmallestBytes, UINT64_MAX))
      ->option_text("SIZE");
}

void StepMarkerOption::AddTo(CLI::App& app) {
  app.add_option_function<std::string>(
         "--step-marker",
         [this](const std::string& given) {
           const absl::StatusOr<model::StepMarker> parsed = model::StepMarker::Parse(given);
           if (!parsed.ok())
             throw CLI::ValidationError("--step-marker", std::string(parsed.status().message()));
           if (given.find('\n') != std::string::npos)
             throw CLI::ValidationError("--step-marker", "must be one line");
           marker = *parsed;
           text = given;
         },
         "definition of a step: nvtx:NAME (a range with this name), kernel:NAME (this kernel begins one), "
         "collective:OP (a cluster of such calls ends one) or collective:OP/N (N such calls). NAME must "
         "match as a whole; * stands for any text: nvtx:step, nvtx:step* [detected]")
      ->option_text("MARKER");
}

void RankOptions::AddTo(CLI::App& app) {
  app.add_option("--hang-after", seconds,
                 "report a collective as hung after it has waited this long without explanation [60]")
      ->check(WholeNumber(1, 31'536'000))
      ->option_text("SECONDS");
  app.add_option("--link-peak", link_peak,
                 "peak bandwidth of the links between GPUs, GB/s [NVLink's, for known GPUs on one host]")
      ->check(AboveZero())
      ->option_text("GB/S");
}

void ModelWorkOption::AddTo(CLI::App& app) {
  app.add_option("--model-flops-per-step", work.flops_per_step,
                 "floating-point operations per step of the whole job, for MFU")
      ->check(AboveZero());
  CLI::Option* parameters =
      app.add_option(
             "--params", work.parameters,
             "parameters of a transformer; with --tokens-per-step, a step takes 6 x parameters x tokens")
          ->check(AboveZero());
  CLI::Option* tokens = app.add_option("--tokens-per-step", work.tokens_per_step,
                                       "tokens per step of the whole job (batch x sequence x replicas)")
                            ->check(AboveZero());
  parameters->needs(tokens);
  tokens->needs(parameters);
  std::vector<std::string> types;
  for (const auto& [type, word] : report::WordsOf<analysis::NumberFormat>()) types.push_back(word);
  app.add_option_function<std::string>(
         "--flops-type",
         [this](const std::string& word) {
           work.type = static_cast<analysis::NumberFormat>(
               *report::ValueOf(report::WordsOf<analysis::NumberFormat>(), word));
         },
         absl::StrCat("data type whose peak is the reference: ", absl::StrJoin(types, ", "), " [bf16]"))
      ->check(OneOf(types));
  app.add_option("--peak-tflops", work.peak_tflops, "peak of one GPU, if gpuprobe does not know it")
      ->check(AboveZero());
  app.add_option_function<std::string>(
         "--recompute", [this](const std::string& value) { work.recompute = value == "full"; },
         "recomputation of activations: none, full (for HFU)")
      ->check(OneOf({"none", "full"}));
}

void ColorOption::AddTo(CLI::App& app) {
  app.add_flag("--no-color", no_color,
               "no colors, even on a terminal; the environment variable NO_COLOR does the same");
}

void StatusOption::AddTo(CLI::App& app) {
  app.add_option("--status", seconds, "on a terminal, print a status line this often; 0: never [10]")
      ->check(WholeNumber(0, 86400))
      ->option_text("SECONDS");
}

}  // namespace gpuprobe::cli
