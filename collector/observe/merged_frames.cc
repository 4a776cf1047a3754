#include "collector/observe/merged_frames.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::observe {
namespace {

using NativeCalls = std::vector<NativeFrame>;

// Compilers split functions, and then append to the name: "_PyEval_EvalFrameDefault.cold".
std::string_view WithoutSuffix(std::string_view symbol) { return symbol.substr(0, symbol.find('.')); }

bool IsEvaluation(const NativeFrame& call) {
  return WithoutSuffix(call.symbol) == "_PyEval_EvalFrameDefault";
}

// What the evaluation loop calls in order to call something else.
bool IsCallingConvention(std::string_view symbol) {
  constexpr std::string_view kPrefixes[] = {"PyEval_",
                                            "_PyEval_",
                                            "_TAIL_CALL_",
                                            "PyObject_Call",
                                            "_PyObject_Call",
                                            "PyObject_Vector",
                                            "_PyObject_Vector",
                                            "_PyObject_FastCall",
                                            "_PyObject_MakeTpCall",
                                            "PyVectorcall_",
                                            "_PyVectorcall_",
                                            "PyCFunction_",
                                            "_PyCFunction_",
                                            "_PyFunction_",
                                            "_PyMethodDef_",
                                            "_PyMethodDescr_",
                                            "cfunction_",
                                            "method_vectorcall",
                                            "method_call",
                                            "methoddescr_call",
                                            "call_function",
                                            "do_call_core",
                                            "trace_call_function",
                                            "object_vacall",
                                            "vectorcall_"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return symbol.starts_with(prefix); });
}

const std::string& ObjectOf(const NativeFrame& call) { return call.frames.front().object; }

// Of the C library, or of a `python3` whose interpreter is in libpython.
bool IsWhereThreadsBegin(const NativeFrame& call) {
  const std::string& object = ObjectOf(call);
  const std::string_view name = std::string_view(object).substr(object.rfind('/') + 1);
  constexpr std::string_view kNames[] = {"libc.so", "libc-", "libpthread", "ld-musl", "python"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

void Append(const NativeFrame& call, std::vector<StackFrame>& frames) {
  frames.insert(frames.end(), call.frames.begin(), call.frames.end());
}

// What one call of the evaluation loop runs.
struct PythonGroup {
  std::vector<StackFrame> frames;
  uint64_t loop = 0;
};

std::vector<PythonGroup> GroupByCall(const std::vector<PythonCall>& python) {
  std::vector<PythonGroup> groups;
  bool begins = true;
  for (const PythonCall& call : python) {
    if (begins) groups.emplace_back();
    groups.back().frames.push_back(call.frame);
    groups.back().loop = call.loop;
    begins = call.entry;
  }
  return groups;
}

// By where the loop's frame lies, or by name. Interpreters without symbols have the loop in pieces that
// nothing names.
std::vector<size_t> FindLoops(const NativeCalls& calls, const std::vector<PythonGroup>& groups) {
  std::vector<size_t> loops;
  for (const PythonGroup& group : groups) {
    const auto after = std::find_if(calls.begin(), calls.end(),
                                    [&](const NativeFrame& call) { return call.stack_pointer > group.loop; });
    if (group.loop == 0 || after == calls.begin() || after == calls.end()) break;
    loops.push_back(static_cast<size_t>(after - calls.begin()) - 1);
  }
  const bool in_order = std::is_sorted(loops.begin(), loops.end()) &&
                        std::adjacent_find(loops.begin(), loops.end()) == loops.end();
  if (!loops.empty() && in_order) return loops;
  loops.clear();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (IsEvaluation(calls[i])) loops.push_back(i);
  }
  return loops;
}

MergedStack Apart(const NativeStack& native, const std::vector<PythonCall>& python, bool behind) {
  MergedStack stack;
  for (const NativeFrame& call : native.calls) Append(call, stack.frames);
  for (const PythonCall& call : python) (behind ? stack.frames : stack.apart).push_back(call.frame);
  return stack;
}

// Native frames above the innermost call of the loop: what Python has called.
void AppendCalled(const NativeCalls& calls, size_t end, const std::string& interpreter,
                  std::vector<StackFrame>& frames) {
  while (end > 0 && ObjectOf(calls[end - 1]) == interpreter &&
         (IsCallingConvention(calls[end - 1].symbol) || (calls[end - 1].symbol.empty() && end > 1))) {
    --end;
  }
  for (size_t i = 0; i < end; ++i) Append(calls[i], frames);
}

}  // namespace

MergedStack MergeFrames(const NativeStack& native, const std::vector<PythonCall>& python, bool python_whole) {
  const NativeCalls& calls = native.calls;
  const std::vector<PythonGroup> groups = GroupByCall(python);
  const std::vector<size_t> loops = FindLoops(calls, groups);
  // A loop that has begun, or ended, has no Python frame.
  const size_t without = loops.size() == groups.size() + 1 ? 1 : 0;
  const bool fits = loops.size() == groups.size() + without ||
                    (!native.whole && groups.size() > loops.size()) ||
                    (!python_whole && groups.size() < loops.size());
  if (!fits || loops.empty() || groups.empty()) return Apart(native, python, loops.empty() && !native.whole);

  MergedStack stack;
  const std::string& interpreter = ObjectOf(calls[loops.front()]);
  const size_t first = python_whole ? without : 0;
  AppendCalled(calls, loops[first], interpreter, stack.frames);
  size_t group = 0;
  for (size_t loop = first; loop < loops.size() && group < groups.size(); ++loop, ++group) {
    stack.frames.insert(stack.frames.end(), groups[group].frames.begin(), groups[group].frames.end());
    const bool is_last = loop + 1 == loops.size();
    const size_t end = is_last ? calls.size() : loops[loop + 1];
    const auto from = calls.begin() + static_cast<ptrdiff_t>(loops[loop]) + 1;
    const auto to = calls.begin() + static_cast<ptrdiff_t>(end);
    // After the interpreter itself comes where the process or thread began.
    const bool is_plain = is_last && std::all_of(from, to, [&](const NativeFrame& call) {
                            return ObjectOf(call) == interpreter || IsWhereThreadsBegin(call);
                          });
    for (auto call = from; call != to && !is_plain; ++call) {
      if (ObjectOf(*call) != interpreter) Append(*call, stack.frames);
    }
  }
  for (; group < groups.size(); ++group)
    stack.frames.insert(stack.frames.end(), groups[group].frames.begin(), groups[group].frames.end());
  return stack;
}

}  // namespace gpuprobe::observe
