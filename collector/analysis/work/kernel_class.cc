#include "collector/analysis/work/kernel_class.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/records/collective_kernels.h"

namespace gpuprobe::analysis {
namespace {

// Where a word is looked for: a template's arguments name what it is instantiated with, which decides for
// some classes and misleads for others.
enum class In : uint8_t { kWholeName, kFunction };

struct Word {
  KernelClass kernel_class;
  In where;
  const char* text;  // lower case
};

// The first word that is found decides.
constexpr Word kWords[] = {
    {KernelClass::kCopy, In::kWholeName, "direct_copy_kernel"},
    {KernelClass::kCopy, In::kFunction, "catarraybatchedcopy"},
    {KernelClass::kCopy, In::kWholeName, "copyfunctor"},
    {KernelClass::kElementwise, In::kWholeName, "zerofunctor"},
    {KernelClass::kOptimizer, In::kFunction, "multi_tensor_apply"},
    {KernelClass::kOptimizer, In::kFunction, "triton_for"},
    {KernelClass::kOptimizer, In::kFunction, "lpnorm_cleanup"},
    {KernelClass::kOptimizer, In::kFunction, "lpmax_cleanup"},
    {KernelClass::kOptimizer, In::kFunction, "amp_update_scale"},
    {KernelClass::kOptimizer, In::kWholeName, "fusedadam"},
    {KernelClass::kOptimizer, In::kWholeName, "fused_adam"},
    {KernelClass::kOptimizer, In::kWholeName, "adamfunctor"},
    {KernelClass::kOptimizer, In::kWholeName, "adamw"},
    {KernelClass::kOptimizer, In::kWholeName, "adam_"},
    {KernelClass::kOptimizer, In::kWholeName, "_adam"},
    {KernelClass::kOptimizer, In::kFunction, "adam"},
    {KernelClass::kOptimizer, In::kWholeName, "sgd"},
    {KernelClass::kOptimizer, In::kWholeName, "lamb_"},
    {KernelClass::kOptimizer, In::kWholeName, "adagrad"},
    {KernelClass::kOptimizer, In::kWholeName, "optimizer"},
    {KernelClass::kAttention, In::kWholeName, "flash_fwd"},
    {KernelClass::kAttention, In::kWholeName, "flash_bwd"},
    {KernelClass::kAttention, In::kWholeName, "flash::"},
    {KernelClass::kAttention, In::kWholeName, "flashattn"},
    {KernelClass::kAttention, In::kWholeName, "fmha"},
    {KernelClass::kAttention, In::kWholeName, "attention"},
    {KernelClass::kAttention, In::kWholeName, "sdpa"},
    {KernelClass::kConvolution, In::kWholeName, "implicit_gemm"},
    {KernelClass::kConvolution, In::kWholeName, "implicit_convolve"},
    {KernelClass::kConvolution, In::kWholeName, "convolve"},
    {KernelClass::kConvolution, In::kWholeName, "convolution"},
    {KernelClass::kConvolution, In::kWholeName, "conv1d"},
    {KernelClass::kConvolution, In::kWholeName, "conv2d"},
    {KernelClass::kConvolution, In::kWholeName, "conv3d"},
    {KernelClass::kConvolution, In::kWholeName, "conv_depthwise"},
    {KernelClass::kConvolution, In::kFunction, "im2col"},
    {KernelClass::kConvolution, In::kFunction, "col2im"},
    {KernelClass::kConvolution, In::kFunction, "vol2col"},
    {KernelClass::kConvolution, In::kFunction, "vol2im"},
    {KernelClass::kConvolution, In::kWholeName, "winograd"},
    {KernelClass::kConvolution, In::kWholeName, "fprop"},
    {KernelClass::kConvolution, In::kWholeName, "dgrad"},
    {KernelClass::kConvolution, In::kWholeName, "wgrad"},
    {KernelClass::kNormalisation, In::kFunction, "layer_norm"},
    {KernelClass::kNormalisation, In::kFunction, "layernorm"},
    {KernelClass::kNormalisation, In::kFunction, "rms_norm"},
    {KernelClass::kNormalisation, In::kFunction, "rmsnorm"},
    {KernelClass::kNormalisation, In::kFunction, "batch_norm"},
    {KernelClass::kNormalisation, In::kFunction, "batchnorm"},
    {KernelClass::kNormalisation, In::kFunction, "bn_fw"},
    {KernelClass::kNormalisation, In::kFunction, "bn_bw"},
    {KernelClass::kNormalisation, In::kFunction, "group_norm"},
    {KernelClass::kNormalisation, In::kFunction, "groupnorm"},
    {KernelClass::kNormalisation, In::kFunction, "rowwisemoments"},
    {KernelClass::kNormalisation, In::kFunction, "gammabeta"},
    {KernelClass::kNormalisation, In::kFunction, "fusedparams"},
    {KernelClass::kNormalisation, In::kFunction, "internalgradients"},
    {KernelClass::kNormalisation, In::kFunction, "weight_norm"},
    {KernelClass::kNormalisation, In::kFunction, "renorm"},
    {KernelClass::kReduction, In::kFunction, "softmax"},
    {KernelClass::kReduction, In::kFunction, "cross_entropy"},
    {KernelClass::kReduction, In::kFunction, "nll_loss"},
    {KernelClass::kReduction, In::kFunction, "mseloss"},
    {KernelClass::kReduction, In::kFunction, "_loss"},
    {KernelClass::kReduction, In::kFunction, "marginloss"},
    {KernelClass::kElementwise, In::kFunction, "upsample"},
    {KernelClass::kElementwise, In::kFunction, "interpolat"},
    {KernelClass::kElementwise, In::kFunction, "jagged"},
    {KernelClass::kElementwise, In::kFunction, "unpooling"},
    {KernelClass::kReduction, In::kFunction, "dot_kernel"},
    {KernelClass::kReduction, In::kFunction, "reduce_1block_kernel"},
    {KernelClass::kGemm, In::kWholeName, "gemm"},
    {KernelClass::kGemm, In::kWholeName, "gemv"},
    {KernelClass::kGemm, In::kFunction, "matmul"},
    {KernelClass::kGemm, In::kFunction, "nvjet"},
    {KernelClass::kGemm, In::kFunction, "cublas"},
    {KernelClass::kGemm, In::kFunction, "splitkreduce"},
    {KernelClass::kGemm, In::kFunction, "triton_mm"},
    {KernelClass::kGemm, In::kFunction, "triton_tem_fused"},
    {KernelClass::kGemm, In::kFunction, "xmma"},
    {KernelClass::kGemm, In::kFunction, "cutlass"},
    {KernelClass::kGemm, In::kFunction, "linear"},
    {KernelClass::kGemm, In::kFunction, "_mm_kernel"},
    {KernelClass::kElementwise, In::kFunction, "elementwise"},
    {KernelClass::kElementwise, In::kFunction, "triton_poi"},
    {KernelClass::kElementwise, In::kFunction, "pointwise"},
    {KernelClass::kReduction, In::kFunction, "reduce"},
    {KernelClass::kReduction, In::kFunction, "triton_red"},
    {KernelClass::kReduction, In::kFunction, "triton_per"},
    {KernelClass::kReduction, In::kFunction, "triton_spl"},
    {KernelClass::kReduction, In::kFunction, "argmax"},
    {KernelClass::kReduction, In::kFunction, "topk"},
    {KernelClass::kReduction, In::kFunction, "sort"},
    {KernelClass::kReduction, In::kFunction, "scan"},
    {KernelClass::kReduction, In::kFunction, "histogram"},
    {KernelClass::kReduction, In::kFunction, "pool"},
    {KernelClass::kReduction, In::kFunction, "adaptivemax"},
    {KernelClass::kReduction, In::kFunction, "adaptiveaverage"},
    {KernelClass::kReduction, In::kFunction, "adaptive_average"},
    {KernelClass::kReduction, In::kFunction, "cdist"},
    {KernelClass::kReduction, In::kFunction, "pdist"},
    {KernelClass::kReduction, In::kFunction, "unique"},
    {KernelClass::kReduction, In::kFunction, "deviceselect"},
    {KernelClass::kReduction, In::kFunction, "compute_mode"},
    {KernelClass::kReduction, In::kFunction, "block_sums"},
    {KernelClass::kCopy, In::kFunction, "transpose"},
    {KernelClass::kCopy, In::kFunction, "copy"},
    {KernelClass::kCopy, In::kFunction, "triu_tril"},
    {KernelClass::kCopy, In::kFunction, "_pad"},
    {KernelClass::kCopy, In::kFunction, "roll_cuda"},
    {KernelClass::kCopy, In::kFunction, "chunk_cat"},
    {KernelClass::kElementwise, In::kFunction, "dropout"},
    {KernelClass::kElementwise, In::kFunction, "gelu"},
    {KernelClass::kElementwise, In::kFunction, "silu"},
    {KernelClass::kElementwise, In::kFunction, "relu"},
    {KernelClass::kElementwise, In::kFunction, "tanh"},
    {KernelClass::kElementwise, In::kFunction, "sigmoid"},
    {KernelClass::kElementwise, In::kFunction, "fill"},
    {KernelClass::kElementwise, In::kFunction, "embedding"},
    {KernelClass::kElementwise, In::kFunction, "index"},
    {KernelClass::kElementwise, In::kFunction, "gather"},
    {KernelClass::kElementwise, In::kFunction, "scatter"},
    {KernelClass::kElementwise, In::kFunction, "compute_grad_weight"},
    {KernelClass::kElementwise, In::kFunction, "grid_sampler"},
    {KernelClass::kElementwise, In::kFunction, "lstm_cell"},
    {KernelClass::kElementwise, In::kFunction, "gru_cell"},
    {KernelClass::kElementwise, In::kFunction, "glu_"},
    {KernelClass::kElementwise, In::kFunction, "_elemwise"},
    {KernelClass::kElementwise, In::kFunction, "for_each"},
    {KernelClass::kElementwise, In::kFunction, "adjacent_difference"},
    {KernelClass::kElementwise, In::kFunction, "transform_kernel"},
    {KernelClass::kElementwise, In::kFunction, "transform_vals"},
    {KernelClass::kElementwise, In::kFunction, "transform_bias"},
    {KernelClass::kElementwise, In::kFunction, "apply_kernel"},
    {KernelClass::kElementwise, In::kFunction, "cross_kernel"},
    {KernelClass::kElementwise, In::kFunction, "rand_uniform"},
    {KernelClass::kElementwise, In::kFunction, "multinomial"},
    {KernelClass::kElementwise, In::kFunction, "cast"},
    {KernelClass::kElementwise, In::kFunction, "rotary"},
    {KernelClass::kElementwise, In::kFunction, "vector_add"},
};

// Inductor (torch.compile) names a fused kernel after its kind and the operators it took over:
// triton_poi_fused_convolution_relu_0 adds a convolution's bias and convolves nothing.
bool IsFusedByInductor(std::string_view function) {
  constexpr std::string_view kKinds[] = {"triton_poi_", "triton_red_", "triton_per_", "triton_for_",
                                         "triton_spl_"};
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](std::string_view kind) { return function.substr(0, kind.size()) == kind; });
}

bool IsLibraryWork(KernelClass kernel_class) {
  return kernel_class == KernelClass::kGemm || kernel_class == KernelClass::kConvolution ||
         kernel_class == KernelClass::kAttention;
}

}  // namespace

KernelClass KernelClassOf(std::string_view demangled) {
  if (model::Communicates(model::NatureByName(demangled))) return KernelClass::kCollective;
  const std::string whole = absl::AsciiStrToLower(std::string(demangled));
  // "(anonymous namespace)" is part of a function's name, not the end of it.
  size_t end = whole.find('<');
  if (end == std::string::npos) end = whole.rfind('(');
  const std::string_view function = std::string_view(whole).substr(0, end);
  const bool fused = IsFusedByInductor(function);
  for (const Word& word : kWords) {
    if (fused && IsLibraryWork(word.kernel_class)) continue;
    const std::string_view text = word.where == In::kFunction ? function : std::string_view(whole);
    if (text.find(word.text) != std::string_view::npos) return word.kernel_class;
  }
  return KernelClass::kOther;
}

KernelClass KernelClassOf(const model::KernelTotals& kernel, std::string_view demangled) {
  if (model::Communicates(kernel.nature)) return KernelClass::kCollective;
  return kernel.misnamed ? KernelClass::kOther : KernelClassOf(demangled);
}

std::string KernelName(const model::ProcessModel& process, const model::KernelTotals& kernel) {
  const std::string& name = process.String(kernel.name);
  if (!kernel.misnamed) return name;
  const bool nccl = kernel.nature == model::KernelNature::kNccl;
  return absl::StrCat(nccl ? "NCCL kernel (recorded as " : "unknown kernel (recorded as ", Demangle(name),
                      ")");
}

bool IsCompiledByInductor(std::string_view demangled) { return demangled.starts_with("triton_"); }

bool IsFusedOptimizer(std::string_view demangled) {
  const auto has = [&](std::string_view text) { return demangled.find(text) != std::string_view::npos; };
  if (!has("multi_tensor_apply")) return false;
  constexpr std::string_view kSteps[] = {"Fused",     "AdamFunctor", "AdamCapturable",
                                         "LAMBStage", "NovoGrad",    "SGDFunctor"};
  return std::any_of(std::begin(kSteps), std::end(kSteps), has);
}

}  // namespace gpuprobe::analysis
