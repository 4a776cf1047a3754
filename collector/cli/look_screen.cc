#include "collector/cli/look_screen.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"
#include "collector/render/table.h"

namespace gpuprobe::cli {
namespace {

using observe::ThreadStack;
using render::Emphasis;
using render::Layout;

const ThreadStack* MainThreadOf(const LookedAt& process) {
  const auto& threads = process.stacks.process.threads;
  return threads.empty() ? nullptr : &threads.front();
}

char StateOf(const LookedAt& process) {
  const ThreadStack* main = MainThreadOf(process);
  return main == nullptr ? '?' : main->state;
}

std::string NameOf(const LookedAt& process) {
  return process.rank.has_value() ? absl::StrCat("rank ", *process.rank)
                                  : absl::StrCat("process ", process.stacks.process.pid);
}

// "Rank 2", "Ranks 2 and 5"
std::string NamesOf(const std::vector<const LookedAt*>& processes) {
  constexpr size_t kMostNamed = 8;
  std::vector<int> ranks;
  ranks.reserve(processes.size());
  for (const LookedAt* process : processes) ranks.push_back(process->rank.value_or(0));
  if (processes.size() == 1) return NameOf(*processes.front());
  return absl::StrCat("ranks ", analysis::RankList(ranks, kMostNamed));
}

std::string Sentence(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

// ", in read /data/x: f (train.py:6)"
std::string WhereText(const ThreadStack& thread) {
  const std::string place = PlaceText(thread);
  return absl::StrCat(", ", StateText(thread), place.empty() ? "" : absl::StrCat(": ", place));
}

// Those that cannot run, whatever they are in.
std::string HaltedText(const LookedAtJob& job) {
  std::vector<const LookedAt*> stopped;
  std::vector<const LookedAt*> stuck;
  for (const LookedAt& process : job.processes) {
    const char state = StateOf(process);
    if (state == 'T' || state == 't') stopped.push_back(&process);
    if (state == 'D') stuck.push_back(&process);
  }
  std::string text;
  if (!stopped.empty())
    absl::StrAppend(&text, Sentence(NamesOf(stopped)), stopped.size() == 1 ? " is" : " are",
                    " stopped, by a signal or a debugger. ");
  if (!stuck.empty())
    absl::StrAppend(&text, Sentence(NamesOf(stuck)), stuck.size() == 1 ? " is" : " are",
                    " in the kernel and cannot be interrupted: a disk, a network file system or a driver. ");
  return text;
}

// Who goes on, of those whose stack is known.
std::string MovedText(const LookedAtJob& job) {
  std::vector<const LookedAt*> moved;
  size_t known = 0;
  for (const LookedAt& process : job.processes) {
    if (process.moved.has_value()) ++known;
    if (process.moved.value_or(false)) moved.push_back(&process);
  }
  if (known == 0) return "";
  const std::string seconds = absl::StrFormat("%.1f s", job.seconds);
  const bool all = known == job.processes.size();
  if (moved.empty()) {
    if (known == 1)
      return absl::StrCat(job.processes.size() == 1 ? "It" : "One of them", " has not moved for ", seconds,
                          ".");
    return absl::StrCat("None of ", all ? "them" : absl::StrCat("the ", known, " whose stack is known"),
                        " has moved for ", seconds, ".");
  }
  if (moved.size() == job.processes.size())
    return absl::StrCat(moved.size() == 1 ? "It moved" : "All of them moved", " within ", seconds, ": ",
                        moved.size() == 1 ? "it does" : "they do", " not hang.");
  return absl::StrCat("Only ", NamesOf(moved), " moved within ", seconds, ".");
}

// "0: 98 % busy, 1,980 MHz, 120 W"
std::string GpusText(const LookedAt& process) {
  return absl::StrJoin(process.gpus, "; ", [](std::string* out, const observe::GpuNow& gpu) {
    absl::StrAppend(out, gpu.index, ": ", gpu.utilisation, " % busy");
    if (gpu.clock_mhz > 0) absl::StrAppend(out, ", ", analysis::Count(gpu.clock_mhz), " MHz");
    if (gpu.power_milliwatts > 0) absl::StrAppend(out, ", ", gpu.power_milliwatts / 1000, " W");
  });
}

render::Table TableOf(const LookedAtJob& job) {
  render::Table table{.id = "look",
                      .title = "",
                      .columns = {"rank", "pid", "main thread", "CPUs"},
                      .left = {false, false, true, false},
                      .rows = {},
                      .note = ""};
  const bool gpus = std::any_of(job.processes.begin(), job.processes.end(),
                                [](const LookedAt& process) { return !process.gpus.empty(); });
  if (gpus) {
    table.columns.push_back("GPU");
    table.left.push_back(true);
  }
  for (const LookedAt& process : job.processes) {
    const ThreadStack* main = MainThreadOf(process);
    std::vector<std::string> row = {process.rank.has_value() ? absl::StrCat(*process.rank) : "-",
                                    absl::StrCat(process.stacks.process.pid),
                                    main == nullptr ? "-" : StateText(*main),
                                    absl::StrFormat("%.2f", process.cpus)};
    if (gpus) row.push_back(process.gpus.empty() ? "-" : GpusText(process));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<LabelledStacks> StacksOf(const LookedAtJob& job) {
  std::vector<LabelledStacks> stacks;
  for (const LookedAt& process : job.processes) stacks.push_back(process.stacks);
  return stacks;
}

// Where they are, of those whose stack is known, if that sets some of them apart.
std::string ApartText(const LookedAtJob& job) {
  std::vector<LabelledStacks> stacks;
  for (const LookedAt& process : job.processes) {
    const ThreadStack* main = MainThreadOf(process);
    if (main != nullptr && !main->frames.empty()) stacks.push_back(process.stacks);
  }
  const std::vector<StackGroup> groups = GroupStacks(stacks, /*all_threads=*/false);
  if (groups.empty()) return "";
  const StackGroup& most = groups.back();
  const std::string where = WhereText(*most.members.front().thread);
  const bool all = stacks.size() == job.processes.size();
  if (stacks.size() == 1)
    return job.processes.size() == 1 ? absl::StrCat("It is", where.substr(1), ". ") : "";
  if (groups.size() == 1)
    return absl::StrCat(all ? "All " : "The ", stacks.size(), " ranks", all ? "" : " whose stack is known",
                        " are in the same place", where, ". ");
  if (2 * most.members.size() <= stacks.size())
    return absl::StrCat("They are in ", groups.size(), " different places, none of which has most of them. ");
  std::vector<const LookedAt*> odd;
  for (const LookedAt& process : job.processes) {
    for (size_t i = 0; i + 1 < groups.size(); ++i) {
      for (const StackGroup::Member& member : groups[i].members) {
        if (member.process->process.pid == process.stacks.process.pid) odd.push_back(&process);
      }
    }
  }
  return absl::StrCat(Sentence(NamesOf(odd)), odd.size() == 1 ? " is" : " are", " somewhere else than the ",
                      most.members.size(), most.members.size() == 1 ? " other" : " others",
                      groups.size() == 2 ? WhereText(*groups.front().members.front().thread) : "", ". ");
}

std::string HeadingOf(const LookedAtJob& job) {
  const observe::ProcessStacks& first = job.processes.front().stacks.process;
  if (job.processes.size() == 1)
    return absl::StrCat(Sentence(NameOf(job.processes.front())),
                        job.processes.front().rank.has_value() ? absl::StrCat(" (pid ", first.pid, ")") : "",
                        ": ", first.command);
  return absl::StrCat(job.processes.size(), " ranks of ", first.command);
}

}  // namespace

std::string LookVerdict(const LookedAtJob& job) {
  const bool all_moved = std::all_of(job.processes.begin(), job.processes.end(),
                                     [](const LookedAt& p) { return p.moved.value_or(false); });
  // Ranks that go on are somewhere else at each look.
  std::string text = absl::StrCat(HaltedText(job), all_moved ? "" : ApartText(job), MovedText(job));
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string LookText(const std::vector<LookedAtJob>& jobs, const render::Screen& screen) {
  const Layout layout(screen);
  std::string text;
  for (const LookedAtJob& job : jobs) {
    if (!text.empty()) absl::StrAppend(&text, "\n\n");
    absl::StrAppend(&text, layout.Wrap("", "  ", HeadingOf(job), Emphasis::kStrong));
    if (const std::string verdict = LookVerdict(job); !verdict.empty())
      absl::StrAppend(&text, layout.Wrap("", "  ", verdict));
    absl::StrAppend(&text, "\n", layout.Lay(TableOf(job)), "\n");
    const std::vector<LabelledStacks> stacks = StacksOf(job);
    absl::StrAppend(&text, StacksText(stacks, /*all_threads=*/false, screen));
  }
  return text;
}

nlohmann::ordered_json LookJson(const std::vector<LookedAtJob>& jobs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LookedAtJob& job : jobs) {
    nlohmann::ordered_json processes = StacksJson(StacksOf(job));
    for (size_t i = 0; i < job.processes.size(); ++i) {
      const LookedAt& process = job.processes[i];
      processes[i]["rank"] =
          process.rank.has_value() ? nlohmann::ordered_json(*process.rank) : nlohmann::ordered_json();
      processes[i]["cpus"] = process.cpus;
      processes[i]["moved"] =
          process.moved.has_value() ? nlohmann::ordered_json(*process.moved) : nlohmann::ordered_json();
      processes[i]["gpus"] = nlohmann::ordered_json::array();
      for (const observe::GpuNow& gpu : process.gpus)
        processes[i]["gpus"].push_back({{"index", gpu.index},
                                        {"utilisation", gpu.utilisation / 100.0},
                                        {"clock_mhz", gpu.clock_mhz},
                                        {"power_w", gpu.power_milliwatts / 1000.0}});
    }
    list.push_back(
        {{"verdict", LookVerdict(job)}, {"seconds", job.seconds}, {"processes", std::move(processes)}});
  }
  return list;
}

}  // namespace gpuprobe::cli
