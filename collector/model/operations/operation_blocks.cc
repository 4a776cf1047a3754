#include "collector/model/operations/operation_blocks.h"

#include <iterator>
#include <utility>

namespace gpuprobe::model {

void OperationBlocks::Take(OperationBlocks& other) {
  blocks_.insert(blocks_.end(), std::make_move_iterator(other.blocks_.begin()),
                 std::make_move_iterator(other.blocks_.end()));
  size_ += std::exchange(other.size_, 0);
  other.blocks_.clear();
}

void OperationBlocks::Clear() {
  for (std::unique_ptr<Block>& block : blocks_) Free(std::move(block));
  blocks_.clear();
  size_ = 0;
}

void OperationBlocks::AddBlock() {
  std::vector<std::unique_ptr<Block>>& free = FreeBlocks();
  if (free.empty()) {
    blocks_.push_back(std::make_unique<Block>());
    return;
  }
  blocks_.push_back(std::move(free.back()));
  free.pop_back();
}

void OperationBlocks::Free(std::unique_ptr<Block> block) {
  constexpr size_t kMost = 2048;  // more than a batch has
  std::vector<std::unique_ptr<Block>>& free = FreeBlocks();
  if (free.size() == kMost) return;
  block->count = 0;
  free.push_back(std::move(block));
}

std::vector<std::unique_ptr<OperationBlocks::Block>>& OperationBlocks::FreeBlocks() {
  static thread_local std::vector<std::unique_ptr<Block>> free;
  return free;
}

}  // namespace gpuprobe::model
