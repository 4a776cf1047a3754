#include "collector/observe/main_stack.h"

#include <algorithm>

namespace gpuprobe::observe {
namespace {

bool SameFunction(const v1::PythonFrame& a, const v1::PythonFrame& b) {
  return a.function() == b.function() && a.file() == b.file();
}

// The innermost function may go from line to line.
bool SamePlace(const v1::PythonStack& a, const v1::PythonStack& b) {
  if (a.frames_size() != b.frames_size() || a.frames_size() == 0) return false;
  for (int i = 0; i < a.frames_size(); ++i) {
    if (!SameFunction(a.frames(i), b.frames(i)) || (i > 0 && a.frames(i).line() != b.frames(i).line()))
      return false;
  }
  return true;
}

}  // namespace

bool MainStack::Read(v1::PythonStack& stack) {
  if (!open_) {
    if (looks_until_search_-- > 0) return false;
    looks_until_search_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    open_ = process_->Open() == stacks::Unreadable::kNo;
  }
  static auto* frames = new stacks::PythonStack;  // large, and only one thread looks
  bool found = false;
  process_->ForEachThread([&](const stacks::PythonThread& thread) {
    if (found || thread.tid != pid_) return;
    found = process_->ReadStack(thread, *frames) && frames->size() > 0;
  });
  if (!found) return false;
  for (size_t i = 0; i < std::min(frames->size(), kMostFrames); ++i) {
    const stacks::PythonFrame& frame = (*frames)[i];
    v1::PythonFrame& to = *stack.add_frames();
    to.set_function(std::string(frame.function));
    to.set_file(std::string(frame.file));
    to.set_line(static_cast<uint32_t>(frame.line));
  }
  return true;
}

void MainStack::Look(v1::ProcessObservation& observation) {
  v1::PythonStack stack;
  if (!Read(stack)) stack.Clear();
  if (SamePlace(stack, last_)) *observation.mutable_python() = stack;
  last_ = std::move(stack);
}

}  // namespace gpuprobe::observe
