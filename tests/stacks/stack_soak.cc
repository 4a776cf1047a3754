// stack_soak PID SAMPLES: reads the Python stacks of a process until there were so many, while it runs.
// Prints the counts and every distinct pair of a frame and its caller, as "counts WHOLE CUT TORN ENDED" and
// "pair FUNCTION LINE CALLER LINE FILE" with tabs.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "stacks/python_stack.h"

namespace {

using gpuprobe::stacks::PythonFrame;

std::string Text(const PythonFrame& frame) {
  return std::string(frame.function) + "\t" + std::to_string(frame.line);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  static gpuprobe::stacks::PythonStack stack;
  gpuprobe::stacks::PythonProcess process(std::atoi(argv[1]));
  if (process.Open() != gpuprobe::stacks::Unreadable::kNo) return 1;
  const long samples = std::atol(argv[2]);
  long counts[3] = {};
  long ended = 0;
  std::set<std::string> pairs;
  for (long seen = 0; seen < samples;) {
    const long before = seen;
    process.ForEachThread([&](const gpuprobe::stacks::PythonThread& thread) {
      ++seen;
      if (!process.ReadStack(thread, stack)) {
        ++ended;
        return;
      }
      ++counts[static_cast<int>(stack.quality())];
      for (size_t i = 0; i < stack.size(); ++i) {
        pairs.insert(Text(stack[i]) + "\t" + (i + 1 < stack.size() ? Text(stack[i + 1]) : "\t") + "\t" +
                     std::string(stack[i].file));
      }
    });
    if (seen == before) return 1;  // the process has ended
  }
  std::printf("counts\t%ld\t%ld\t%ld\t%ld\n", counts[0], counts[1], counts[2], ended);
  for (const std::string& pair : pairs) std::printf("pair\t%s\n", pair.c_str());
  return 0;
}
