// What `gpuprobe stacks` prints: threads with equal stacks together, the odd ones first, since one rank that
// is elsewhere than all others is usually the one to look at.
#pragma once

#include <string>
#include <vector>

#include "collector/observe/process_stacks.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {

struct LabelledStacks {
  std::string label;  // "rank 3"; empty: only its pid is known
  observe::ProcessStacks process;
};

struct StackGroup {
  struct Member {
    const LabelledStacks* process;
    const observe::ThreadStack* thread;
  };
  std::vector<Member> members;  // with the same frames
};

// Of all threads, or of the main thread of each process. Smallest groups first, then by the first member.
std::vector<StackGroup> GroupStacks(const std::vector<LabelledStacks>& processes, bool all_threads);

// "ns::Find(int, char const*) const": "ns::Find".
std::string WithoutParameters(const std::string& function);

// Why there is no Python stack, with the remedy, as the rest of "no Python stack: ...".
std::string WhyUnreadable(const observe::ProcessStacks& process);

// "sleeping", "in read /data/x", "stopped"
std::string StateText(const observe::ThreadStack& thread);
// Where it is: its innermost function, and the innermost of the program's own, if that is another one. Empty:
// no stack is known.
std::string PlaceText(const observe::ThreadStack& thread);

std::string StacksText(const std::vector<LabelledStacks>& processes, bool all_threads,
                       const render::Screen& screen);
nlohmann::ordered_json StacksJson(const std::vector<LabelledStacks>& processes);

}  // namespace gpuprobe::cli
