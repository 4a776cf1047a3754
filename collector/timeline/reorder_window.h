// Hands out records in the order in which they start, although they come only nearly in that order.
//
// The last `size` records are held back; a record that starts before one already handed out comes late. Where
// records start together, longer ones come first, so that an enclosing range precedes what is in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuprobe::timeline {

template <typename Record>
class ReorderWindow {
 public:
  explicit ReorderWindow(size_t size) : size_(size) {}

  // `order`: decides among records that start and end together.
  void Add(uint64_t start_ns, uint64_t end_ns, uint64_t order, Record record) {
    uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(records_.size());
      records_.push_back(std::move(record));
    } else {
      slot = free_.back();
      free_.pop_back();
      records_[slot] = std::move(record);
    }
    keys_.push_back({start_ns, end_ns, order, slot});
  }

  // Calls visit(record) for records that need not wait any more; `all`: for all records.
  template <typename Visit>
  void Drain(bool all, Visit&& visit) {
    if (!all && keys_.size() < 2 * size_) return;
    std::sort(keys_.begin(), keys_.end());
    const size_t ready = all ? keys_.size() : keys_.size() - size_;
    for (size_t i = 0; i < ready; ++i) {
      visit(records_[keys_[i].slot]);
      free_.push_back(keys_[i].slot);
    }
    keys_.erase(keys_.begin(), keys_.begin() + static_cast<ptrdiff_t>(ready));
  }

 private:
  struct Key {
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t order;
    uint32_t slot;
    bool operator<(const Key& other) const {
      if (start_ns != other.start_ns) return start_ns < other.start_ns;
      if (end_ns != other.end_ns) return end_ns > other.end_ns;
      return order < other.order;
    }
  };
  size_t size_;
  std::vector<Key> keys_;
  std::vector<Record> records_;
  std::vector<uint32_t> free_;
};

}  // namespace gpuprobe::timeline
