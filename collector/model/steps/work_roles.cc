#include "collector/model/steps/work_roles.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "collector/model/steps/step_operation.h"

namespace gpuprobe::model {
namespace {

constexpr std::string_view kOptimizerNames[] = {"adam",    "sgd",     "optimizer", "lamb_",
                                                "adagrad", "rmsprop", "adafactor"};
// PyTorch's foreach optimizers and apex; gradients are clipped and divided so, too.
constexpr std::string_view kForeachNames[] = {"multi_tensor_apply", "multitensorapply"};
// Of PyTorch's functions for lists of tensors, those that optimizers share with others: FSDP copies its
// shards before a gather, zero_grad sets gradients to zero.
constexpr std::string_view kSharedNames[] = {"copyfunctor", "zerofunctor", "native4copyi", "ns0_4copyi",
                                             "native::copy<"};
constexpr std::string_view kBackwardNames[] = {"backward", "bwd",        "dgrad",
                                               "wgrad",    "grad_input", "gradinput"};
constexpr std::string_view kForwardNames[] = {"forward"};
constexpr std::string_view kLossNames[] = {"cross_entropy", "crossentropy", "nll_loss", "nllloss",
                                           "mse_loss",      "mseloss",      "_loss"};
constexpr std::string_view kPyTorchNames[] = {"2at6native", "at::native"};
constexpr std::string_view kFlattenNames[] = {"catarraybatchedcopy"};
constexpr std::string_view kCastNames[] = {"direct_copy_kernel", "16_copy_kernel"};
// The last: gradients are scaled by what their norm says.
constexpr std::string_view kNormNames[] = {"normtwoops", "lpnorm", "scalartensorfunctor"};
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

uint16_t RolesOfKernel(std::string_view name) {
  const std::string lower = Lower(name);
  uint16_t roles = 0;
  if (!ContainsAny(lower, kSharedNames)) {
    const bool named = ContainsAny(lower, kOptimizerNames);
    const bool foreach = ContainsAny(lower, kForeachNames);
    // Gradients may be clipped where nothing is updated yet.
    if (named || (foreach && !ContainsAny(lower, kNormNames))) roles |= kRoleOptimizer;
    if (foreach && !named) roles |= kRoleForeach;
  }
  if (ContainsAny(lower, kBackwardNames)) roles |= kRoleBackwardName;
  if (ContainsAny(lower, kForwardNames)) roles |= kRoleForwardName;
  if (ContainsAny(lower, kLossNames)) roles |= kRoleLossName;
  if (ContainsAny(lower, kFillNames)) roles |= kRoleMemset;
  if (ContainsAny(lower, kPyTorchNames)) roles |= kRolePyTorch;
  if (ContainsAny(lower, kNormNames)) roles |= kRoleNorm;
  if (ContainsAny(lower, kFlattenNames)) roles |= kRoleFlatten;
  if (ContainsAny(lower, kCastNames)) roles |= kRoleCast;
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
  if (name.starts_with("DeepSpeed")) return true;
  if (name.starts_with("Optimizer.")) return name.find('#') != std::string_view::npos;
  const size_t last = name.find_last_not_of("0123456789#");  // or a shape (ProcessNames)
  return last + 1 < name.size() && name.substr(0, last + 1).ends_with("Backward") &&
         name.find(' ') == std::string_view::npos;
}

bool LooksLikeStep(std::string_view kind) {
  return std::find(std::begin(kStepKinds), std::end(kStepKinds), kind) != std::end(kStepKinds);
}

bool LooksLikeInput(std::string_view kind) {
  static constexpr std::string_view kWhole[] = {"data", "input", "load", "batch", "fetch"};
  static constexpr std::string_view kWithin[] = {
      "dataload",  "loaddata",  "loadbatch",   "batchload", "nextbatch",     "getbatch",     "fetchbatch",
      "datafetch", "fetchdata", "trainloader", "dataiter",  "inputpipeline", "preparebatch", "datawait"};
  return std::find(std::begin(kWhole), std::end(kWhole), kind) != std::end(kWhole) ||
         ContainsAny(std::string(kind), kWithin);
}

std::optional<StepPhase> PhaseOfRange(std::string_view kind) {
  const auto has = [kind](std::string_view word) { return kind.find(word) != std::string_view::npos; };
  if (has("optim")) return StepPhase::kOptimizer;
  if (has("backward") || has("bwd")) return StepPhase::kBackward;
  if (has("forward") || has("fwd")) return StepPhase::kForward;
  return std::nullopt;
}

}  // namespace gpuprobe::model
