// Turns a fuzzer's bytes into decisions, so that any input describes a well-formed message and a small change
// of the input is a small change of the message.
//
// Example: Choices choices("\x02\x05"); choices.Below(3) is 2, choices.Below(10) is 5, everything after that
// is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpuprobe::fuzz {

class Choices {
 public:
  explicit Choices(std::string_view bytes) : rest_(bytes) {}
  Choices(const uint8_t* data, size_t size) : Choices({reinterpret_cast<const char*>(data), size}) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte();
  // 0 .. count - 1; count > 0 and at most 65536.
  uint32_t Below(uint32_t count);
  // True once in `of` times.
  bool Rarely(uint32_t of) { return Below(of) == of - 1; }
  // Mostly small, as ids and counts are; sometimes as far apart as times are; now and then at a limit of its
  // type.
  uint64_t Number();
  // A name that the analysis knows, or bytes as they come.
  std::string Text();
  // What is left.
  std::string_view Rest();

 private:
  uint64_t Fixed(int bytes);

  std::string_view rest_;
};

}  // namespace gpuprobe::fuzz
