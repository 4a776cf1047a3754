#include "collector/analysis/memory/memory_holdings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/communication/parallelism.h"
#include "collector/analysis/units.h"
#include "collector/model/statistics/whole_number.h"
#include "collector/report/report.h"
#include "collector/report/words.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using model::Lifetime;
using Holding = MemoryLifetimesReport::Holding;

// Allocators round sizes up (512 B in PyTorch), and a step more or less is counted: so much may two figures
// for the same thing differ.
constexpr double kAgree = 0.05;
// A reduction made less than once in two steps is a loss or a norm, not gradients.
constexpr double kLeastCallsPerStep = 0.5;
constexpr double kLeastAtPeak = 0.01;  // of gradients that come and go

bool Agree(double a, double b) { return std::abs(a - b) <= kAgree * b; }

// Optimizer state relative to the weights' bytes: in the weights' type; in float where gradients have half
// the size; and the latter with a copy of the weights as float.
struct StateSize {
  double of_weights;
  std::string_view evidence;
};
constexpr StateSize kFullPrecision[] = {{2, "keeps two values for each weight"}};
constexpr StateSize kHalfPrecision[] = {
    {4, "keeps two float32 values for each 16-bit weight"},
    {6, "keeps two float32 values and a float32 copy of each 16-bit weight"},
    {2, "keeps two values for each weight"}};

std::string_view RestOf(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kBeforeSteps:
      return "other, allocated before the first step";
    case Lifetime::kFirstSteps:
      return "other, kept from the first steps";
    case Lifetime::kFirstStepsBackward:
      return "other, kept from the first backward";
    case Lifetime::kFromForward:
      return "activations";
    case Lifetime::kFromBackward:
      return "other, allocated in backward, freed later";
    case Lifetime::kWithinPhase:
      return "temporary, within one phase";
    case Lifetime::kKept:
      return "growth, kept from later steps";
    case Lifetime::kNccl:
      return "NCCL's buffers";
    case Lifetime::kWorkspace:
      return "cuBLAS workspace";
    default:
      return "other";
  }
}

// Takes categories out of the parts, one after the other.
class Breakdown {
 public:
  explicit Breakdown(const MemoryLifetimesReport& lifetimes) {
    for (const MemoryLifetimesReport::Part& part : lifetimes.parts) left_[part.lifetime] = part.bytes;
  }

  uint64_t Left(Lifetime lifetime) const {
    const auto found = left_.find(lifetime);
    return found == left_.end() ? 0 : found->second;
  }
  uint64_t LeftOfFirstSteps() const {
    return Left(Lifetime::kFirstSteps) + Left(Lifetime::kFirstStepsBackward);
  }

  // `bytes` of the part, or all of it where it is about as much. False, and nothing taken: it is too small.
  bool Take(Lifetime lifetime, double bytes, std::string_view what, std::string evidence) {
    const auto left = static_cast<double>(Left(lifetime));
    if (bytes <= 0 || left < (1 - kAgree) * bytes) return false;
    Add(lifetime, Agree(left, bytes) ? Left(lifetime) : model::WholeNumber(bytes), what, std::move(evidence));
    return true;
  }
  // Takes from both parts that were made in the first steps and kept: which of the two holds the state
  // depends on where a program begins its optimizer, whose state is often allocated before its first kernel
  // runs.
  bool TakeOfFirstSteps(double bytes, std::string_view what, const std::string& evidence) {
    if (Take(Lifetime::kFirstSteps, bytes, what, evidence) ||
        Take(Lifetime::kFirstStepsBackward, bytes, what, evidence))
      return true;
    if (static_cast<double>(LeftOfFirstSteps()) < (1 - kAgree) * bytes) return false;
    const uint64_t first = Left(Lifetime::kFirstSteps);
    Add(Lifetime::kFirstSteps, first, what, evidence);
    Add(Lifetime::kFirstStepsBackward,
        std::min(Left(Lifetime::kFirstStepsBackward),
                 model::WholeNumber(bytes) - std::min(first, model::WholeNumber(bytes))),
        what, evidence);
    return true;
  }
  void TakeUpTo(Lifetime lifetime, double bytes, std::string_view what, std::string evidence) {
    Add(lifetime, std::min(Left(lifetime), model::WholeNumber(bytes)), what, std::move(evidence));
  }

  // With what is left, largest first.
  std::vector<Holding> Conclude() {
    for (const auto& [lifetime, bytes] : left_) {
      if (bytes == 0) continue;
      Holding rest{
          .what = std::string(RestOf(lifetime)), .lifetime = lifetime, .bytes = bytes, .evidence = {}};
      if (lifetime == Lifetime::kFromForward) {
        rest.inferred = true;
        rest.evidence = "allocated in forward, freed later in the step";
      } else if (lifetime == Lifetime::kNccl) {
        rest.evidence = "allocated during calls into NCCL, by the caller or by NCCL's threads";
      } else if (lifetime == Lifetime::kWorkspace) {
        rest.inferred = true;
        rest.evidence = "of its usual size, allocated in the first forward and the first backward";
      }
      holdings_.push_back(std::move(rest));
    }
    std::stable_sort(holdings_.begin(), holdings_.end(),
                     [](const Holding& a, const Holding& b) { return a.bytes > b.bytes; });
    return std::move(holdings_);
  }

 private:
  void Add(Lifetime lifetime, uint64_t bytes, std::string_view what, std::string evidence) {
    if (bytes == 0) return;
    left_[lifetime] -= bytes;
    holdings_.push_back({.what = std::string(what),
                         .lifetime = lifetime,
                         .bytes = bytes,
                         .evidence = std::move(evidence),
                         .inferred = true});
  }

  // Equally large ones are listed by their words.
  report::WordMap<Lifetime, uint64_t> left_;
  std::vector<Holding> holdings_;
};

void TakeState(const HoldingEvidence& evidence, Breakdown& parts) {
  if (evidence.optimizer == Optimizer::kUnknown) return;
  const std::string name = evidence.optimizer == Optimizer::kAdam ? "Adam" : "LAMB";
  const double weights = evidence.gradient_bytes / evidence.state_shards;
  const bool half = evidence.gradient_element_bytes == 2;
  const std::span<const StateSize> sizes =
      half ? std::span<const StateSize>(kHalfPrecision) : std::span<const StateSize>(kFullPrecision);
  const auto state = absl::StrCat("optimizer state (", name, ")");
  const auto why = [&](const StateSize& size) { return absl::StrCat(name, " ", std::string(size.evidence)); };
  // Made with the first step, as PyTorch does: how much there is shows which size it is.
  for (const StateSize& size : sizes) {
    const double bytes = size.of_weights * weights;
    const auto first = static_cast<double>(parts.LeftOfFirstSteps());
    const bool fits = Agree(first, bytes) || Agree(first, bytes + weights) ||
                      Agree(static_cast<double>(parts.Left(Lifetime::kFirstSteps)), bytes) ||
                      Agree(static_cast<double>(parts.Left(Lifetime::kFirstStepsBackward)), bytes);
    if (fits && parts.TakeOfFirstSteps(bytes, state, why(size))) return;
  }
  // Where other things were made, too, only one size can be meant.
  if (half) return;
  const double bytes = sizes.front().of_weights * weights;
  if (parts.TakeOfFirstSteps(bytes, state, why(sizes.front()))) return;
  parts.Take(Lifetime::kBeforeSteps, bytes, state, why(sizes.front()));
}

std::string SharedBy(int ranks) {
  return ranks > 1 ? absl::StrCat(", sharded across ", ranks, " ranks") : std::string();
}

// All of them, or a share where each rank updates a share of the weights: what backward makes and frees in
// every step, or keeps from the first one on, or what was there before.
void TakeGradients(const HoldingEvidence& evidence, const std::string& reduced, double freed_per_step,
                   Breakdown& parts) {
  const int shards[] = {1, evidence.state_shards};
  for (const int ranks : shards) {
    const double kept = evidence.gradient_bytes / ranks;
    if (freed_per_step < (1 - kAgree) * kept) continue;
    const std::string why = absl::StrCat(reduced, SharedBy(ranks));
    // A few bytes of backward's are not they: PyTorch's data parallelism keeps them, in its buckets.
    const bool none = static_cast<double>(parts.Left(Lifetime::kFromBackward)) < kLeastAtPeak * kept;
    if (none && parts.TakeOfFirstSteps(kept, "gradients", why)) return;
    // At the peak, maybe not all of them are there.
    parts.TakeUpTo(Lifetime::kFromBackward, kept, "gradients", why);
    return;
  }
  for (const int ranks : shards) {
    const std::string why = absl::StrCat(reduced, SharedBy(ranks));
    if (parts.TakeOfFirstSteps(evidence.gradient_bytes / ranks, "gradients", why)) return;
  }
  parts.Take(Lifetime::kBeforeSteps, evidence.gradient_bytes, "gradients", reduced);
}

// PyTorch's data parallelism reduces copies of the gradients, in buckets made before the first step, and made
// anew once the first step has shown the order of the gradients. What is left there, and is as large, is
// them.
void TakeBuckets(const HoldingEvidence& evidence, const std::string& size, Breakdown& parts) {
  // The allocator rounds large blocks up, to 2 MiB each.
  constexpr double kRounding = 2 << 20;
  if (evidence.buckets == 0) return;
  const double most = (1 + kAgree) * evidence.gradient_bytes + kRounding * evidence.buckets;
  for (const Lifetime lifetime : {Lifetime::kBeforeSteps, Lifetime::kFirstSteps}) {
    const auto left = static_cast<double>(parts.Left(lifetime));
    if (left < (1 - kAgree) * evidence.gradient_bytes || left > most) continue;
    parts.TakeUpTo(lifetime, left, "gradient buckets (DDP)",
                   absl::StrCat("as large as the gradients, ", size, ", that PyTorch reduces"));
    return;
  }
}

// Where nothing is reduced: what Adam keeps from the first steps is twice the weights, which are then all
// that was allocated before, and each of them has a gradient. Where anything else of some size was allocated
// there, the two figures disagree and nothing is named.
void TakeByAdam(const HoldingEvidence& evidence, double freed_per_step, Breakdown& parts) {
  if (evidence.optimizer != Optimizer::kAdam) return;
  const auto weights = static_cast<double>(parts.Left(Lifetime::kBeforeSteps));
  const double state = 2 * weights;
  const auto first = static_cast<double>(parts.Left(Lifetime::kFirstSteps));
  const auto backward = static_cast<double>(parts.Left(Lifetime::kFirstStepsBackward));
  const bool kept = Agree(backward, weights);  // gradients that are set to zero in place
  if (weights <= 0 || !Agree(first, state) || !(kept || backward < kAgree * weights)) return;
  const std::string size = Bytes(parts.Left(Lifetime::kBeforeSteps));
  parts.Take(Lifetime::kFirstSteps, state, "optimizer state (Adam)",
             absl::StrCat("twice what was allocated before the first step, ", size,
                          "; Adam keeps two values for each weight"));
  parts.Take(Lifetime::kBeforeSteps, weights, "weights", "half of what Adam keeps from the first steps");
  const std::string why = absl::StrCat("as large as the weights, ", size);
  if (kept) {
    parts.Take(Lifetime::kFirstStepsBackward, weights, "gradients", why);
  } else if (freed_per_step >= (1 - kAgree) * weights) {
    parts.TakeUpTo(Lifetime::kFromBackward, weights, "gradients", why);
  }
}

}  // namespace

std::vector<Holding> HoldingsOf(const MemoryLifetimesReport& lifetimes, const HoldingEvidence& evidence) {
  Breakdown parts(lifetimes);
  const double gradients = evidence.gradient_bytes;
  if (gradients <= 0) {
    TakeByAdam(evidence, static_cast<double>(lifetimes.from_backward_bytes_per_step), parts);
    return parts.Conclude();
  }
  const std::string size = Bytes(model::WholeNumber(gradients));
  parts.Take(Lifetime::kBeforeSteps, gradients / evidence.weight_shards, "weights",
             absl::StrCat("as large as the gradients, ", size, SharedBy(evidence.weight_shards)));
  TakeState(evidence, parts);
  const std::string reduced = evidence.reductions_per_step > 1
                                  ? absl::StrCat(evidence.reduced_by, " reduces ", size, " ",
                                                 evidence.reductions_per_step, " times per step")
                                  : absl::StrCat(evidence.reduced_by, " reduces ", size, " per step");
  TakeGradients(evidence, reduced, static_cast<double>(lifetimes.from_backward_bytes_per_step), parts);
  TakeBuckets(evidence, size, parts);
  return parts.Conclude();
}

Optimizer OptimizerNamed(std::string_view kernel) {
  const std::string name = absl::AsciiStrToLower(std::string(kernel));
  if (name.find("adam") != std::string::npos) return Optimizer::kAdam;
  // PyTorch's Adam and AdamW for lists of tensors, its default: of its optimizers these alone interpolate.
  if (name.find("multi_tensor_apply") != std::string::npos && name.find("lerpfunctor") != std::string::npos)
    return Optimizer::kAdam;
  if (name.find("lamb_") != std::string::npos || name.find("fusedlamb") != std::string::npos)
    return Optimizer::kLamb;
  return Optimizer::kUnknown;
}

HoldingEvidence EvidenceOf(const RankReport& rank, const std::set<CallSize>& in_forward,
                           const CommunicationReport& communication) {
  HoldingEvidence evidence;
  evidence.optimizer = rank.optimizer;
  if (!rank.steps.has_value() || rank.steps->count == 0 || rank.devices.size() > 1) return evidence;
  const auto steps = static_cast<double>(rank.steps->count);
  struct Reduced {
    double bytes = 0;
    double calls = 0;  // per step
    int ranks = 1;
    uint32_t element_bytes = 0;
    bool mixed = false;
  };
  std::map<std::pair<std::string, std::string>, Reduced> by_operation;
  // A job of one rank reduces its gradients, too, if only in name.
  const bool alone = std::all_of(rank.collectives.begin(), rank.collectives.end(),
                                 [](const CollectiveReport& c) { return c.comm_ranks == 1; });
  const auto role_of = [&](const std::string& comm) {
    const auto found = communication.roles.find(comm);
    return found == communication.roles.end() ? CommunicationRole::kOther : found->second;
  };
  for (const CollectiveReport& c : rank.collectives) {
    if (!nccl::ReducesForAll(c.op) || c.calls == 0) continue;
    if (c.comm_ranks < 2 ? !alone : !ReducesGradients(role_of(c.comm))) continue;
    if (in_forward.contains({c.op, c.comm, c.size_bytes})) continue;
    const double calls = static_cast<double>(c.calls) / steps;
    if (calls < kLeastCallsPerStep) continue;
    // A call of the warm-up or of the step that is cut off is no part of another step; the first step may
    // reduce otherwise (PyTorch's, all at once).
    const double whole = std::max(std::round(calls), 1.0);
    const bool as_often = Agree(calls, whole) || std::abs(calls - whole) * steps < 1.5 * whole;
    const double per_call = static_cast<double>(c.bytes) / static_cast<double>(c.calls);
    Reduced& sum = by_operation[{c.op, c.comm}];
    sum.bytes += per_call * (as_often ? whole : calls);
    sum.calls += as_often ? whole : calls;
    sum.mixed =
        sum.mixed || c.element_bytes == 0 || (sum.element_bytes != 0 && sum.element_bytes != c.element_bytes);
    sum.element_bytes = c.element_bytes;
    sum.ranks = c.comm_ranks;
  }
  const auto most =
      std::max_element(by_operation.begin(), by_operation.end(),
                       [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
  if (most == by_operation.end()) return evidence;
  evidence.gradient_bytes = most->second.bytes;
  const std::optional<Buckets>& buckets = communication.buckets;
  if (buckets.has_value() && buckets->op == most->first.first && buckets->comm == most->first.second) {
    evidence.reductions_per_step = buckets->reductions_per_step;
    evidence.gradient_bytes /= buckets->reductions_per_step;
  }
  if (!rank.pytorch_memory.empty() && nccl::OperationOf(most->first.first) == nccl::Operation::kAllReduce)
    evidence.buckets = most->second.calls / evidence.reductions_per_step;
  const bool scatters = nccl::OperationOf(most->first.first) == nccl::Operation::kReduceScatter;
  const CommunicationRole role = role_of(most->first.second);
  if (scatters) evidence.gradient_bytes *= most->second.ranks;
  if (scatters || role == CommunicationRole::kSharedState) evidence.state_shards = most->second.ranks;
  if (role == CommunicationRole::kSharded) evidence.weight_shards = most->second.ranks;
  evidence.gradient_element_bytes = most->second.mixed ? 0 : most->second.element_bytes;
  evidence.reduced_by = most->first.first;
  return evidence;
}

void SetHoldings(const std::set<CallSize>& in_forward, Report& report) {
  for (RankReport& rank : report.ranks) {
    const HoldingEvidence evidence = EvidenceOf(rank, in_forward, report.communication);
    const auto set = [&](std::optional<MemoryLifetimesReport>& lifetimes) {
      if (lifetimes.has_value()) lifetimes->holdings = HoldingsOf(*lifetimes, evidence);
    };
    for (PytorchMemoryReport& p : rank.pytorch_memory) set(p.lifetimes);
    for (DeviceMemoryReport& d : rank.device_memory) set(d.lifetimes);
  }
}

}  // namespace gpuprobe::analysis
