// A place in a Python program, and how it is said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

struct PythonFrame {
  std::string function;
  std::string file;
  uint32_t line = 0;  // 0: not known

  static constexpr void Declare(auto& fields) {
    fields("function", &PythonFrame::function, "qualified from Python 3.11 on");
    fields("file", &PythonFrame::file, "as it was compiled");
    fields("line", &PythonFrame::line, "`null`: not known").NullIfZero();
  }
};

// Files of libraries without the folder that the interpreter found them in: "torch/nn/modules/module.py".
std::string ShortPythonFile(const std::string& file);
// "Loader.fetch (train.py:14)"
std::string PythonFrameText(const PythonFrame& frame);
// The innermost frame, and the innermost of the program's own if that is a library's: "Module._call_impl
// (torch/nn/modules/module.py:1790), called from train (train.py:13)". Empty for an empty stack.
std::string PythonPlace(const std::vector<PythonFrame>& stack);

}  // namespace gpuprobe::analysis
