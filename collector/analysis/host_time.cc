#include "collector/analysis/host_time.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "collector/analysis/median.h"
#include "collector/model/job/job_model.h"
#include "collector/records/system_calls.h"

namespace gpuprobe::analysis {
namespace {

using model::HostPlace;
using model::HostPlaces;
using model::IdleCause;

constexpr size_t kMostPlaces = 8;  // of a cause, in a report
// A detail belongs to a line if this share of its time has it.
constexpr double kDetailShare = 0.5;

// What the details of one line add up to, by value.
template <typename T>
class Tally {
 public:
  void Add(const T& value, double ns) {
    ns_[value] += ns;
    all_ns_ += ns;
  }
  // The one with most time, if it has enough of it.
  std::optional<T> Most() const {
    const auto most = Find();
    if (most == ns_.end() || most->second < kDetailShare * all_ns_) return std::nullopt;
    return most->first;
  }
  // REQUIRES: there is one.
  const T& Largest() const { return Find()->first; }
  void Merge(const Tally& other) {
    for (const auto& [value, ns] : other.ns_) Add(value, ns);
  }

 private:
  typename std::map<T, double>::const_iterator Find() const {
    return std::max_element(ns_.begin(), ns_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
  }

  std::map<T, double> ns_;
  double all_ns_ = 0;
};

// A line of the program, or where that is not known what is. Functions of one line are one: a generator
// expression has a function of its own.
struct LineKey {
  bool no_cpu = false;
  bool lock_held = false;  // of another thread
  std::string file;
  uint32_t line = 0;
  std::string call;  // without a line

  bool operator<(const LineKey& other) const {
    return std::tie(no_cpu, lock_held, file, line, call) <
           std::tie(other.no_cpu, other.lock_held, other.file, other.line, other.call);
  }
};

// One line, or several of one function.
class Line {
 public:
  using Function = std::pair<std::string, std::string>;  // and its file

  // `ns`: what `time` stands for.
  void Add(const model::ProcessModel& process, const HostPlace& place, double ns,
           const model::HostTime& time) {
    ns_ += ns;
    measured_ns_ += static_cast<double>(time.measured_ns);
    samples_ += time.samples;
    const auto text = [&](uint32_t id) { return id == 0 ? std::string() : process.String(id); };
    call_.Add({place.kind == HostPlace::Kind::kMemoryCall, CallName(text(place.call))}, ns);
    file_.Add({place.system_call < 0 ? "" : model::SystemCallOf(place.system_call).name, text(place.file)},
              ns);
    task_.Add(place.task, ns);
    const Function at{text(place.at.function), text(place.at.file)};
    own_.Add(text(place.own.function != 0 ? place.own.function : place.at.function), ns);
    at_.Add(at, ns);
    lines_[at].Add(place.at.line, ns);
    if (place.own.function == 0 || place.own == place.at) own_code_ns_ += ns;
  }
  void Merge(const Line& other) {
    ns_ += other.ns_;
    measured_ns_ += other.measured_ns_;
    samples_ += other.samples_;
    own_code_ns_ += other.own_code_ns_;
    call_.Merge(other.call_);
    file_.Merge(other.file_);
    task_.Merge(other.task_);
    own_.Merge(other.own_);
    at_.Merge(other.at_);
    for (const auto& [at, lines] : other.lines_) {
      for (const auto& [line, ns] : lines.ns) lines_[at].Add(line, ns);
    }
    others_ += 1 + other.others_;
  }
  double ns() const { return ns_; }
  // The program's function that it is a line of; nothing if most of the time is in what that calls.
  std::string FunctionOfItsOwn() const { return 2 * own_code_ns_ > ns_ ? own_.Largest() : ""; }

  HostPlaceReport Report(const LineKey& key, double steps) const {
    HostPlaceReport out{
        .no_cpu = key.no_cpu, .lock_held = key.lock_held, .ns_per_step = ns_ / steps, .samples = samples_};
    out.other_lines = others_;
    out.measured = 2 * measured_ns_ >= ns_;
    if (key.no_cpu) return out;
    if (const auto call = call_.Most()) std::tie(out.memory_call, out.call) = *call;
    if (const auto file = file_.Most()) std::tie(out.system_call, out.file) = *file;
    out.task = task_.Most().value_or(model::HostTask::kUnknown);
    if (const auto at = at_.Most(); at.has_value() && !at->first.empty())
      out.python.push_back({.function = at->first, .file = at->second, .line = MostOf(lines_.at(*at))});
    if (key.line == 0 && key.file.empty()) return out;
    const PythonFrame own{.function = own_.Largest(), .file = key.file, .line = key.line};
    const bool same = !out.python.empty() && out.python.front().file == own.file &&
                      (out.python.front().line == own.line || out.python.front().function == own.function);
    if (same) out.python.clear();
    out.python.push_back(own);
    return out;
  }

  static std::string CallName(const std::string& name) {
    return std::string(absl::StripSuffix(absl::StripSuffix(name, "_v2"), "_v3"));
  }

 private:
  struct Lines {
    std::map<uint32_t, double> ns;
    void Add(uint32_t line, double more_ns) { ns[line] += more_ns; }
  };
  static uint32_t MostOf(const Lines& lines) {
    return std::max_element(lines.ns.begin(), lines.ns.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  double ns_ = 0;
  double measured_ns_ = 0;
  double own_code_ns_ = 0;  // not in what it calls
  uint64_t samples_ = 0;
  uint32_t others_ = 0;  // lines, besides the one with most time
  Tally<std::pair<bool, std::string>> call_;
  Tally<std::pair<std::string, std::string>> file_;
  Tally<model::HostTask> task_;
  Tally<std::string> own_;
  Tally<Function> at_;
  std::map<Function, Lines> lines_;
};

constexpr uint64_t kFewestInCall = 2;

class Lines {
 public:
  void Add(const model::ProcessModel& process, const HostPlace& place, double ns,
           const model::HostTime& time) {
    lines_[KeyOf(process, place)].Add(process, place, ns, time);
    samples_ += time.samples;
  }
  bool empty() const { return lines_.empty(); }
  uint64_t samples() const { return samples_; }
  const std::map<LineKey, Line>& all() const { return lines_; }

  // Most time first, all of them.
  std::vector<HostPlaceReport> Report(double steps) const {
    double all_ns = 0;
    std::vector<HostPlaceReport> out;
    for (const auto& [key, line] : Folded()) {
      all_ns += line.ns();
      out.push_back(line.Report(key, steps));
      out.back().of_samples = samples_;
      // The call is measured, but one sample near it does not say who makes it.
      if (!out.back().call.empty() && out.back().samples < kFewestInCall) out.back().python.clear();
    }
    for (HostPlaceReport& place : out) place.share = all_ns > 0 ? place.ns_per_step * steps / all_ns : 0;
    std::stable_sort(out.begin(), out.end(), [](const HostPlaceReport& a, const HostPlaceReport& b) {
      return a.ns_per_step > b.ns_per_step;
    });
    return out;
  }

 private:
  // Where no line has half of the time, the lines of a function in the program's own code are one place if
  // they have: a loop over parameters, say, that launches from several of its lines.
  std::map<LineKey, Line> Folded() const {
    double ran_ns = 0;
    double most_ns = 0;
    struct Function {
      double ns = 0;
      const LineKey* most = nullptr;
      std::vector<const LineKey*> lines = {};
    };
    std::map<std::pair<std::string, std::string>, Function> functions;  // by file and name
    for (const auto& [key, line] : lines_) {
      if (key.no_cpu) continue;
      ran_ns += line.ns();
      most_ns = std::max(most_ns, line.ns());
      const std::string name = key.lock_held || key.line == 0 ? "" : line.FunctionOfItsOwn();
      if (name.empty()) continue;
      Function& function = functions[{key.file, name}];
      function.ns += line.ns();
      function.lines.push_back(&key);
      if (function.most == nullptr || line.ns() > lines_.at(*function.most).ns()) function.most = &key;
    }
    std::map<LineKey, Line> folded = lines_;
    for (const auto& [name, function] : functions) {
      if (2 * most_ns >= ran_ns || 2 * function.ns < ran_ns) continue;
      for (const LineKey* line : function.lines) {
        if (line == function.most) continue;
        folded.at(*function.most).Merge(lines_.at(*line));
        folded.erase(*line);
      }
    }
    return folded;
  }
  static LineKey KeyOf(const model::ProcessModel& process, const HostPlace& place) {
    LineKey key{.no_cpu = place.kind == HostPlace::Kind::kNoCpu,
                .lock_held = place.kind == HostPlace::Kind::kLockHeld,
                .file = {},
                .call = {}};
    if (key.no_cpu) return key;
    const model::HostLine& line = place.own.function != 0 ? place.own : place.at;
    if (line.function != 0) {
      key.file = line.file == 0 ? "" : process.String(line.file);
      key.line = line.line;
    } else if (place.call != 0) {
      key.call = Line::CallName(process.String(place.call));
    } else if (place.system_call >= 0) {
      key.call = model::SystemCallOf(place.system_call).name;
    }
    return key;
  }

  std::map<LineKey, Line> lines_;
  uint64_t samples_ = 0;
};

// Where a framework has the loop, all that a program does is done at one line of its own, waits of every
// kind: that says nothing, and what tells moments apart is the innermost function.
class OwnLines {
 public:
  explicit OwnLines(const HostPlaces& places) {
    using Samples = std::map<model::HostLine, uint64_t>;
    Samples samples;
    Samples inner;
    std::map<model::HostLine, std::array<uint64_t, model::kIdleCauses>> by_cause;
    uint64_t all = 0;
    uint64_t in_callees = 0;
    for (const auto& [key, total] : places.places()) {
      const HostPlace& place = key.second;
      if (place.own.function == 0 || place.kind == HostPlace::Kind::kLockHeld) continue;
      samples[place.own] += total.time.samples;
      all += total.time.samples;
      by_cause[place.own][static_cast<size_t>(key.first)] += total.time.samples;
      if (place.at == place.own) continue;
      inner[place.at] += total.time.samples;
      in_callees += total.time.samples;
    }
    if (all < kFewest || inner.empty()) return;
    const auto most_of = [](const Samples& of) {
      return *std::max_element(of.begin(), of.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
    };
    const auto [line, count] = most_of(samples);
    const std::array<uint64_t, model::kIdleCauses>& causes = by_cause.at(line);
    const auto several = std::count_if(causes.begin(), causes.end(),
                                       [](uint64_t samples_of) { return samples_of >= kFewestOfACause; });
    if (several >= 2 && static_cast<double>(count) >= kNearlyAll * static_cast<double>(all) &&
        2 * in_callees >= all && 2 * most_of(inner).second < all)
      loop_ = line;
  }
  HostPlace Telling(HostPlace place) const {
    if (!loop_.has_value() || place.own != *loop_ || place.kind == HostPlace::Kind::kLockHeld) return place;
    if (place.at == place.own) place.at = {};
    place.own = {};
    return place;
  }

 private:
  static constexpr uint64_t kFewest = 20;
  static constexpr uint64_t kFewestOfACause = 5;
  static constexpr double kNearlyAll = 0.95;

  std::optional<model::HostLine> loop_;
};

const model::Distribution& IdleOf(const model::StepStatistics& statistics, IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostBound:
      return statistics.host_bound_ns;
    case IdleCause::kInput:
      return statistics.input_ns;
    case IdleCause::kSync:
      return statistics.sync_ns;
    case IdleCause::kMemory:
      return statistics.memory_ns;
    case IdleCause::kBlocked:
      return statistics.blocked_ns;
    default:
      return statistics.pause_ns;
  }
}

// How idle time is shared out among places. Recorded calls take what they take. The rest was sampled at
// moments that know nothing of what the host does: where there are enough of them, each stands for as much of
// it as any other. What a sample stands for by the clock, the silence up to it, favours long silences and the
// ends of short ones: forty silences of 5 ms that one sample in four falls into, and one of 500 ms.
class Shares {
 public:
  Shares(double idle_ns, const model::HostTime& all)
      : rest_ns_(std::max(idle_ns - static_cast<double>(all.measured_ns), 0.0)),
        weight_(static_cast<double>(all.weight)),
        by_weight_(all.code_samples >= kFewest && all.weight > 0) {}
  double Ns(const model::HostTime& time) const {
    if (!by_weight_) return static_cast<double>(time.ns);
    return static_cast<double>(time.measured_ns) + rest_ns_ * static_cast<double>(time.weight) / weight_;
  }

 private:
  static constexpr uint64_t kFewest = 3;

  double rest_ns_;
  double weight_;
  bool by_weight_;
};

HostTimeReport HostTimeOf(std::span<const model::Member> members, IdleCause cause) {
  HostTimeReport out{.cause = cause};
  Lines lines;
  double steps = 0;
  model::HostTime all;
  for (const model::Member& member : members) {
    const model::StepStatistics& statistics = member.steps().statistics();
    steps += static_cast<double>(statistics.total_ns.count());
    out.ns_per_step += static_cast<double>(IdleOf(statistics, cause).total());
    const HostPlaces& places = member.steps().host_places();
    all.Add(places.other(cause));
    for (const auto& [key, total] : places.places()) {
      if (key.first == cause) all.Add(total.time);
    }
  }
  const Shares shares(out.ns_per_step, all);
  double known_ns = 0;
  for (const model::Member& member : members) {
    const HostPlaces& places = member.steps().host_places();
    const OwnLines own(places);
    out.other_ns_per_step += shares.Ns(places.other(cause));
    out.samples += places.other(cause).samples;
    for (const auto& [key, total] : places.places()) {
      if (key.first != cause) continue;
      const double ns = shares.Ns(total.time);
      if (ns > 0) lines.Add(*member.process, own.Telling(key.second), ns, total.time);
      known_ns += ns;
    }
  }
  if (lines.empty() || steps == 0) return out;
  out.samples += lines.samples();
  out.not_sampled_ns_per_step = std::max(out.ns_per_step - out.other_ns_per_step - known_ns, 0.0) / steps;
  out.ns_per_step /= steps;
  out.other_ns_per_step /= steps;
  out.places = lines.Report(steps);
  for (size_t i = kMostPlaces; i < out.places.size(); ++i) out.other_ns_per_step += out.places[i].ns_per_step;
  if (out.places.size() > kMostPlaces) out.places.resize(kMostPlaces);
  return out;
}

}  // namespace

std::vector<HostTimeReport> HostTimeOf(std::span<const model::Member> members) {
  std::vector<HostTimeReport> out;
  for (size_t i = 0; i < model::kIdleCauses; ++i) {
    if (static_cast<IdleCause>(i) == IdleCause::kBetween) continue;  // in no step
    HostTimeReport cause = HostTimeOf(members, static_cast<IdleCause>(i));
    if (!cause.places.empty()) out.push_back(std::move(cause));
  }
  return out;
}

HostPlaceReport HostPlaceOf(const model::ProcessModel& process, const HostPlace& place) {
  Lines lines;
  lines.Add(process, place, 1, {.ns = 1, .samples = 1});
  return lines.Report(1).front();
}

std::vector<HostPlaceReport> HostPlacesIn(const model::JobModel& job, std::span<const PacedStep> steps) {
  Lines lines;
  std::set<std::pair<uint32_t, uint64_t>> wanted;
  std::set<uint32_t> members;
  for (const PacedStep& step : steps) {
    members.insert(step.member);
    wanted.emplace(step.member, step.step);
    if (step.with_previous && step.step > 0) wanted.emplace(step.member, step.step - 1);
  }
  for (const uint32_t number : members) {
    const model::Member& member = job.members()[number];
    const OwnLines own(member.steps().host_places());
    for (const auto& [key, total] : member.steps().host_places().places()) {
      if (key.first == IdleCause::kBlocked) continue;
      for (const HostPlaces::Step& step : total.longest) {
        const uint64_t at = step.index + static_cast<uint64_t>(
                                             job.comparison().alignment().Behind(member.number, step.index));
        if (!wanted.contains({number, at})) continue;
        lines.Add(*member.process, own.Telling(key.second), static_cast<double>(step.time.ns), step.time);
      }
    }
  }
  std::vector<HostPlaceReport> places = lines.Report(static_cast<double>(std::max<size_t>(steps.size(), 1)));
  if (places.size() > kMostPlaces) places.resize(kMostPlaces);
  return places;
}

std::vector<HostPlaceReport> HostPlacesBeyond(const model::Member& member,
                                              std::span<const model::Member> all) {
  const auto lines_of = [](const model::Member& of) {
    Lines lines;
    const OwnLines own(of.steps().host_places());
    for (const auto& [key, total] : of.steps().host_places().places())
      if (key.first != IdleCause::kBlocked)
        lines.Add(*of.process, own.Telling(key.second), static_cast<double>(total.time.ns), total.time);
    return lines;
  };
  const auto steps_of = [](const model::Member& of) {
    return std::max(static_cast<double>(of.steps().statistics().total_ns.count()), 1.0);
  };
  const Lines own = lines_of(member);
  std::map<LineKey, std::vector<double>> others;
  for (const auto& [key, line] : own.all()) others[key];
  for (const model::Member& other : all) {
    if (other.number == member.number || other.steps().count() == 0) continue;
    const Lines lines = lines_of(other);
    for (auto& [key, ns] : others) {
      const auto found = lines.all().find(key);
      ns.push_back(found == lines.all().end() ? 0 : found->second.ns() / steps_of(other));
    }
  }
  std::vector<HostPlaceReport> out;
  double all_ns = 0;
  for (const auto& [key, line] : own.all()) {
    HostPlaceReport place = line.Report(key, steps_of(member));
    place.of_samples = own.samples();
    if (!others[key].empty()) place.ns_per_step -= UpperMedian(others[key]);
    if (place.ns_per_step <= 0) continue;
    all_ns += place.ns_per_step;
    out.push_back(std::move(place));
  }
  for (HostPlaceReport& place : out) place.share = place.ns_per_step / all_ns;
  std::stable_sort(out.begin(), out.end(), [](const HostPlaceReport& a, const HostPlaceReport& b) {
    return a.ns_per_step > b.ns_per_step;
  });
  if (out.size() > kMostPlaces) out.resize(kMostPlaces);
  return out;
}

const HostTimeReport* HostTimeOf(const std::vector<HostTimeReport>& all, IdleCause cause) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const HostTimeReport& h) { return h.cause == cause; });
  return found == all.end() ? nullptr : &*found;
}

namespace {

// That a thread sleeps or runs is no cause.
bool IsNamed(const HostPlaceReport& place) {
  return place.no_cpu || place.memory_call || !place.call.empty() || !place.file.empty() ||
         !place.python.empty();
}

}  // namespace

const HostPlaceReport* ExplainedBy(const std::vector<HostPlaceReport>& places, std::optional<double> ns) {
  constexpr double kMost = 0.5;
  constexpr uint64_t kFewest = 3;  // fewer samples agree by chance
  // The fewer there are, the more of them must agree.
  const auto most_of = [](uint64_t samples) { return samples < 8 ? 0.8 : samples < 20 ? 0.6 : kMost; };
  // Of silences that launches interrupt, samples stand for the part since the last launch. Where there are so
  // many, and they are so much of it, the rest is as what they show.
  constexpr uint64_t kMany = 8;
  constexpr double kLeast = 0.25;
  // A busy machine stretches whatever the host does.
  double no_cpu = 0;
  for (const HostPlaceReport& place : places) no_cpu += place.no_cpu ? place.share : 0;
  for (const HostPlaceReport& place : places) {
    const double share = place.no_cpu ? place.share : place.share / std::max(1 - no_cpu, 1e-9);
    if (share < kMost || (place.no_cpu != (no_cpu >= kMost)) || !IsNamed(place)) continue;
    if (!place.measured && place.samples > 0 && place.of_samples < kFewest) return nullptr;
    // One sample may stand for long; what calls and the kernel measure needs none.
    const bool only_sampled = !place.no_cpu && !place.memory_call && place.call.empty();
    if (only_sampled && (place.samples <= 1 || share < most_of(place.of_samples))) return nullptr;
    const double explained_ns = place.ns_per_step / (place.no_cpu ? 1 : std::max(1 - no_cpu, 1e-9));
    const double needed = place.of_samples >= kMany ? kLeast : kMost;
    return !ns.has_value() || explained_ns >= needed * *ns ? &place : nullptr;
  }
  return nullptr;
}

namespace {

// "it writes a checkpoint"; empty: the names show nothing.
std::string TaskText(model::HostTask task) {
  switch (task) {
    case model::HostTask::kLoads:
      return "it loads data";
    case model::HostTask::kSaves:
      return "it writes a checkpoint";
    case model::HostTask::kCompiles:
      return "it compiles";
    case model::HostTask::kLogs:
      return "it logs";
    case model::HostTask::kEmptiesCache:
      return "it empties PyTorch's cache";
    case model::HostTask::kOptimizes:
      return "it is in the optimizer's Python code";
    default:
      return "";
  }
}

// At its own line, for a lock, a queue or the end of another one; which one is not known.
bool WaitsForThread(const HostPlaceReport& place) {
  return place.task == model::HostTask::kUnknown && place.call.empty() && !place.memory_call &&
         place.system_call == "futex" && !place.python.empty();
}

// Such a call returns at once if the host's memory is pinned; else the host copies it piece by piece.
bool CopiesPageable(const HostPlaceReport& place) {
  return place.task == model::HostTask::kUnknown && place.call == "cuMemcpyHtoDAsync";
}

// What to do about that; empty: nothing in particular.
std::string TaskAdvice(model::HostTask task) {
  switch (task) {
    case model::HostTask::kLoads:
      return "Use more data-loader workers, prefetching, or preprocessing ahead of time; check whether the "
             "storage keeps up.";
    case model::HostTask::kSaves:
      return "Copy to pinned memory and write from another thread (torch.distributed.checkpoint.async_save), "
             "or less often.";
    case model::HostTask::kCompiles:
      return "Shapes or values that change make torch.compile compile again: TORCH_LOGS=recompiles names "
             "them; mark_dynamic or padding avoids it.";
    case model::HostTask::kLogs:
      return "Log from another thread, in fewer steps, or less.";
    case model::HostTask::kEmptiesCache:
      return "Remove torch.cuda.empty_cache() from the loop.";
    case model::HostTask::kOptimizes:
      return "Use a fused optimizer (fused=True), or foreach=True: one launch for many parameters.";
    default:
      return "";
  }
}

}  // namespace

std::string HostDoesWhat(const HostPlaceReport& place) {
  if (place.no_cpu || place.lock_held)
    return absl::StrCat("it is ", HostPlaceText(place), " (", HowSure(place), ")");
  const std::string task = WaitsForThread(place)   ? "it waits for another thread"
                           : CopiesPageable(place) ? "it copies pageable memory to the GPU"
                                                   : TaskText(place.task);
  return absl::StrCat(task, task.empty() ? "it is in " : ": ", HostPlaceText(place), " (", HowSure(place),
                      ")");
}

std::string AdviceFor(const HostPlaceReport& place, const std::string& other) {
  if (place.no_cpu) return kGiveMoreCpus;
  if (place.lock_held)
    return "Only one thread of a process runs Python at a time: move the other thread's work into a process "
           "of "
           "its own, or into code that releases the lock.";
  if (WaitsForThread(place))
    return "See what the other thread does meanwhile (gpuprobe stacks PID), and hold locks for less time.";
  if (CopiesPageable(place)) return kPinMemory;
  const std::string advice = TaskAdvice(place.task);
  return advice.empty() ? other : advice;
}

std::string PlacesText(const std::vector<HostPlaceReport>& places, const HostPlaceReport* but) {
  constexpr double kWorthSaying = 0.1;
  constexpr size_t kMostSaid = 3;
  constexpr uint64_t kFewest = 3;
  std::vector<std::string> texts;
  for (const HostPlaceReport& place : places) {
    if (&place == but || place.share < kWorthSaying || texts.size() == kMostSaid) continue;
    if (place.samples > 0 && place.of_samples < kFewest) continue;
    texts.push_back(absl::StrFormat("%.0f %% %s", 100 * place.share, HostPlaceText(place)));
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace gpuprobe::analysis
