#include "collector/analysis/comparison/comparison_changes.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

constexpr size_t kMostRanksNamed = 8;
constexpr size_t kMostKernels = 2;
constexpr size_t kKernelWidth = 48;

using model::StepPart;
using Subject = Change::Subject;

struct PartWords {
  StepPart part;
  const char* subject;
};
constexpr PartWords kOwnParts[] = {
    {StepPart::kCompute, "Compute time"},
    {StepPart::kCopy, "Copy time"},
    {StepPart::kHostBound, "Idle time until the host launches"},
    {StepPart::kInput, "Idle time waiting for input"},
    {StepPart::kSync, "Idle time after synchronizing calls"},
    {StepPart::kLaunchGap, "Idle time between launch and start"},
};

std::string Signed(double ns) { return absl::StrCat(ns < 0 ? "-" : "+", Duration(std::abs(ns))); }

// "7.7 % longer", "12x as long"
std::string HowMuch(double before_ns, double after_ns) {
  constexpr double kTimes = 10;
  if (before_ns <= 0 || after_ns >= kTimes * before_ns)
    return before_ns <= 0 ? "new" : absl::StrFormat("%.3gx as long", after_ns / before_ns);
  const double change = (after_ns - before_ns) / before_ns;
  return absl::StrFormat("%.*f %% %s", std::abs(change) < kSmallChange ? 2 : 1, std::abs(change) * 100,
                         change < 0 ? "shorter" : "longer");
}

// "14.2 ms -> 15.3 ms per step, +1.09 ms (95 % interval +1.05 to +1.13 ms, p < 0.001)"
std::string Numbers(double before_ns, double after_ns, const Change& c) {
  const auto [before, after] = Durations(before_ns, after_ns);
  return absl::StrCat(before, " -> ", after, " per step, ", Signed(c.change_ns), " (95 % interval ",
                      Signed(c.low_ns), " to ", Signed(c.high_ns), ", ", ChanceText(c.adjusted_p), ").");
}

// `unit`: "rank" or "GPU"
std::string RanksText(const char* unit, const std::vector<int>& ranks) {
  return absl::StrCat(unit, ranks.size() == 1 ? " " : "s ", RankList(ranks, kMostRanksNamed));
}

class ChangeFinder {
 public:
  ChangeFinder(const Run& a, const Run& b, const Comparison& c, const std::vector<ComparedRank>& ranks,
               double step_ns)
      : a_(a), b_(b), c_(c), ranks_(ranks), step_ns_(step_ns) {}
  const char* Unit() const { return a_.series.by_gpu ? "GPU" : "rank"; }

  std::vector<Change> Find() {
    for (const PartWords& part : kOwnParts) AddPart(part);
    AddKernels();
    AddCollectives();
    std::stable_sort(out_.begin(), out_.end(), [](const Change& x, const Change& y) {
      return std::abs(x.change_ns) > std::abs(y.change_ns);
    });
    AddWaiting();
    return std::move(out_);
  }

 private:
  bool IsWorthNaming(const Compared& c) const {
    const double change = std::abs(c.b.mean - c.a.mean);
    return c.significant && change >= kLeastOwnChange * std::max(c.a.mean, c.b.mean) &&
           change >= kLeastStepChange * step_ns_;
  }
  const ComparedPart* PartOf(StepPart part) const {
    for (const ComparedPart& p : c_.parts) {
      if (p.part == part) return &p;
    }
    return nullptr;
  }

  void AddPart(const PartWords& part);
  void AddRanks(const PartWords& part, const std::vector<const ComparedRank*>& changed);
  void AddOddRanks(const PartWords& part, const std::vector<const ComparedRank*>& all);
  void AddJob(const PartWords& part, const ComparedPart& job);
  std::string OthersText(const std::vector<const ComparedRank*>& all, const std::vector<int>& but) const;
  std::string KernelsText(const std::vector<int>& ranks) const;
  void AddKernels();
  void AddCollectives();
  void AddWaiting();

  const Run& a_;
  const Run& b_;
  const Comparison& c_;
  const std::vector<ComparedRank>& ranks_;
  double step_ns_;
  std::vector<Change> out_;
};

// Up to half of the ranks changed: these are named. More: the job did, and who changed otherwise is named.
void ChangeFinder::AddPart(const PartWords& part) {
  std::vector<const ComparedRank*> all;
  std::vector<const ComparedRank*> changed;
  for (const ComparedRank& r : ranks_) {
    if (r.part != part.part) continue;
    all.push_back(&r);
    if (IsWorthNaming(r)) changed.push_back(&r);
  }
  const ComparedPart* job = PartOf(part.part);
  const bool most = 2 * changed.size() > all.size() || changed.empty();
  if (most && job != nullptr && IsWorthNaming(*job)) {
    AddJob(part, *job);
    AddOddRanks(part, all);
  } else if (!changed.empty()) {
    AddRanks(part, changed);  // few, or in different directions
  }
}

std::string ChangeOfMost(double least, double most) {
  return absl::StrFormat("%+.1f to %+.1f %%", least * 100, most * 100);
}

std::string ChangeFinder::OthersText(const std::vector<const ComparedRank*>& all,
                                     const std::vector<int>& but) const {
  double least = 0;
  double most = 0;
  size_t others = 0;
  for (const ComparedRank* r : all) {
    if (std::find(but.begin(), but.end(), r->rank) != but.end() || r->a.mean <= 0) continue;
    const double change = (r->b.mean - r->a.mean) / r->a.mean;
    least = others == 0 ? change : std::min(least, change);
    most = others == 0 ? change : std::max(most, change);
    ++others;
  }
  if (others == 0) return "";
  return others == 1 ? absl::StrFormat("The other %s changed by %+.1f %%.", Unit(), most * 100)
                     : absl::StrCat("The other ", others, " ", Unit(), "s changed by ",
                                    ChangeOfMost(least, most), ".");
}

void ChangeFinder::AddRanks(const PartWords& part, const std::vector<const ComparedRank*>& changed) {
  std::vector<const ComparedRank*> all;
  for (const ComparedRank& r : ranks_) {
    if (r.part == part.part) all.push_back(&r);
  }
  for (const bool longer : {true, false}) {
    Change c{.part = part.part};
    double before_ns = 0;
    double after_ns = 0;
    double count = 0;
    for (const ComparedRank* r : changed) {
      if ((r->test->difference > 0) != longer) continue;
      c.ranks.push_back(r->rank);
      before_ns += r->a.mean;
      after_ns += r->b.mean;
      c.change_ns += r->test->difference;
      // The mean's interval is at most as wide as the mean of the ranks' own.
      c.low_ns += r->test->low;
      c.high_ns += r->test->high;
      c.adjusted_p = std::min(c.adjusted_p, r->adjusted_p);
      count += 1;
    }
    if (count == 0) continue;
    for (double* sum : {&before_ns, &after_ns, &c.change_ns, &c.low_ns, &c.high_ns}) *sum /= count;
    std::sort(c.ranks.begin(), c.ranks.end());
    c.statement =
        absl::StrCat(part.subject, " on ", RanksText(Unit(), c.ranks), " is ", HowMuch(before_ns, after_ns),
                     count > 1 ? absl::StrCat(" (mean of these ", Unit(), "s): ") : std::string(": "),
                     Numbers(before_ns, after_ns, c));
    c.evidence = absl::StrJoin(
        {OthersText(all, c.ranks), part.part == StepPart::kCompute ? KernelsText(c.ranks) : std::string()},
        " ");
    out_.push_back(std::move(c));
  }
}

void ChangeFinder::AddJob(const PartWords& part, const ComparedPart& job) {
  Change c{.subject = Subject::kAllRanks,
           .part = part.part,
           .change_ns = job.test->difference,
           .low_ns = job.test->low,
           .high_ns = job.test->high,
           .adjusted_p = job.adjusted_p};
  c.statement = absl::StrCat(
      part.subject, " is ", HowMuch(job.a.mean, job.b.mean),
      a_.series.ranks.size() > 1 ? absl::StrCat(" across all ", Unit(), "s: ") : std::string(": "),
      Numbers(job.a.mean, job.b.mean, c));
  if (part.part == StepPart::kCompute) c.evidence = KernelsText({});
  out_.push_back(std::move(c));
}

void ChangeFinder::AddOddRanks(const PartWords& part, const std::vector<const ComparedRank*>& all) {
  std::vector<const ComparedRank*> odd;
  for (const ComparedRank* r : all) {
    if (r->odd && r->test.has_value() && std::abs(r->beyond_others_ns) >= kLeastStepChange * step_ns_ &&
        std::abs(r->beyond_others_ns) >= kLeastOwnChange * std::max(r->a.mean, r->b.mean))
      odd.push_back(r);
  }
  if (odd.empty() || 2 * odd.size() > all.size()) return;
  for (const ComparedRank* r : odd) {
    Change c{.subject = Subject::kRank,
             .part = part.part,
             .ranks = {r->rank},
             .change_ns = r->test->difference,
             .low_ns = r->test->low,
             .high_ns = r->test->high,
             .adjusted_p = r->adjusted_p};
    c.statement =
        absl::StrCat(part.subject, " on ", Unit(), " ", r->rank, " changed by ", Signed(r->beyond_others_ns),
                     " relative to the other ", Unit(), "s: ", Numbers(r->a.mean, r->b.mean, c));
    if (part.part == StepPart::kCompute) c.evidence = KernelsText(c.ranks);
    out_.push_back(std::move(c));
  }
}

// The kernels that make most of the change, on these ranks, or on all if none are named.
std::string ChangeFinder::KernelsText(const std::vector<int>& ranks) const {
  struct Sums {
    double a = 0;
    double b = 0;
  };
  std::map<std::string, Sums> sums;
  const auto add = [&](const RunSeries& run, double Sums::*side) {
    for (const RankSeries& rank : run.ranks) {
      if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), rank.rank) == ranks.end()) continue;
      for (const auto& [name, series] : rank.kernels)
        sums[name].*side += SampleOf(ValuesOf(series)).mean /
                            static_cast<double>(ranks.empty() ? run.ranks.size() : ranks.size());
    }
  };
  add(a_.series, &Sums::a);
  add(b_.series, &Sums::b);
  double total_a = 0;
  double total = 0;
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [name, s] : sums) {
    total_a += s.a;
    total += s.b - s.a;
    order.emplace_back(s.b - s.a, &name);
  }
  if (total == 0 || total_a <= 0) return "";
  // Those that changed in the direction of the sum.
  std::sort(order.begin(), order.end(),
            [&](const auto& x, const auto& y) { return total > 0 ? x.first > y.first : x.first < y.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kMostKernels, order.size()); ++i) names.push_back(*order[i].second);
  const std::vector<std::string> shown = KernelNames(names, kKernelWidth);
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    const Sums& s = sums[names[i]];
    if (order[i].first / total < 0.1) continue;
    const auto [before, after] = Durations(s.a, s.b);
    parts.push_back(absl::StrFormat("%s %s -> %s per step (%s of the change)", shown[i], before, after,
                                    Percent(order[i].first / total)));
  }
  // A device that is slower is slower in everything.
  const Sums& first = sums[names.front()];
  const double share = order.front().first / total;
  const bool everywhere = first.a > 0 && share < 2 * first.a / total_a && names.size() > 1;
  return parts.empty()
             ? ""
             : absl::StrCat(everywhere ? "All kernels changed alike; the largest: " : "Mostly from ",
                            absl::StrJoin(parts, ", "), ".");
}

// Where compute as a whole did not change, single kernels may have, in both directions.
void ChangeFinder::AddKernels() {
  const bool told =
      std::any_of(out_.begin(), out_.end(), [](const Change& c) { return c.part == StepPart::kCompute; });
  if (told) return;
  for (size_t i = 0; i < std::min(kMostKernels, c_.kernels.size()); ++i) {
    const ComparedWork& w = c_.kernels[i];
    Change c{.subject = Subject::kKernel,
             .name = w.name,
             .change_ns = w.change_ns,
             .low_ns = w.low_ns,
             .high_ns = w.high_ns,
             .adjusted_p = w.adjusted_p};
    const double before_ns = w.a.sample.mean;
    const double after_ns = w.b.sample.mean;
    c.statement = absl::StrCat("Time in ", KernelName(w.name, kKernelWidth), " is ",
                               HowMuch(before_ns, after_ns), ": ", Numbers(before_ns, after_ns, c));
    out_.push_back(std::move(c));
  }
}

void ChangeFinder::AddCollectives() {
  constexpr size_t kMost = 3;
  for (size_t i = 0; i < std::min(kMost, c_.collectives.size()); ++i) {
    const ComparedWork& w = c_.collectives[i];
    Change c{.subject = Subject::kCollective,
             .name = w.name,
             .ranks = w.members,
             .change_ns = w.change_ns,
             .low_ns = w.low_ns,
             .high_ns = w.high_ns,
             .adjusted_p = w.adjusted_p};
    const std::string where = w.members.empty() ? "" : absl::StrCat(" among ", RanksText("rank", w.members));
    const std::string rest = absl::StrCat(Signed(w.change_ns), " per step (95 % interval ", Signed(w.low_ns),
                                          " to ", Signed(w.high_ns), ", ", ChanceText(w.adjusted_p), ").");
    if (w.a.calls == 0 || w.b.calls == 0) {
      c.statement =
          absl::StrCat(w.name, where, " is only called in ",
                       w.a.calls == 0 ? "B: " : "A: ", Signed(w.change_ns), " of transfers per step.");
    } else {
      const auto [before, after] = Durations(w.a.mean_ns, w.b.mean_ns);
      const std::string calls = std::abs(w.b.calls - w.a.calls) > kLeastOwnChange * w.a.calls
                                    ? absl::StrFormat(", %.3g -> %.3g calls per step", w.a.calls, w.b.calls)
                                    : "";
      c.statement =
          absl::StrCat("Transfers of ", w.name, where, " are ", HowMuch(w.a.mean_ns, w.b.mean_ns), ": ",
                       before, " -> ", after, " per call, excluding waits", calls, ", ", rest);
    }
    out_.push_back(std::move(c));
  }
}

// What follows from the rest, and from what nothing else explains.
void ChangeFinder::AddWaiting() {
  const ComparedPart* exposed = PartOf(StepPart::kExposedComm);
  if (exposed == nullptr || !IsWorthNaming(*exposed)) return;
  Change c{.subject = Subject::kWaiting,
           .part = StepPart::kExposedComm,
           .change_ns = exposed->test->difference,
           .low_ns = exposed->test->low,
           .high_ns = exposed->test->high,
           .adjusted_p = exposed->adjusted_p};
  c.statement = absl::StrCat("Exposed communication is ", HowMuch(exposed->a.mean, exposed->b.mean),
                             ", mean over the ranks: ", Numbers(exposed->a.mean, exposed->b.mean, c));
  std::vector<std::string> causes;
  for (size_t i = 0; i < out_.size(); ++i) {
    if ((out_[i].change_ns > 0) != (c.change_ns > 0)) continue;
    if (out_[i].subject == Subject::kRank)
      causes.push_back(absl::StrCat(c.change_ns > 0 ? "ranks wait longer for " : "ranks wait less for ",
                                    RanksText(Unit(), out_[i].ranks), " (", i + 1, ")"));
    if (out_[i].subject == Subject::kCollective)
      causes.push_back(
          absl::StrCat("transfers take ", c.change_ns > 0 ? "longer" : "less time", " (", i + 1, ")"));
  }
  if (!causes.empty()) c.evidence = absl::StrCat("Probably because ", absl::StrJoin(causes, ", "), ".");
  out_.push_back(std::move(c));
}

}  // namespace

std::string ChanceText(double p) { return p < 0.001 ? "p < 0.001" : absl::StrFormat("p = %.3f", p); }

std::vector<Change> ChangesOf(const Run& a, const Run& b, const Comparison& c,
                              const std::vector<ComparedRank>& ranks, double step_ns) {
  return ChangeFinder(a, b, c, ranks, step_ns).Find();
}

}  // namespace gpuprobe::analysis
