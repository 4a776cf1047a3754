// Which stacks count as the same place: the rank that is elsewhere must not hide among the others, nor the
// others look odd.
#include "collector/cli/stacks_screen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpuprobe::cli {
namespace {

using observe::StackFrame;

StackFrame Native(const std::string& function, const std::string& object, int line = 0, uint64_t offset = 0) {
  StackFrame frame;
  frame.function = function;
  frame.native = true;
  frame.object = object;
  frame.line = line;
  frame.offset = offset;
  return frame;
}

StackFrame Python(const std::string& function, int line) {
  StackFrame frame;
  frame.function = function;
  frame.file = "train.py";
  frame.line = line;
  return frame;
}

class StackGroups : public ::testing::Test {
 protected:
  void Add(char state, const std::vector<StackFrame>& frames) {
    LabelledStacks& rank = ranks_.emplace_back();
    rank.process.pid = static_cast<pid_t>(ranks_.size());
    observe::ThreadStack& thread = rank.process.threads.emplace_back();
    thread.tid = rank.process.pid;
    thread.state = state;
    thread.frames = frames;
  }
  // The processes in each group, in order: "2|1 3".
  std::string Groups() const {
    std::string text;
    for (const StackGroup& group : GroupStacks(ranks_, false)) {
      if (!text.empty()) text += "|";
      for (const StackGroup::Member& member : group.members) {
        if (&member != &group.members.front()) text += " ";
        text += std::to_string(member.process->process.pid);
      }
    }
    return text;
  }

 private:
  std::vector<LabelledStacks> ranks_;
};

constexpr char kCuda[] = "/usr/lib/libcuda.so.1";
constexpr char kExtension[] = "/opt/ext.so";

TEST_F(StackGroups, ThreadsThatWaitAreInTheSameCalls) {
  for (const int line : {12, 15, 12})
    Add('S', {Native("read", "/lib/libc.so.6"), Native("Fetch", kExtension, line), Python("train", 7)});
  EXPECT_EQ(Groups(), "2|1 3");
}

TEST_F(StackGroups, TheInnermostFunctionMayBeAnywhere) {
  for (const int line : {12, 15, 12}) Add('S', {Native("Fetch", kExtension, line), Python("train", 7)});
  EXPECT_EQ(Groups(), "1 2 3");
}

TEST_F(StackGroups, ThreadsThatPollInALibraryAreInOnePlace) {
  Add('R', {Native("", kCuda, 0, 1), Native("", kCuda, 0, 2), Native("synchronize", kExtension, 3),
            Python("train", 7)});
  Add('R', {Native("clock_gettime", "[vdso]"), Native("", kCuda, 0, 5), Native("", kCuda, 0, 2),
            Native("synchronize", kExtension, 3), Python("train", 7)});
  Add('R', {Native("loop", kExtension, 20), Native("fetch", kExtension, 9), Python("train", 7)});
  Add('S', {Native("", kCuda, 0, 9), Native("synchronize", kExtension, 3), Python("train", 7)});
  EXPECT_EQ(Groups(), "3|1 2 4");
}

TEST_F(StackGroups, ThreadsThatRunPythonAreWhereTheirLinesAre) {
  Add('R', {Python("train", 7), Python("<module>", 20)});
  Add('R', {Python("train", 8), Python("<module>", 20)});
  Add('R', {Python("train", 7), Python("<module>", 20)});
  EXPECT_EQ(Groups(), "2|1 3");
}

TEST_F(StackGroups, ThreadsInDifferentLibrariesAreElsewhere) {
  Add('R', {Native("", kCuda, 0, 1), Python("train", 7)});
  Add('R', {Native("spin", "/usr/lib/libnccl.so.2"), Python("train", 7)});
  Add('R', {Native("", kCuda, 0, 5), Native("", kCuda, 0, 6), Python("train", 7)});
  EXPECT_EQ(Groups(), "2|1 3");
}

TEST(WithoutParameters, OnlyTheLastParametersAreLeftOut) {
  for (const auto& [whole, shown] : std::vector<std::pair<std::string, std::string>>{
           {"read", "read"},
           {"Find(int, char const*) const", "Find"},
           {"(anonymous namespace)::InRead()", "(anonymous namespace)::InRead"},
           {"a::operator()(int) const", "a::operator()"},
           {"std::function<void (int)>::operator()(int) const", "std::function<void (int)>::operator()"},
           {"Run(int)::{lambda(int)#1}::operator()(int) const", "Run(int)::{lambda(int)#1}::operator()"},
           {"f(void (*)(int)) [clone .cold]", "f"},
           {"Run(int)::local", "Run(int)::local"},
           {"operator()", "operator()"},
           {"__invoke_impl<void, Start()::<lambda()>&>", "__invoke_impl<void, Start()::<lambda()>&>"},
           {"(", "("},
           {")", ")"}})
    EXPECT_EQ(WithoutParameters(whole), shown) << whole;
}

}  // namespace
}  // namespace gpuprobe::cli
