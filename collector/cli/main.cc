#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/cli/command.h"
#include "collector/cli/help_text.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace gpuprobe::cli {

std::span<const Command> Commands() {
  static constexpr Command kCommands[] = {
      {"run", "run a command under the probe and report at its end", RunMain},
      {"collect", "collect from every process of this user until stopped", CollectMain},
      {"report", "report on a recorded run", ReportMain},
      {"diff", "compare two recorded runs", DiffMain},
      {"top", "show a job while it is recorded", TopMain},
      {"export", "print the records of a run", ExportMain},
      {"simulate", "make the records of a job and feed them to a collector", SimulateMain},
      {"help",
       "this help; help environment: the GPUPROBE_* variables; help findings: what can be concluded, and "
       "when",
       HelpMain},
  };
  return kCommands;
}

std::optional<int> Parse(CLI::App& app, const Arguments& arguments) {
  app.get_formatter()->column_width(30);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kDone;
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s (see %s --help)\n", app.get_name().c_str(), what.c_str(),
                 app.get_name().c_str());
    return kUsage;
  }
  return std::nullopt;
}

int Fail(const std::string& command, const std::string& what, int code) {
  std::fprintf(stderr, "gpuprobe: %s: %s\n", command.c_str(), what.c_str());
  return code;
}

int Fail(const std::string& command, const absl::Status& status, int code) {
  return Fail(command, std::string(status.message()), code);
}

std::string Version() { return GPUPROBE_VERSION; }

namespace {

uint64_t ReadClock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

int Main(const Arguments& arguments) {
  if (arguments.empty()) {
    std::fputs(HelpText().c_str(), stderr);
    return kUsage;
  }
  const std::string& first = arguments.front();
  if (first == "--version") {
    std::printf("gpuprobe %s\n", GPUPROBE_VERSION);
    return kDone;
  }
  if (first == "--help" || first == "-h") {
    std::fputs(HelpText().c_str(), stdout);
    return kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    if (first == command.name) return command.main(Arguments(arguments.begin() + 1, arguments.end()));
    names.emplace_back(command.name);
  }
  std::fprintf(stderr, "gpuprobe: %s \"%s\"; there are: %s\n",
               first.starts_with("-") ? "unknown option" : "unknown subcommand", first.c_str(),
               absl::StrJoin(names, ", ").c_str());
  return kUsage;
}

}  // namespace

uint64_t NowNs() { return ReadClock(CLOCK_REALTIME); }
uint64_t MonotonicNs() { return ReadClock(CLOCK_MONOTONIC); }

}  // namespace gpuprobe::cli

int main(int argc, char** argv) {
  auto logger = spdlog::stderr_logger_st("gpuprobe");
  logger->set_pattern("gpuprobe: %v");
  spdlog::set_default_logger(logger);
  // What does not parse is reported by whoever tried to parse it.
  google::protobuf::SetLogHandler(nullptr);
  try {
    return gpuprobe::cli::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory, mostly: our own code reports by Status
    std::fprintf(stderr, "gpuprobe: %s\n", error.what());
    return gpuprobe::cli::kFailed;
  }
}
