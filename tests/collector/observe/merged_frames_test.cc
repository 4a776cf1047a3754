// Python frames in the places of CPython's evaluation loop, with the native stacks that different versions
// have.
#include "collector/observe/merged_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuprobe::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kLoop[] = "_PyEval_EvalFrameDefault";
constexpr char kPython[] = "/usr/bin/python3.11";
constexpr char kC[] = "/lib/libc.so.6";
constexpr char kExtension[] = "/lib/torch.so";

// The stack pointers of calls are 100, 200, 300 ...
NativeStack Native(const std::vector<std::pair<std::string, std::string>>& calls, bool whole = true) {
  NativeStack stack;
  stack.whole = whole;
  for (const auto& [symbol, object] : calls) {
    NativeFrame& call = stack.calls.emplace_back();
    call.symbol = symbol;
    call.stack_pointer = 100 * stack.calls.size();
    StackFrame& frame = call.frames.emplace_back();
    frame.function = symbol;
    frame.native = true;
    frame.object = object;
  }
  return stack;
}

PythonCall Python(const std::string& function, bool entry, uint64_t loop = 0) {
  PythonCall call;
  call.frame.function = function;
  call.frame.file = "train.py";
  call.entry = entry;
  call.loop = loop;
  return call;
}

std::vector<std::string> Names(const std::vector<StackFrame>& frames) {
  std::vector<std::string> names;
  for (const StackFrame& frame : frames) names.push_back(frame.function);
  return names;
}

TEST(MergedFramesTest, PythonFramesReplaceTheLoopAndTheInterpretersOwnCalls) {
  const MergedStack merged = MergeFrames(Native({{"read", kC},
                                                 {"os_read", kPython},
                                                 {"cfunction_vectorcall_FASTCALL", kPython},
                                                 {kLoop, kPython},
                                                 {"_PyEval_Vector", kPython},
                                                 {"Py_RunMain", kPython},
                                                 {"__libc_start_main", kC},
                                                 {"_start", kPython}}),
                                         {Python("fetch", false), Python("<module>", true)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre("read", "os_read", "fetch", "<module>"));
  EXPECT_THAT(merged.apart, IsEmpty());
}

TEST(MergedFramesTest, NativeCodeBetweenTwoLoopsStaysBetweenTheirFrames) {
  const MergedStack merged =
      MergeFrames(Native({{"read", kC},
                          {kLoop, kPython},
                          {"PyObject_Call", kPython},
                          {"backward", kExtension},
                          {"method_vectorcall", kPython},
                          {"_PyEval_EvalFrameDefault.cold", kPython},
                          {"start_thread", kC}}),
                  {Python("hook", true), Python("train", false), Python("main", true)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre("read", "hook", "backward", "train", "main"));
}

TEST(MergedFramesTest, BeforePython311EachFrameHasALoopOfItsOwn) {
  const MergedStack merged = MergeFrames(
      Native({{"read", kC}, {kLoop, kPython}, {"_PyFunction_Vectorcall", kPython}, {kLoop, kPython}}),
      {Python("fetch", true), Python("<module>", true)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre("read", "fetch", "<module>"));
}

TEST(MergedFramesTest, AProgramThatEmbedsPythonKeepsItsOwnFrames) {
  const MergedStack merged = MergeFrames(Native({{"read", kC},
                                                 {kLoop, "/lib/libpython3.11.so.1.0"},
                                                 {"PyRun_String", "/lib/libpython3.11.so.1.0"},
                                                 {"Solver::Step", "/opt/solver"},
                                                 {"main", "/opt/solver"},
                                                 {"__libc_start_main", kC}}),
                                         {Python("callback", true)}, true);
  EXPECT_THAT(Names(merged.frames),
              ElementsAre("read", "callback", "Solver::Step", "main", "__libc_start_main"));
}

TEST(MergedFramesTest, WithoutSymbolsTheLoopIsWhereItsFrameLies) {
  const NativeStack native = Native({{"read", kC},
                                     {"", kPython},
                                     {"", kPython},  // the loop: 300 to 400
                                     {"", kPython},
                                     {"backward", kExtension},
                                     {"", kPython},  // 600 to 700
                                     {"", kPython}});
  const MergedStack merged =
      MergeFrames(native, {Python("hook", true, 350), Python("train", true, 650)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre("read", "hook", "backward", "train"));
}

TEST(MergedFramesTest, ALoopThatHasJustBegunHasNoFrameYet) {
  const MergedStack merged = MergeFrames(
      Native({{kLoop, kPython}, {"_PyEval_Vector", kPython}, {"apply", kExtension}, {kLoop, kPython}}),
      {Python("train", true)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre(kLoop, "_PyEval_Vector", "apply", "train"));
  EXPECT_THAT(merged.apart, IsEmpty());
}

TEST(MergedFramesTest, StacksThatDoNotFitAreShownApart) {
  const MergedStack merged = MergeFrames(Native({{kLoop, kPython}, {kLoop, kPython}, {kLoop, kPython}}),
                                         {Python("train", true)}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre(kLoop, kLoop, kLoop));
  EXPECT_THAT(Names(merged.apart), ElementsAre("train"));

  const MergedStack without = MergeFrames(Native({{"read", kC}}), {Python("train", true)}, true);
  EXPECT_THAT(Names(without.frames), ElementsAre("read"));
  EXPECT_THAT(Names(without.apart), ElementsAre("train"));
}

TEST(MergedFramesTest, PythonGoesOnWhereNativeFramesAreLost) {
  const MergedStack none = MergeFrames(Native({{"", "/opt/jit.so"}}, false),
                                       {Python("fetch", false), Python("<module>", true)}, true);
  EXPECT_THAT(Names(none.frames), ElementsAre("", "fetch", "<module>"));
  const MergedStack some = MergeFrames(Native({{"read", kC}, {kLoop, kPython}, {"", "/opt/jit.so"}}, false),
                                       {Python("fetch", true), Python("<module>", true)}, true);
  EXPECT_THAT(Names(some.frames), ElementsAre("read", "fetch", "", "<module>"));
}

TEST(MergedFramesTest, OfACutPythonStackTheInnermostFramesFit) {
  const MergedStack merged =
      MergeFrames(Native({{"read", kC}, {kLoop, kPython}, {kLoop, kPython}, {kLoop, kPython}}),
                  {Python("a", true), Python("b", true)}, false);
  EXPECT_THAT(Names(merged.frames), ElementsAre("read", "a", "b"));
}

TEST(MergedFramesTest, InlinedFunctionsStayWithTheirCall) {
  NativeStack native = Native({{"Wait", kExtension}, {kLoop, kPython}});
  StackFrame inlined = native.calls.front().frames.front();
  inlined.function = "lock";
  native.calls.front().frames.insert(native.calls.front().frames.begin(), inlined);
  EXPECT_THAT(Names(MergeFrames(native, {Python("train", true)}, true).frames),
              ElementsAre("lock", "Wait", "train"));
}

TEST(MergedFramesTest, AThreadWithoutPythonKeepsAll) {
  const NativeStack native = Native({{"poll", kC}, {"worker", kExtension}, {"start_thread", kC}});
  const MergedStack merged = MergeFrames(native, {}, true);
  EXPECT_THAT(Names(merged.frames), ElementsAre("poll", "worker", "start_thread"));
}

}  // namespace
}  // namespace gpuprobe::observe
