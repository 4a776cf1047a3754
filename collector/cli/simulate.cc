#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/cli/beside.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/wrapped_help.h"
#include "collector/simulate/request.h"

namespace gpuprobe::cli {
namespace {

using simulate::JobOption;

constexpr char kSimulate[] = "simulate";

std::vector<std::string> ScenarioNames() {
  std::vector<std::string> names;
  for (const simulate::Scenario& each : simulate::Scenarios()) names.emplace_back(each.name);
  return names;
}

// Options, as collector/simulate/request.h passes them on.
class SimulateOptions {
 public:
  explicit SimulateOptions(CLI::App& app) {
    app.add_flag("--list", list, "list the scenarios");
    app.add_option("--scenario", scenario, "name of the scenario (see --list)")
        ->check(Suggested(ScenarioNames()));
    for (const JobOption& option : simulate::JobOptions()) Add(app, option);
    app.add_option("--seed", seed_, "random seed [1]")->check(WholeNumber(0, UINT64_MAX));
    keep_.AddTo(app);
    CLI::Option* const out =
        app.add_option("--out", out_, "run directory [gpuprobe-runs/<UTC time>-<name>]")->check(NotEmpty());
    CLI::Option* const socket =
        app.add_option("--socket", socket_, "socket of a running collector [starts its own]")->excludes(out);
    CLI::Option* const real_time =
        app.add_flag("--real-time", real_time_, "run at the job's own pace [as fast as the collector reads]");
    app.add_option(
           "--hosts", hosts_,
           "multiply the job's two hosts to this many, and write to --out what each would send to a hub, "
           "rolled up")
        ->check(WholeNumber(2, 10'000))
        ->type_name("INT")
        ->needs(out)
        ->excludes(socket)
        ->excludes(real_time)
        ->excludes("--keep");
    CLI::Option* const of_cluster = app.add_flag("--cluster", cluster,
                                                 "write a day of many jobs, healthy and faulty, to --out, as "
                                                 "gpuprobe hub --out has it, with the truth in truth.json");
    of_cluster->needs(out)
        ->excludes("--scenario")
        ->excludes("--hosts")
        ->excludes(real_time)
        ->excludes("--keep");
    app.add_option("--jobs", jobs_, absl::StrCat("with --cluster: how many jobs [", jobs_, "]"))
        ->check(WholeNumber(simulate::kFewestJobs, 100'000))
        ->type_name("INT")
        ->needs(of_cluster);
    app.add_option("--hours", hours_, "with --cluster: the hours over which their beginnings spread [24]")
        ->check(CLI::Range(0.1, 24.0 * 366))
        ->needs(of_cluster);
  }

  std::vector<std::string> Arguments(const std::string& collector) const {
    std::vector<std::string> arguments = {absl::StrCat("--seed=", seed_),
                                          absl::StrCat("--keep=", keep_.bytes),
                                          absl::StrCat("--collector=", collector)};
    if (!scenario.empty()) arguments.push_back(absl::StrCat("--scenario=", scenario));
    if (cluster) {
      arguments.emplace_back("--cluster=1");
      arguments.push_back(absl::StrCat("--jobs=", jobs_));
      arguments.push_back(absl::StrFormat("--hours=%.17g", hours_));
    }
    if (!out_.empty()) arguments.push_back(absl::StrCat("--out=", out_));
    if (!socket_.empty()) arguments.push_back(absl::StrCat("--socket=", socket_));
    if (hosts_ > 0) arguments.push_back(absl::StrCat("--hosts=", hosts_));
    if (real_time_) arguments.emplace_back("--real-time=1");
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i].has_value()) continue;
      arguments.push_back(
          absl::StrFormat("--%s=%.17g", std::string(simulate::JobOptions()[i].name), *values_[i]));
    }
    return arguments;
  }

  bool list = false;
  bool cluster = false;
  std::string scenario;

 private:
  void Add(CLI::App& app, const JobOption& option) {
    const std::string name = absl::StrCat("--", std::string(option.name));
    const std::string help(option.help);
    std::optional<double>& value = values_.emplace_back();
    if (option.kind == JobOption::Kind::kFlag) {
      app.add_flag_callback(
          name, [&value] { value = 1; }, help);
    } else if (option.kind == JobOption::Kind::kReal) {
      app.add_option(name, value, help)->check(CLI::Range(option.least, option.most));
    } else {
      app.add_option(name, value, help)
          ->type_name("INT")
          ->check(WholeNumber(static_cast<uint64_t>(option.least), static_cast<uint64_t>(option.most)));
    }
  }

  std::deque<std::optional<double>> values_;  // of JobOptions; the parser points at them
  uint64_t seed_ = 1;
  std::string out_;
  std::string socket_;
  bool real_time_ = false;
  uint64_t hosts_ = 0;
  uint64_t jobs_ = 40;
  double hours_ = 24;
  KeepOption keep_;
};

int List() {
  std::string text;
  for (const simulate::Scenario& scenario : simulate::Scenarios())
    absl::StrAppendFormat(&text, "%-24s %s\n", std::string(scenario.name), std::string(scenario.summary));
  Print(WrappedFor(STDOUT_FILENO, text));
  return kDone;
}

int RefuseScenario(const std::string& name) {
  const std::vector<std::string> names = ScenarioNames();
  const std::string near = DidYouMean(name, names);
  return Fail(kSimulate,
              absl::StrCat("no scenario \"", name, "\"",
                           near.empty() ? absl::StrCat("; available: ", absl::StrJoin(names, ", ")) : near),
              kUsage);
}

// Becomes the simulator.
int Execute(const SimulateOptions& options) {
  const absl::StatusOr<std::string> own = OwnPath();
  if (!own.ok()) return Fail(kSimulate, own.status(), kFailed);
  std::vector<std::string> arguments = options.Arguments(*own);
  if (const auto request = simulate::ReadRequest(arguments); !request.ok())
    return Fail(kSimulate, request.status(), kUsage);
  const absl::StatusOr<std::string> program = FindBeside("gpuprobe-simulate", {"", "../libexec"});
  if (!program.ok()) return Fail(kSimulate, program.status(), kFailed);
  arguments.insert(arguments.begin(), "gpuprobe-simulate");
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // What stands in for streams that the caller closed (HoldStandardStreams) does so there, too.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) fcntl(fd, F_SETFD, 0);
  execv(program->c_str(), argv.data());
  return Fail(kSimulate, absl::StrCat(*program, ": ", std::strerror(errno)), kFailed);
}

}  // namespace

int SimulateMain(const Arguments& arguments) {
  CLI::App app(
      "Simulates a training job, or a cluster's day of them, and feeds its records to a real collector",
      "gpuprobe simulate");
  SimulateOptions options(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (options.list) return List();
  if (options.cluster) return Execute(options);
  if (options.scenario.empty()) return Fail(kSimulate, "--scenario is required; --list shows them", kUsage);
  if (simulate::FindScenario(options.scenario) == nullptr) return RefuseScenario(options.scenario);
  return Execute(options);
}

}  // namespace gpuprobe::cli
