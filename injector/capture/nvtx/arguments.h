// What the program passes to NVTX's functions: texts, attributes and payloads.
//
// Nothing is read before a guard has let the thread in, and then only through program_memory.h: the program
// may pass bad pointers. Thread: any application thread. Allocation: none. Failure: a text that cannot be
// read is kUnreadable, as are the attributes'; a payload or a definition's name that cannot be read is
// counted as LOSS_UNREADABLE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/capture/nvtx/payload_abi.h"
#include "injector/core/events.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nvtx {

inline constexpr std::string_view kUnreadable = "(unreadable)";

// One call's text and attributes.
struct RangeText {
  std::string_view text;  // the program's, or in `space`
  uint32_t category = 0;
  uint32_t color = 0;  // ARGB
  wire::PayloadKind payload_kind = wire::PayloadKind::kPayloadKindNone;
  uint64_t payload = 0;
  const abi::PayloadData* extended =
      nullptr;  // with it, in a layout that the program described; not read yet
  size_t extended_count = 0;
  char space[kMaxNameBytes + 1];
};

// A call's arguments, not read yet; `read` knows their kind.
struct Passed {
  void (*read)(ThreadState& thread, const Passed& passed, RangeText* what) noexcept = nullptr;
  const void* place = nullptr;
  size_t count = 0;              // of payloads
  const void* domain = nullptr;  // their layouts'
};

Passed PassedText(const char* text) noexcept;
Passed PassedText(const wchar_t* text) noexcept;
// NVTX's nvtxEventAttributes_t.
Passed PassedAttributes(const void* attributes) noexcept;
// A call that consists of payloads is named after the layout of the first one.
Passed PassedPayloads(const void* domain, const abi::PayloadData* data, size_t count) noexcept;

// The text of a definition: a name, or a string that is registered. Any thread, also without a guard.
class DefinitionText {
 public:
  explicit DefinitionText(const char* text) noexcept;
  explicit DefinitionText(const wchar_t* text) noexcept;
  // False: there is none, which is counted.
  bool readable() const noexcept { return readable_; }
  std::string_view view() const noexcept { return {space_, size_}; }

 private:
  void Take(ptrdiff_t size) noexcept;

  char space_[kMaxNameBytes + 1];
  size_t size_ = 0;
  bool readable_ = false;
};

}  // namespace gpuprobe::injector::nvtx
