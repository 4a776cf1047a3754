#include "injector/sampling/last_stack.h"

#include <algorithm>
#include <cstring>

#include "injector/base/flat_map.h"
#include "injector/base/text.h"
#include "injector/core/flight_recorder.h"

namespace gpuprobe::injector {

namespace {

// The end of a text that is too long says more: the file's name, the function's own.
template <size_t kBytes>
void FillEnd(char (&to)[kBytes], std::string_view text) noexcept {
  FillText(to, text.size() <= kBytes ? text : Slice(text, text.size() - kBytes));
}

}  // namespace

// Null: its texts are not known any more.
const flight::Frame* LastStack::Find(const stacks::PythonFrame& frame) noexcept {
  Text& text = texts_[MixBits(frame.place.code ^ MixBits(frame.place.instruction)) % kTexts];
  if (frame.known == 0) {
    text.place = frame.place;
    FillEnd(text.frame.function, frame.function);
    FillEnd(text.frame.file, frame.file);
    text.frame.line = static_cast<uint32_t>(std::max(frame.line, 0));
    text.frame.reserved = 0;
  }
  return text.place == frame.place ? &text.frame : nullptr;
}

void LastStack::Record(uint32_t tid, uint64_t now_ns, const char* call,
                       const stacks::PythonStack& stack) noexcept {
  flight::Stack& out = BeginStack();
  out.realtime_ns = now_ns;
  out.tid = tid;
  out.frames = 0;
  FillText(out.call, call == nullptr ? std::string_view() : std::string_view(call));
  std::memset(out.frame, 0, sizeof(out.frame));
  for (size_t i = 0; i < stack.size(); ++i) {
    const flight::Frame* frame = Find(stack[i]);  // also of those beyond, whose texts come only once
    if (frame != nullptr && out.frames < flight::kFrames) out.frame[out.frames++] = *frame;
  }
  EndStack(out);
}

}  // namespace gpuprobe::injector
