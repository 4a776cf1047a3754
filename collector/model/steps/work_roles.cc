#include "collector/model/steps/work_roles.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {
namespace {

// multi_tensor_apply: PyTorch's foreach optimizers and apex.
constexpr std::string_view kOptimizerNames[] = {
    "multi_tensor_apply", "multitensorapply", "adam", "sgd", "optimizer", "lamb_", "adagrad", "rmsprop",
    "adafactor"};
// Of PyTorch's functions for lists of tensors, those that optimizers share with others: FSDP copies its
// shards before a gather, zero_grad sets gradients to zero.
constexpr std::string_view kSharedNames[] = {"copyfunctor", "zerofunctor", "native4copyi", "ns0_4copyi",
                                             "native::copy<"};
constexpr std::string_view kBackwardNames[] = {"backward", "bwd",        "dgrad",
                                               "wgrad",    "grad_input", "gradinput"};
constexpr std::string_view kLossNames[] = {"cross_entropy", "crossentropy", "nll_loss", "nllloss",
                                           "mse_loss",      "mseloss",      "_loss"};
// PyTorch's kernels that do what a memset does, for any value and type.
constexpr std::string_view kFillNames[] = {"fillfunctor"};
constexpr std::string_view kStepKinds[] = {"step",
                                           "trainstep",
                                           "trainingstep",
                                           "trainingiteration",
                                           "trainiteration",
                                           "iteration",
                                           "iter",
                                           "trainiter",
                                           "profilerstep",
                                           "globalstep",
                                           "minibatch",
                                           "trainbatch",
                                           "runtrainingbatch",
                                           "batch",
                                           "runtrainingstep",
                                           "trainonebatch",
                                           "trainloopstep",
                                           "trainingloopstep",
                                           "optimizationstep"};

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

template <size_t n>
bool ContainsAny(const std::string& text, const std::string_view (&words)[n]) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

}  // namespace

uint8_t RolesOfKernel(std::string_view name) {
  const std::string lower = Lower(name);
  uint8_t roles = 0;
  if (ContainsAny(lower, kOptimizerNames) && !ContainsAny(lower, kSharedNames)) roles |= kRoleOptimizer;
  if (ContainsAny(lower, kBackwardNames)) roles |= kRoleBackwardName;
  if (ContainsAny(lower, kLossNames)) roles |= kRoleLossName;
  if (ContainsAny(lower, kFillNames)) roles |= kRoleMemset;
  return roles;
}

uint8_t RolesOfThread(std::string_view name) {
  return name.starts_with("pt_autograd") ? static_cast<uint8_t>(kRoleAutogradThread) : uint8_t{0};
}

std::string KindOfRange(std::string_view name) {
  std::string kind;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalpha(letter) != 0) kind.push_back(static_cast<char>(std::tolower(letter)));
  }
  return kind;
}

bool IsLibraryDomain(std::string_view domain) {
  // As the libraries name them: communication, primitives, XLA's compiler, and the CUDA libraries.
  static constexpr std::string_view kDomains[] = {
      "NCCL",     "CCCL",     "TSL",      "cuBLAS", "cuBLASLt", "cuDNN",   "cuFFT",
      "cuSPARSE", "cuSOLVER", "cuTENSOR", "cuRAND", "nvJPEG",   "NVSHMEM", "TensorRT",
      "libcudf",  "librmm",   "CUDA",     "nvComp", "nvtx-mpi", "cuFile",  "CUTLASS"};
  return std::find(std::begin(kDomains), std::end(kDomains), domain) != std::end(kDomains);
}

bool IsOperatorRange(std::string_view name) {
  constexpr std::string_view kNamespaces[] = {
      "aten::", "c10d::", "prim::", "autograd::", "torch::autograd::"};
  for (const std::string_view space : kNamespaces) {
    if (name.starts_with(space)) return true;
  }
  if (name.starts_with("Optimizer.")) return name.find('#') != std::string_view::npos;
  const size_t last = name.find_last_not_of("0123456789");
  return last + 1 < name.size() && name.substr(0, last + 1).ends_with("Backward") &&
         name.find(' ') == std::string_view::npos;
}

bool LooksLikeStep(std::string_view kind) {
  return std::find(std::begin(kStepKinds), std::end(kStepKinds), kind) != std::end(kStepKinds);
}

std::optional<StepPhase> PhaseOfRange(std::string_view kind) {
  const auto has = [kind](std::string_view word) { return kind.find(word) != std::string_view::npos; };
  if (has("optim")) return StepPhase::kOptimizer;
  if (has("backward") || has("bwd")) return StepPhase::kBackward;
  if (has("forward") || has("fwd")) return StepPhase::kForward;
  return std::nullopt;
}

}  // namespace gpuprobe::model
