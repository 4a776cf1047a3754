#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/keyboard.h"
#include "collector/cli/live_run.h"
#include "collector/cli/output.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/http/fetch.h"
#include "collector/recording/live_display.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/live_text.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr char kTop[] = "top";
constexpr std::chrono::milliseconds kRefresh{1000};
constexpr size_t kMostMoments = 60;  // of the past, a rank

// What the user looks at, and how the ranks did at the last looks.
class View {
 public:
  explicit View(render::LiveOrder order) : order_(order) {}

  void Take(analysis::LiveStatus status, uint64_t now_ns) {
    status_ = std::move(status);
    for (const analysis::LiveRank& r : status_.ranks) {
      std::deque<std::pair<uint64_t, analysis::LiveRank>>& past = past_[IdentityOf(r)];
      past.emplace_front(now_ns, r);
      if (past.size() > kMostMoments) past.pop_back();
    }
    selected_ = std::min(selected_, status_.ranks.empty() ? 0 : status_.ranks.size() - 1);
  }

  // Shows this rank alone; false if it is not there.
  bool OpenRank(int rank) {
    for (const analysis::LiveRank& r : status_.ranks) {
      if (r.rank == rank) opened_ = IdentityOf(r);
    }
    return opened_.has_value();
  }

  bool Press(Key key, size_t page) {
    const size_t last = status_.ranks.empty() ? 0 : status_.ranks.size() - 1;
    switch (key) {
      case Key::kQuit:
        return false;
      case Key::kNone:
        break;
      case Key::kUp:
        selected_ -= std::min<size_t>(selected_, 1);
        break;
      case Key::kDown:
        selected_ = std::min(selected_ + 1, last);
        break;
      case Key::kPageUp:
        selected_ -= std::min(selected_, page);
        break;
      case Key::kPageDown:
        selected_ = std::min(selected_ + page, last);
        break;
      case Key::kEnter:
        Open();
        break;
      case Key::kBack:
        opened_.reset();
        break;
      case Key::kSort: {
        const size_t next = (static_cast<size_t>(order_) + 1) % std::size(render::kLiveOrders);
        order_ = render::kLiveOrders[next].second;
        selected_ = 0;
        break;
      }
    }
    return true;
  }

  // For a terminal of so many rows; without `rows`, the whole screen at once.
  std::string Text(const render::Screen& screen, std::optional<size_t> rows) const {
    if (opened_.has_value()) {
      if (const std::optional<size_t> rank = Find(*opened_))
        return render::LiveRankScreen(status_, *rank, PastOf(*opened_), screen);
    }
    render::LiveView view;
    view.order = order_;
    if (rows.has_value() && !status_.ranks.empty()) {
      view.rows = *rows;
      view.first = selected_ / *rows * *rows;
      view.selected = render::OrderOf(status_, order_)[selected_];
    }
    return render::LiveScreen(status_, view, screen);
  }

  std::string Help() const {
    if (opened_.has_value()) return "esc: all ranks   q: quit";
    return absl::StrCat("up, down: select   enter: this rank   s: sort (by ",
                        render::kLiveOrders[static_cast<size_t>(order_)].first, ")   q: quit");
  }

 private:
  // Processes come and go, so that an index is good for one look only.
  using Identity = std::pair<std::string, std::string>;
  static Identity IdentityOf(const analysis::LiveRank& rank) { return {rank.host, rank.label}; }

  void Open() {
    if (!status_.ranks.empty())
      opened_ = IdentityOf(status_.ranks[render::OrderOf(status_, order_)[selected_]]);
  }

  std::optional<size_t> Find(const Identity& identity) const {
    for (size_t i = 0; i < status_.ranks.size(); ++i) {
      if (IdentityOf(status_.ranks[i]) == identity) return i;
    }
    return std::nullopt;
  }

  std::vector<render::LiveMoment> PastOf(const Identity& identity) const {
    std::vector<render::LiveMoment> past;
    const auto found = past_.find(identity);
    if (found == past_.end()) return past;
    const uint64_t now_ns = found->second.front().first;
    for (const auto& [then_ns, rank] : found->second)
      past.push_back({.ago_ns = now_ns - then_ns, .rank = rank});
    return past;
  }

  render::LiveOrder order_;
  size_t selected_ = 0;             // into the order
  std::optional<Identity> opened_;  // shown alone
  analysis::LiveStatus status_;
  std::map<Identity, std::deque<std::pair<uint64_t, analysis::LiveRank>>> past_;
};

struct TopOptions {
  std::string directory;
  bool once = false;
  bool json = false;
  std::string sort = "rank";
  std::optional<int> rank;
  ColorOption color;
};

// Shows what is new. False: the run is over.
absl::StatusOr<bool> Look(LiveRun& run, View& view) {
  absl::StatusOr<analysis::LiveStatus> status = run.Look();
  if (absl::IsNotFound(status.status())) return false;
  if (!status.ok()) return status.status();
  view.Take(*std::move(status), recording::MonotonicNs());
  return true;
}

std::string Over(const std::string& directory) {
  if (http::IsUrl(directory)) return "the run is over\n";
  return absl::StrCat("the run is over: gpuprobe report ", directory, "\n");
}

// Prints one screen after the other, for output that is not a terminal, or a dumb one.
int PrintScreens(const TopOptions& options, LiveRun& run, View& view) {
  while (true) {
    PrintForPeople(view.Text(ScreenOf(STDOUT_FILENO, options.color.no_color), std::nullopt));
    if (!FlushOutput() || options.once) return kDone;
    Print("\n");
    std::this_thread::sleep_for(kRefresh);
    const absl::StatusOr<bool> live = Look(run, view);
    if (!live.ok()) return Fail(kTop, live.status(), kFailed);
    if (!*live) break;
  }
  PrintForPeople(Over(options.directory));
  return kDone;
}

// What a screen needs beside the ranks' rows: three lines of head, those of silent hosts, an empty line, the
// columns, two of help.
constexpr size_t kOtherRows = 12;

int Watch(const TopOptions& options, LiveRun& run, View& view, std::unique_ptr<Keyboard> keyboard) {
  auto next = std::chrono::steady_clock::now() + kRefresh;
  while (true) {
    const render::Screen screen = ScreenOf(STDOUT_FILENO, options.color.no_color);
    const size_t rows = Keyboard::Rows();
    const size_t page = std::max<size_t>(rows, kOtherRows + 1) - kOtherRows;
    keyboard->Show(text::PrintableStyled(absl::StrCat(
        view.Text(screen, page), "\n", render::Layout(screen).In(render::Emphasis::kQuiet, view.Help()))));
    if (!OutputWorks()) return kDone;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    if (!view.Press(keyboard->Await(std::max(left, std::chrono::milliseconds(0))), page)) break;
    if (std::chrono::steady_clock::now() < next) continue;
    next = std::chrono::steady_clock::now() + kRefresh;
    const absl::StatusOr<bool> live = Look(run, view);
    if (live.ok() && *live) continue;
    keyboard.reset();
    if (!live.ok()) return Fail(kTop, live.status(), kFailed);
    PrintForPeople(Over(options.directory));
    return kDone;
  }
  const int signal = keyboard->end_signal();
  keyboard.reset();
  if (signal != 0) recording::EndBySignal(signal);
  return kDone;
}

}  // namespace

int TopMain(const Arguments& arguments) {
  CLI::App app("Shows a job while it runs, one row per rank, refreshed every second", "gpuprobe top");
  TopOptions options;
  std::vector<std::string> orders;
  for (const auto& [name, order] : render::kLiveOrders) orders.emplace_back(name);
  app.add_option("DIR", options.directory,
                 "run directory, or URL of a served run [the one under gpuprobe-runs that is being recorded]")
      ->check(NotEmpty());
  app.add_flag("--once", options.once, "print the screen once and exit");
  app.add_option("--sort", options.sort,
                 "order of the ranks: rank, or late, step, waited or memory, largest first [rank]")
      ->check(OneOf(orders));
  app.add_option("--rank", options.rank, "only this rank: what it is doing now, and its last minute")
      ->check(WholeNumber(0, INT32_MAX))
      ->option_text("N");
  app.add_flag("--json", options.json, "with --once: print JSON for tools")->needs("--once");
  HubOption hub;
  hub.AddTo(app);
  options.color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (absl::Status s = hub.Resolve(options.directory, /*only_running=*/true); !s.ok())
    return Fail(kTop, s, kFailed);
  if (options.directory.empty()) options.directory = NewestLiveRun();
  if (options.directory.empty()) {
    return Fail(kTop, absl::StrCat("no run is being recorded under ", kRuns, "; name the run directory"),
                kFailed);
  }
  const size_t order =
      static_cast<size_t>(std::find(orders.begin(), orders.end(), options.sort) - orders.begin());
  View view(render::kLiveOrders[order].second);
  LiveRun run(options.directory);
  const absl::StatusOr<bool> live = Look(run, view);
  if (!live.ok()) return Fail(kTop, live.status(), kFailed);
  if (!*live) return Fail(kTop, WhyNotLive(options.directory), kFailed);
  if (options.rank.has_value() && !view.OpenRank(*options.rank))
    return Fail(kTop, absl::StrCat("there is no rank ", *options.rank, " in ", options.directory), kFailed);
  if (options.json) {
    const absl::StatusOr<std::string> text = run.Json();
    if (!text.ok()) return Fail(kTop, text.status(), kFailed);
    Print(text::PrintableLines(text::SafeJson(*text)));
    return kDone;
  }
  std::unique_ptr<Keyboard> keyboard = options.once ? nullptr : Keyboard::Open();
  if (keyboard == nullptr) return PrintScreens(options, run, view);
  return Watch(options, run, view, std::move(keyboard));
}

}  // namespace gpuprobe::cli
