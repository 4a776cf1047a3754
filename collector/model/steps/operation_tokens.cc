#include "collector/model/steps/operation_tokens.h"

namespace gpuprobe::model {

uint32_t OperationTokens::IdOf(uint64_t hash, uint32_t otherwise) {
  if (const auto found = ids_.find(hash); found != ids_.end()) return found->second;
  if (ids_.size() >= kMax) return otherwise;
  return ids_.emplace(hash, static_cast<uint32_t>(ids_.size()) + 1).first->second;
}

}  // namespace gpuprobe::model
