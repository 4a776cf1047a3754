// Operations in order of arrival, in reusable blocks.
//
// OperationWindow puts them into order; operations that wait for their launch are kept in blocks as well, and
// go to the window without being copied. An operation is written once, in its final place. Freed blocks are
// reused by other owners on the same thread, so that a thousand ranks hold little more than their waiting
// operations.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collector/model/operations/operation.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class OperationBlocks {
 public:
  // Room for one more, which the caller fills.
  Operation& Next() {
    if (blocks_.empty() || blocks_.back()->count == kBlock) AddBlock();
    Block& block = *blocks_.back();
    ++size_;
    return block.operations[block.count++];
  }
  // Those of `other`, behind these.
  void Take(OperationBlocks& other);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // `visit(operation)`, in order.
  template <typename Visitor>
  void ForEach(Visitor visit) {
    for (const std::unique_ptr<Block>& block : blocks_)
      std::for_each(block->operations.begin(), block->operations.begin() + block->count, visit);
  }
  // The same until `found(operation)` is true; whether it ever was.
  template <typename Predicate>
  bool Any(Predicate found) const {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const std::unique_ptr<Block>& block) {
      return std::any_of(block->operations.begin(), block->operations.begin() + block->count, found);
    });
  }
  // `visit(place, operation)`, in order: At(place) is the operation, until one is added or erased.
  template <typename Visitor>
  void ForEachPlace(Visitor visit) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (uint32_t i = 0; i < blocks_[b]->count; ++i)
        visit(static_cast<uint32_t>(b) * kBlock + i, blocks_[b]->operations[i]);
    }
  }
  Operation& At(uint32_t place) { return blocks_[place / kBlock]->operations[place % kBlock]; }
  // `erased(operation)` is called once for each, in order.
  template <typename Predicate>
  void EraseIf(Predicate erased) {
    size_ = 0;
    std::erase_if(blocks_, [&](std::unique_ptr<Block>& block) {
      const auto first = block->operations.begin();
      block->count = static_cast<uint32_t>(std::remove_if(first, first + block->count, erased) - first);
      size_ += block->count;
      if (block->count != 0) return false;
      Free(std::move(block));
      return true;
    });
  }
  void Clear();

 private:
  // Small, because the operations of each batch that wait begin a block of their own.
  static constexpr uint32_t kBlock = 32;
  struct Block {
    uint32_t count = 0;
    std::array<Operation, kBlock> operations;
  };

  void AddBlock();
  static void Free(std::unique_ptr<Block> block);
  // The calling thread's.
  static std::vector<std::unique_ptr<Block>>& FreeBlocks();

  std::vector<std::unique_ptr<Block>> blocks_;  // none is empty
  size_t size_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    std::vector<Operation> all;
    all.reserve(size_);
    ForEach([&all](const Operation& operation) { all.push_back(operation); });
    archive(all);
    archive.Members(this, Rebuilt(blocks_, size_));
    if constexpr (Archive::kReads) {
      Clear();
      for (const Operation& operation : all) Next() = operation;
    }
  }
};

}  // namespace gpuprobe::model
