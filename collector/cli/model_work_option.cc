#include "collector/cli/model_work_option.h"

#include "collector/cli/checks.h"

namespace gpuprobe::cli {

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
  app.add_option("--flops-type", work.type,
                 "data type whose peak is the reference: bf16, fp16, tf32, fp32, fp8 [bf16]")
      ->check(OneOf({"bf16", "fp16", "tf32", "fp32", "fp8"}));
  app.add_option("--peak-tflops", work.peak_tflops, "peak of one GPU, if gpuprobe does not know it")
      ->check(AboveZero());
  app.add_option_function<std::string>(
         "--recompute", [this](const std::string& value) { work.recompute = value == "full"; },
         "recomputation of activations: none, full (for HFU)")
      ->check(OneOf({"none", "full"}));
}

}  // namespace gpuprobe::cli
