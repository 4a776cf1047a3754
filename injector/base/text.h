// Builds text in a fixed buffer: paths, and the lines that the probe may print.
//
// It replaces snprintf, which takes the locale's locks, and std::string, which uses the program's allocator.
// Thread: any. Allocation: none. Failure: text is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gpuprobe::injector {

// The part of `text` from `from` on, `count` characters at most: string_view::substr without its exception.
constexpr std::string_view Slice(std::string_view text, size_t from,
                                 size_t count = std::string_view::npos) noexcept {
  if (from > text.size()) from = text.size();
  const size_t rest = text.size() - from;
  return {text.data() + from, count < rest ? count : rest};
}

constexpr bool StartsWith(std::string_view text, std::string_view start) noexcept {
  return Slice(text, 0, start.size()) == start;
}

template <size_t kCapacity>
class TextBuffer {
 public:
  TextBuffer& Add(std::string_view text) noexcept {
    const size_t room = kCapacity - 1 - size_;
    const size_t count = text.size() < room ? text.size() : room;
    if (count > 0) std::memcpy(data_ + size_, text.data(), count);
    cut_ = cut_ || count < text.size();
    size_ += count;
    data_[size_] = '\0';
    return *this;
  }
  // Decimal, with leading zeros up to `width` digits.
  TextBuffer& AddNumber(uint64_t value, int width = 1) noexcept {
    char digits[24];
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value > 0 && count < 20);
    while (count < width && count < 20) digits[count++] = '0';
    while (count > 0) {
      --count;
      Add({digits + count, 1});
    }
    return *this;
  }
  void Clear() noexcept {
    size_ = 0;
    cut_ = false;
    data_[0] = '\0';
  }

  const char* c_str() const noexcept { return data_; }
  std::string_view view() const noexcept { return {data_, size_}; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  bool cut() const noexcept { return cut_; }

 private:
  char data_[kCapacity] = {};
  size_t size_ = 0;
  bool cut_ = false;
};

}  // namespace gpuprobe::injector
