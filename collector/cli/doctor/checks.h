// Judges what was looked at: what will be recorded, what will not, and what to do about it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collector/cli/doctor/facts.h"

namespace gpuprobe::cli::doctor {

enum class State : uint8_t {
  kOk,
  kNote,     // good to know; everything is recorded as asked
  kWarning,  // something will be missing or misleading, or may be
  kProblem,  // little or nothing will be recorded, or the command will not run
};

struct Check {
  std::string subject;
  State state = State::kOk;
  std::string fact;
  std::string remedy;  // a sentence; empty: kOk
};
using Checks = std::vector<Check>;

// In the order in which they are read.
Checks Diagnose(const Facts& facts);

// Parts of it. Each adds what it has to say, and nothing of what was not looked at.
void JudgeProcess(const Facts& facts, Checks& checks);
void JudgeCommand(const CommandFacts& command, Checks& checks);
void JudgeLibrary(const LibraryFacts& library, Checks& checks);
void JudgeGpus(const Facts& facts, Checks& checks);
void JudgeCupti(const Facts& facts, Checks& checks);
void JudgeEnvironment(const Facts& facts, Checks& checks);
void JudgeSandbox(const Facts& facts, Checks& checks);
void JudgeLimits(const Facts& facts, Checks& checks);
void JudgeCpus(const Facts& facts, Checks& checks);
void JudgeCollector(const Facts& facts, Checks& checks);
void JudgeRecords(const Facts& facts, Checks& checks);
void JudgeHosts(const Facts& facts, Checks& checks);
void JudgeStacks(const Facts& facts, Checks& checks);

// The value of a variable; empty: it has none.
std::string ValueOf(const Facts& facts, const std::string& name);
// Ranks on this host, of a command or by a launcher's variables; 0: not known.
int RanksHere(const Facts& facts);
// Whether the probe stays out of the process (injector/core/sandbox.h).
bool IsInSandbox(const SandboxFacts& sandbox);

}  // namespace gpuprobe::cli::doctor
