// Makes protozero usable in code without exceptions, and provides the bounded buffer that it writes to.
//
// protozero's reader throws and its writer's destructor catches, which does not compile without exceptions.
// We use only the writer, on a buffer that cannot throw, so the keywords are compiled away around its
// headers. Only this header includes protozero. Thread: any, one writer at a time. Allocation: none. Failure:
// a field that does not fit is not written and sets `overflowed`.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

// Nothing in here may end the host: protozero's own checks are for code that is still being written.
#define protozero_assert(condition)
#if !defined(__cpp_exceptions)
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
// Left alone by clang-format, which would turn catch into a macro without arguments.
// clang-format off
#define throw (void)
#define try if (true)
#define catch(...) if (false)
// clang-format on
#endif
#include <protozero/basic_pbf_writer.hpp>
#if !defined(__cpp_exceptions)
#undef throw
#undef try
#undef catch
#endif

namespace gpuprobe::injector {

// A fixed piece of memory that is filled from its start.
struct WireBuffer {
  char* data = nullptr;
  size_t capacity = 0;
  size_t size = 0;
  bool overflowed = false;

  size_t room() const noexcept { return capacity - size; }
};

using WireWriter = protozero::basic_pbf_writer<WireBuffer>;

// A generated tag as the number that protozero takes.
template <typename Tag>
constexpr protozero::pbf_tag_type Number(Tag tag) noexcept {
  return static_cast<protozero::pbf_tag_type>(tag);
}

// Bytes that a field header (tag and length) takes at most.
inline constexpr size_t kFieldOverhead = 16;

}  // namespace gpuprobe::injector

namespace protozero {

template <>
struct buffer_customization<gpuprobe::injector::WireBuffer> {
  using Buffer = gpuprobe::injector::WireBuffer;

  static bool Fits(Buffer* buffer, std::size_t count) noexcept {
    // After the first that does not fit, nothing is written: the writer would take a place that it could not
    // reserve for its own, and write a length over what lies before it.
    if (!buffer->overflowed && count <= buffer->room()) return true;
    buffer->overflowed = true;
    return false;
  }
  static std::size_t size(const Buffer* buffer) noexcept { return buffer->size; }
  static void append(Buffer* buffer, const char* data, std::size_t count) noexcept {
    if (count == 0 || !Fits(buffer, count)) return;
    std::memcpy(buffer->data + buffer->size, data, count);
    buffer->size += count;
  }
  static void append_zeros(Buffer* buffer, std::size_t count) noexcept {
    if (!Fits(buffer, count)) return;
    std::memset(buffer->data + buffer->size, 0, count);
    buffer->size += count;
  }
  static void resize(Buffer* buffer, std::size_t size) noexcept {
    if (size <= buffer->size) buffer->size = size;
  }
  static void reserve_additional(Buffer* /*buffer*/, std::size_t /*count*/) noexcept {}
  static void erase_range(Buffer* buffer, std::size_t from, std::size_t to) noexcept {
    if (buffer->overflowed)
      return;  // positions no longer mean anything; the whole buffer will be thrown away
    std::memmove(buffer->data + from, buffer->data + to, buffer->size - to);
    buffer->size -= to - from;
  }
  static char* at_pos(Buffer* buffer, std::size_t position) noexcept { return buffer->data + position; }
  static void push_back(Buffer* buffer, char byte) noexcept {
    if (!Fits(buffer, 1)) return;
    buffer->data[buffer->size++] = byte;
  }
};

}  // namespace protozero
