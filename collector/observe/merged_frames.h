// Python frames among the native frames of a thread.
//
// A call of CPython's evaluation loop is one native frame, and runs one Python frame or several (3.11 and
// newer). They take its place, and that of the interpreter's own calls around it:
//
//   read                      libc            read
//   _Py_read, os_read         python          _Py_read, os_read
//   cfunction_call            python    ──►   Shards.read (train.py:6)
//   _PyEval_EvalFrameDefault  python          train (train.py:11)
//   Py_RunMain ... _start     python
#pragma once

#include <vector>

#include "collector/observe/native_frames.h"
#include "collector/observe/stack_frame.h"

namespace gpuprobe::observe {

struct PythonCall {
  StackFrame frame;
  bool entry = false;  // this and the next as in stacks::PythonFrame
  uint64_t loop = 0;
};

struct MergedStack {
  std::vector<StackFrame> frames;  // innermost first
  // Python frames that do not fit the native ones, because one of the stacks is not that of this moment.
  std::vector<StackFrame> apart;
};

// `python_whole`: the outermost Python frames are there, too.
MergedStack MergeFrames(const NativeStack& native, const std::vector<PythonCall>& python, bool python_whole);

}  // namespace gpuprobe::observe
