#include "collector/cli/stacks_screen.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "collector/observe/thread_copy.h"
#include "collector/report/python_stack.h"

namespace gpuprobe::cli {
namespace {

using observe::ProcessStacks;
using observe::StackFrame;
using observe::ThreadStack;
using render::Emphasis;
using render::Layout;

std::string VersionText(uint32_t version) {
  const std::string minor = absl::StrCat(version >> 24, ".", version >> 16 & 255);
  const uint32_t patch = version >> 8 & 255;
  // Before 3.11 a process does not say it.
  return version < 0x030b0000 ? minor : absl::StrCat(minor, ".", patch);
}

std::string NameOf(const LabelledStacks& process, bool with_pid) {
  std::string pid = absl::StrCat("pid ", process.process.pid);
  if (process.label.empty()) return pid;
  return with_pid ? absl::StrCat(process.label, " (", pid, ")") : process.label;
}

// "libc.so.6+0x86d36", or the address where no object is.
std::string ObjectText(const StackFrame& frame) {
  const std::string offset = absl::StrCat("0x", absl::Hex(frame.offset));
  return frame.object.empty() ? offset
                              : absl::StrCat(frame.object.substr(frame.object.rfind('/') + 1), "+", offset);
}

std::string FrameText(const StackFrame& frame) {
  if (!frame.native)
    return analysis::PythonFrameText({frame.function, frame.file, static_cast<uint32_t>(frame.line)});
  const std::string place = frame.line > 0 ? absl::StrCat(frame.file, ":", frame.line) : ObjectText(frame);
  return absl::StrCat(frame.function.empty() ? "?" : WithoutParameters(frame.function), " (", place, ")");
}

std::string WhyNoPython(const LabelledStacks& process, const ThreadStack& thread) {
  if (thread.python && thread.quality == stacks::StackQuality::kTorn)
    return "it changed each time that it was read; try again";
  const bool native = !thread.frames.empty() || !thread.why_no_native.empty();
  const stacks::Unreadable why = process.process.unreadable;
  const bool is_plain = why == stacks::Unreadable::kNo || why == stacks::Unreadable::kNoInterpreter;
  if (thread.python || (native && is_plain)) return "";
  return WhyUnreadable(process.process);
}

std::string FramesText(const LabelledStacks& process, const ThreadStack& thread) {
  std::string text;
  const auto add = [&](const auto&... parts) { absl::StrAppend(&text, "    ", parts..., "\n"); };
  for (const std::string& function : thread.kernel) add("[kernel] ", function);
  for (const StackFrame& frame : thread.frames) add(FrameText(frame));
  if (thread.native_cut && !thread.python) add("... frames further out cannot be found");
  if (!thread.python_apart.empty()) add("Python frames, which do not fit the native ones:");
  for (const StackFrame& frame : thread.python_apart) add(FrameText(frame));
  if (thread.python && thread.quality == stacks::StackQuality::kOuterMissing)
    add("... more than ", stacks::PythonStack::kMostFrames, " frames: the outer ones are left out");
  if (!thread.why_no_native.empty()) add("no native stack: ", thread.why_no_native);
  if (thread.stopped_ns > observe::ThreadCopier::kMostStoppedNs &&
      (thread.native_cut || thread.quality == stacks::StackQuality::kTorn)) {
    add("... let go after ", observe::ThreadCopier::kMostStoppedNs / 1'000'000, " ms: not all was read");
  }
  const std::string no_python = WhyNoPython(process, thread);
  if (!no_python.empty()) add("no Python stack: ", no_python);
  return text;
}

// "in futex", or for threads in different states "2 in futex, 1 running".
std::string StatesText(const StackGroup& group) {
  std::map<std::string, size_t> states;
  for (const StackGroup::Member& m : group.members) ++states[StateText(*m.thread)];
  if (states.size() == 1) return states.begin()->first;
  return absl::StrJoin(states, ", ", [](std::string* out, const auto& state) {
    absl::StrAppend(out, state.second, " ", state.first);
  });
}

std::string ThreadName(const ThreadStack& thread) {
  return absl::StrCat("thread ", thread.tid, thread.name.empty() ? "" : absl::StrCat(" (", thread.name, ")"));
}

std::string MembersText(const StackGroup& group, bool all_threads) {
  constexpr size_t kMostNamed = 16;
  std::vector<std::string> names;
  for (const StackGroup::Member& m : group.members) {
    if (names.size() == kMostNamed) break;
    const std::string name = NameOf(*m.process, group.members.size() == 1);
    names.push_back(all_threads ? absl::StrCat(name, " ", ThreadName(*m.thread)) : name);
  }
  const size_t more = group.members.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// "thread 12 (python3), in futex", "3 threads, 2 in futex, 1 running: 12 (python3), 13 (worker), ..."
std::string ThreadsText(const StackGroup& group) {
  if (group.members.size() == 1)
    return absl::StrCat(ThreadName(*group.members.front().thread), ", ", StatesText(group));
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kMostNamed, group.members.size()); ++i)
    names.push_back(std::string(absl::StripPrefix(ThreadName(*group.members[i].thread), "thread ")));
  const size_t more = group.members.size() - names.size();
  return absl::StrCat(group.members.size(), " threads, ", StatesText(group), ": ", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// Whether two native calls are in the same function; the innermost may be anywhere in it.
bool IsSameCall(const StackFrame& a, const StackFrame& b, bool innermost) {
  if (a.native != b.native || a.function != b.function || a.object != b.object) return false;
  if (!a.native) return a == b;
  return innermost || (a.line == b.line && (a.line > 0 || a.offset == b.offset));
}

// The only library that the innermost `count` frames are in, apart from the C library and the kernel's
// object, which everything calls. Nothing: Python, or several.
std::optional<std::string> OnlyLibrary(const std::vector<StackFrame>& frames, size_t count) {
  std::optional<std::string> only = "";
  for (size_t i = 0; i < count; ++i) {
    const std::string& object = frames[i].object;
    const std::string_view name = std::string_view(object).substr(object.rfind('/') + 1);
    if (!frames[i].native || object.empty()) return std::nullopt;
    if (name.starts_with("libc.so") || name.starts_with("libc-") || name == "[vdso]") continue;
    if (!only->empty() && only != object) return std::nullopt;
    only = object;
  }
  return only;
}

// Threads that wait are in the same call. Of threads that run, as those do that poll for a GPU, every look is
// different: they are in the same place if they called the same library from the same line.
bool IsSamePlace(const ThreadStack& x, const ThreadStack& y) {
  const size_t shorter = std::min(x.frames.size(), y.frames.size());
  size_t common = 0;
  const auto is_common = [&] {
    const size_t a = x.frames.size() - 1 - common;
    const size_t b = y.frames.size() - 1 - common;
    return IsSameCall(x.frames[a], y.frames[b], a == 0 && b == 0);
  };
  while (common < shorter && is_common()) ++common;
  if (common == x.frames.size() && common == y.frames.size()) return true;
  if ((x.state != 'R' && y.state != 'R') || common == 0) return false;
  const std::optional<std::string> library = OnlyLibrary(x.frames, x.frames.size() - common);
  return library.has_value() && library == OnlyLibrary(y.frames, y.frames.size() - common);
}

bool IsSameStack(const StackGroup::Member& a, const StackGroup::Member& b) {
  const ThreadStack& x = *a.thread;
  const ThreadStack& y = *b.thread;
  if (x.quality != y.quality || x.kernel != y.kernel || x.python_apart != y.python_apart ||
      x.why_no_native != y.why_no_native) {
    return false;
  }
  if (x.frames.empty() && y.frames.empty())
    return a.process->process.unreadable == b.process->process.unreadable;
  return IsSamePlace(x, y);
}

// In the order of their first members.
std::vector<StackGroup> GroupByStack(std::span<const LabelledStacks> processes, bool all_threads) {
  std::vector<StackGroup> groups;
  for (const LabelledStacks& process : processes) {
    for (const ThreadStack& thread : process.process.threads) {
      if (!all_threads && thread.tid != process.process.pid) continue;
      const StackGroup::Member member{.process = &process, .thread = &thread};
      const auto same = std::find_if(groups.begin(), groups.end(), [&](const StackGroup& group) {
        return IsSameStack(group.members.front(), member);
      });
      (same == groups.end() ? groups.emplace_back() : *same).members.push_back(member);
    }
  }
  return groups;
}

nlohmann::ordered_json FramesJson(const std::vector<StackFrame>& frames) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const StackFrame& f : frames) {
    nlohmann::ordered_json frame{{"function", f.function}, {"file", f.file}, {"line", f.line}};
    if (f.native) frame.update({{"native", true}, {"object", f.object}, {"offset", f.offset}});
    list.push_back(std::move(frame));
  }
  return list;
}

// One process: all its threads that run Python, and the others, too, if native stacks were read.
std::string ProcessText(const LabelledStacks& process, const Layout& layout) {
  const ProcessStacks& p = process.process;
  const std::string python = p.python != 0 ? absl::StrCat(", Python ", VersionText(p.python)) : "";
  std::string text =
      layout.Wrap("", "  ", absl::StrCat(NameOf(process, true), python, ": ", p.command), Emphasis::kStrong);
  for (const StackGroup& group : GroupByStack({&process, 1}, true)) {
    absl::StrAppend(&text, "\n", layout.Wrap("", "  ", ThreadsText(group), Emphasis::kStrong),
                    FramesText(process, *group.members.front().thread));
  }
  if (p.other_threads > 0) {
    const bool native = std::any_of(p.threads.begin(), p.threads.end(),
                                    [](const ThreadStack& thread) { return thread.stopped_ns > 0; });
    absl::StrAppend(&text, "\nand ", p.other_threads, p.other_threads == 1 ? " thread" : " threads",
                    native ? " more\n" : " without Python\n");
  }
  return text;
}

// What reading has done to the processes.
std::string StoppedText(const std::vector<LabelledStacks>& processes) {
  size_t threads = 0;
  uint64_t longest_ns = 0;
  for (const LabelledStacks& process : processes) {
    for (const ThreadStack& thread : process.process.threads) {
      if (thread.stopped_ns > 0) ++threads;
      longest_ns = std::max(longest_ns, thread.stopped_ns);
    }
  }
  if (threads == 0) return "";
  return absl::StrFormat("\n%s stopped for at most %.2f ms to copy %s.\n",
                         threads == 1 ? "One thread was" : absl::StrCat(threads, " threads were"),
                         static_cast<double>(longest_ns) / 1e6,
                         threads == 1 ? "its stack" : "their stacks, one after the other");
}

}  // namespace

std::string StateText(const ThreadStack& thread) {
  if (thread.waits_for_python) {
    return absl::StrCat(
        "waits for Python's lock (GIL)",
        thread.lock_holder != 0 ? absl::StrCat(", which thread ", thread.lock_holder, " has") : "");
  }
  if (!thread.call.empty()) return absl::StrCat("in ", thread.call);
  switch (thread.state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in the kernel, cannot be interrupted";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended";
    default:
      return "in an unknown state";
  }
}

std::string PlaceText(const ThreadStack& thread) {
  if (thread.frames.empty()) return "";
  const auto is_own = [](const StackFrame& frame) {
    return !frame.native && frame.file.starts_with('/') &&
           frame.file.find("/lib/python") == std::string::npos &&
           frame.file.find("-packages/") == std::string::npos;
  };
  const auto own = std::find_if(thread.frames.begin(), thread.frames.end(), is_own);
  std::string innermost = FrameText(thread.frames.front());
  if (own == thread.frames.end() || own == thread.frames.begin()) return innermost;
  return absl::StrCat(innermost, ", from ", FrameText(*own));
}

std::string WhyUnreadable(const ProcessStacks& process) {
  switch (process.unreadable) {
    case stacks::Unreadable::kNo:
      return "the thread runs no Python";
    case stacks::Unreadable::kNoProcess:
      return "the process has ended";
    case stacks::Unreadable::kNotPermitted:
      return absl::StrCat("its memory may not be read: ", observe::WhyNotPermitted(process.pid));
    case stacks::Unreadable::kNoInterpreter:
      return "no CPython was found in the process";
    case stacks::Unreadable::kUnknownVersion:
      return process.python == 0 ? "its version of Python is not known"
                                 : absl::StrCat("Python ", VersionText(process.python),
                                                " is not supported (3.8 to 3.14 are)");
    case stacks::Unreadable::kFreeThreaded:
      return absl::StrCat("Python ", VersionText(process.python), " without a GIL is not supported");
  }
  return "";
}

std::vector<StackGroup> GroupStacks(const std::vector<LabelledStacks>& processes, bool all_threads) {
  std::vector<StackGroup> groups = GroupByStack(processes, all_threads);
  std::stable_sort(groups.begin(), groups.end(), [](const StackGroup& a, const StackGroup& b) {
    return a.members.size() < b.members.size();
  });
  return groups;
}

std::string WithoutParameters(const std::string& function) {
  const size_t end = function.rfind(')');
  if (end == std::string::npos || function.find_first_of(":>", end) != std::string::npos) return function;
  size_t depth = 0;
  for (size_t i = end + 1; i-- > 0;) {
    if (function[i] == ')') ++depth;
    if (function[i] != '(' || --depth > 0) continue;
    return i == 0 || std::string_view(function).substr(0, i).ends_with("operator") ? function
                                                                                   : function.substr(0, i);
  }
  return function;
}

std::string StacksText(const std::vector<LabelledStacks>& processes, bool all_threads,
                       const render::Screen& screen) {
  const Layout layout(screen);
  if (processes.size() == 1) return ProcessText(processes.front(), layout) + StoppedText(processes);
  const std::vector<StackGroup> groups = GroupStacks(processes, all_threads);
  size_t threads = 0;
  for (const StackGroup& group : groups) threads += group.members.size();
  std::string text = layout.Wrap(
      "", "  ",
      groups.size() == 1
          ? absl::StrCat("All ", threads, all_threads ? " threads" : " main threads", " have the same stack")
          : absl::StrCat(groups.size(), " different stacks in ", threads,
                         all_threads ? " threads" : " main threads", ", the odd ones first"),
      Emphasis::kStrong);
  for (const StackGroup& group : groups) {
    const StackGroup::Member& first = group.members.front();
    absl::StrAppend(&text, "\n",
                    layout.Wrap("", "  ",
                                absl::StrCat(group.members.size(), " of ", threads, ", ", StatesText(group),
                                             ": ", MembersText(group, all_threads)),
                                Emphasis::kStrong),
                    FramesText(*first.process, *first.thread));
  }
  return text + StoppedText(processes);
}

nlohmann::ordered_json StacksJson(const std::vector<LabelledStacks>& processes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LabelledStacks& labelled : processes) {
    const ProcessStacks& p = labelled.process;
    nlohmann::ordered_json process{{"pid", p.pid}, {"command", p.command}};
    if (!labelled.label.empty()) process["label"] = labelled.label;
    if (p.python != 0) process["python"] = VersionText(p.python);
    if (p.unreadable != stacks::Unreadable::kNo) process["no_python_stacks"] = WhyUnreadable(p);
    process["threads"] = nlohmann::ordered_json::array();
    for (const ThreadStack& t : p.threads) {
      nlohmann::ordered_json thread{{"tid", t.tid},
                                    {"name", t.name},
                                    {"state", std::string(t.state == 0 ? 0 : 1, t.state)},
                                    {"call", t.call}};
      if (t.waits_for_python) {
        thread["waits_for_gil"] = true;
        if (t.lock_holder != 0) thread["gil_holder"] = t.lock_holder;
      }
      thread["torn"] = t.quality == stacks::StackQuality::kTorn;
      thread["frames"] = FramesJson(t.frames);
      if (!t.python_apart.empty()) thread["python_frames"] = FramesJson(t.python_apart);
      if (!t.kernel.empty()) thread["kernel"] = t.kernel;
      if (!t.why_no_native.empty()) thread["no_native_stack"] = t.why_no_native;
      if (t.stopped_ns > 0) {
        thread["stopped_us"] = static_cast<double>(t.stopped_ns) / 1e3;
        thread["native_whole"] = !t.native_cut;
      }
      process["threads"].push_back(std::move(thread));
    }
    process["other_threads"] = p.other_threads;
    list.push_back(std::move(process));
  }
  return list;
}

}  // namespace gpuprobe::cli
