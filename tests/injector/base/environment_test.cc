#include "injector/base/environment.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "injector/base/program_functions.h"

namespace gpuprobe::injector {
namespace {

// An environment that stands for the kernel's array; the test's own comes back afterwards.
class Environment : public ::testing::Test {
 protected:
  void SetUp() override { environ = kernel_array_; }
  void TearDown() override { environ = before_; }
  static char* Number(uintptr_t number) { return reinterpret_cast<char*>(number); }
  static std::vector<std::string> Now() {
    std::vector<std::string> entries;
    for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
    return entries;
  }

  char first_[8] = "FIRST=1";
  char second_[9] = "SECOND=2";
  // As on a new process's stack: the auxiliary vector follows, here with a page size and its end.
  char* kernel_array_[7] = {first_, second_, nullptr, Number(AT_PAGESZ), Number(4096), nullptr, nullptr};

 private:
  char** const before_ = environ;
};

TEST_F(Environment, VariablesAreAddedBehindThoseOfTheKernelsArray) {
  const Variable ours[] = {{"OURS", "a"}, {"ALSO", "b"}};
  EXPECT_TRUE(AddBeforeMain(kernel_array_, ours, 2));
  EXPECT_EQ(Now(), (std::vector<std::string>{"FIRST=1", "SECOND=2", "OURS=a", "ALSO=b"}));
  EXPECT_EQ(environ[0], first_);
}

TEST_F(Environment, TheAuxiliaryVectorFollowsTheLongerArray) {
  const Variable ours[] = {{"SECOND", "ours"}, {"OURS", "a"}};
  ASSERT_TRUE(AddBeforeMain(kernel_array_, ours, 2));
  char** end = environ;
  while (*end != nullptr) ++end;
  EXPECT_EQ(std::vector<char*>(end + 1, end + 4),
            (std::vector<char*>{Number(AT_PAGESZ), Number(4096), nullptr}));
}

TEST_F(Environment, AVariableThatIsSetIsLeftAlone) {
  const Variable ours[] = {{"SECOND", "ours"}, {"ALSO", "b"}};
  EXPECT_TRUE(AddBeforeMain(kernel_array_, ours, 2));
  EXPECT_EQ(Now(), (std::vector<std::string>{"FIRST=1", "SECOND=2", "ALSO=b"}));
}

TEST_F(Environment, TheArrayStaysIfNothingIsMissing) {
  const Variable ours[] = {{"SECOND", "ours"}};
  EXPECT_TRUE(AddBeforeMain(kernel_array_, ours, 1));
  EXPECT_EQ(environ, kernel_array_);
}

TEST_F(Environment, AnArrayOfTheProgramsOwnIsLeftAlone) {
  char* own[] = {first_, nullptr};
  environ = own;
  const Variable ours[] = {{"OURS", "a"}};
  EXPECT_FALSE(AddBeforeMain(kernel_array_, ours, 1));
  EXPECT_EQ(environ, own);
  EXPECT_FALSE(AddBeforeMain(nullptr, ours, 1));
}

TEST_F(Environment, NothingIsAddedWhileOtherThreadsRun) {
  const Variable ours[] = {{"OURS", "a"}};
  std::thread([&] {
    EXPECT_FALSE(AddBeforeMain(kernel_array_, ours, 1));
    EXPECT_EQ(environ, kernel_array_);
  }).join();
}

TEST_F(Environment, WhatMainGetsCanGrowAndShrinkAsUsual) {
  const Variable ours[] = {{"OURS", "a"}};
  ASSERT_TRUE(AddBeforeMain(kernel_array_, ours, 1));
  EXPECT_EQ(setenv("THIRD", "3", 1), 0);
  EXPECT_EQ(unsetenv("OURS"), 0);
  EXPECT_STREQ(getenv("THIRD"), "3");
  EXPECT_EQ(getenv("OURS"), nullptr);
}

TEST_F(Environment, AnAnswerIsGivenOnlyIfTheEnvironmentHasNone) {
  ASSERT_TRUE(AnswerVariable("OURS", "answer"));
  ASSERT_TRUE(AnswerVariable("SECOND", "answer"));
  EXPECT_STREQ(AnsweringGetenv("OURS"), "answer");
  EXPECT_STREQ(AnsweringGetenv("SECOND"), "2");
  EXPECT_EQ(AnsweringGetenv("THIRD"), nullptr);
  EXPECT_EQ(environ, kernel_array_);
  EXPECT_EQ(getenv("OURS"), nullptr);
}

TEST_F(Environment, AProgramsOwnGetenvIsAskedFirst) {
  const ProgramFunctions before = program_functions;
  program_functions.getenv = [](const char*) -> char* {
    static char theirs[] = "theirs";
    return theirs;
  };
  ASSERT_TRUE(AnswerVariable("OURS", "answer"));
  EXPECT_STREQ(AnsweringGetenv("OURS"), "theirs");
  program_functions.getenv = [](const char*) -> char* { return nullptr; };
  EXPECT_STREQ(AnsweringGetenv("OURS"), "answer");
  EXPECT_EQ(AnsweringGetenv(nullptr), nullptr);
  program_functions = before;
}

TEST_F(Environment, AnswersAreFew) {
  EXPECT_TRUE(AnswerVariable("A", "1"));
  EXPECT_TRUE(AnswerVariable("A", "1"));
  EXPECT_TRUE(AnswerVariable("B", "1"));
  EXPECT_TRUE(AnswerVariable("C", "1"));
  EXPECT_TRUE(AnswerVariable("D", "1"));
  EXPECT_FALSE(AnswerVariable("E", "1"));
}

}  // namespace
}  // namespace gpuprobe::injector
