// The built program from outside: exit codes, messages, signals. GPUPROBE_TEST_PROGRAM is a copy of it beside
// a library that does nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "collector/store/run_log_writer.h"
#include "nlohmann/json.hpp"
#include "proto/settings.h"
#include "tests/collector/testing/batch_builder.h"
#include "tests/collector/testing/client.h"
#include "tests/collector/testing/subprocess.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::cli {
namespace {

using gpuprobe::testing::Client;
using gpuprobe::testing::Finished;
using gpuprobe::testing::HelloFrame;
using gpuprobe::testing::MakeHello;
using gpuprobe::testing::RunProgram;
using gpuprobe::testing::Stream;
using gpuprobe::testing::Subprocess;
using gpuprobe::testing::TempDir;
using gpuprobe::testing::TrainingRank;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class ProgramTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), GPUPROBE_TEST_PROGRAM);
    return arguments;
  }
  Finished Gpuprobe(const std::vector<std::string>& arguments, const std::string& input = "") const {
    return RunProgram(Command(arguments), dir_.path(), {}, input);
  }
  // One line on stderr that says `what`; nothing on stdout.
  void ExpectRefused(const std::vector<std::string>& arguments, int code, const std::string& what) const {
    const Finished f = Gpuprobe(arguments);
    EXPECT_EQ(f.exit_code, code) << f.err;
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, HasSubstr(what));
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
  }
  std::string MakeRun(int ranks) const {
    std::string out = dir_.File("run");
    const auto directory = store::Directory::Make(out);
    for (int rank = 0; rank < ranks; ++rank) {
      auto writer =
          store::RunLogWriter::Create(*directory, "rank-" + std::to_string(rank) + ".gpr", "test", 1);
      for (const v1::Frame& frame : TrainingRank(rank, ranks, 10)) {
        (*writer)->Append(frame.SerializeAsString(), 0).IgnoreError();
        (*writer)->Flush().IgnoreError();
      }
    }
    return out;
  }
  bool WaitFor(const std::function<bool()>& condition) const {
    for (int i = 0; i < 1000 && !condition(); ++i) usleep(10'000);
    return condition();
  }
  bool Listening(const std::string& socket) const {
    return WaitFor([&] { return Client(socket).connected(); });
  }
  Json ReportOf(const std::string& directory) const {
    std::ifstream in(directory + "/report.json");
    return Json::parse(in);
  }

  TempDir dir_;
};

TEST_F(ProgramTest, WrongUseIsRefusedInOneLine) {
  ExpectRefused({"frobnicate"}, 2,
                "available: run, doctor, attach, detach, capture, collect, hub, jobs, runs, report, autopsy, "
                "diff, top, look, stacks, trace, export, query, simulate, help, version");
  ExpectRefused({"--frobnicate"}, 2, "--frobnicate");
  ExpectRefused({"report", "--frobnicate", dir_.path()}, 2, "--frobnicate");
  ExpectRefused({"report"}, 1, "there is no run under gpuprobe-runs here");
  ExpectRefused({"run"}, 2, "no command to run");
  ExpectRefused({"run", "--"}, 2, "no command to run");
  ExpectRefused({"run", "--frobnicate", "--", "/bin/true"}, 2, "--frobnicate");
  ExpectRefused({"export", dir_.path(), "--format", "xml"}, 2, "xml");
  ExpectRefused({"attach"}, 2, "PID");
  ExpectRefused({"attach", "1", "--for", "soon"}, 2, "30s, 5m or 2h");
  ExpectRefused({"detach"}, 2, "PID|DIR");
  ExpectRefused({"capture", "--steps", "0"}, 2, "--steps");
  ExpectRefused({"capture", "--seconds", "1", "--steps", "2"}, 2, "--seconds");
}

TEST_F(ProgramTest, WhatCannotBeDoneIsSaidInOneLine) {
  ExpectRefused({"report", dir_.File("nowhere")}, 1, dir_.File("nowhere"));
  ExpectRefused({"report", dir_.path()}, 1, "is not a run directory");
  ExpectRefused({"export", dir_.path()}, 1, "is not a run directory");
  ExpectRefused({"collect", "--socket", dir_.File("s.sock"), "--out", "/dev/null/out"}, 1, "/dev/null/out");
  ExpectRefused({"collect", "--socket", "/dev/null/s.sock", "--out", dir_.File("out")}, 1, "/dev/null");
  EXPECT_FALSE(std::filesystem::exists(dir_.File("out"))) << "a folder was left behind";
  ExpectRefused({"run", "--out", "/dev/null/out", "--", "/bin/true"}, 125, "/dev/null/out");
  ExpectRefused({"attach", "2147483646"}, 125, "there is no such process");
  ExpectRefused({"detach", "2147483646"}, 125, "there is no process 2147483646");
  ExpectRefused({"capture", "2147483646"}, 1, "there is no process 2147483646");
  ExpectRefused({"capture", dir_.File("nowhere")}, 1, "is neither a process nor a run directory");
  ExpectRefused({"run", "--", dir_.File("no-such-program")}, 127, "no-such-program");
  std::ofstream(dir_.File("text")) << "text";
  ExpectRefused({"run", "--", dir_.File("text")}, 126, "text");
}

TEST_F(ProgramTest, HelpListsTheTablesItIsMadeFrom) {
  const Finished help = Gpuprobe({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("help environment"));
  const Finished variables = Gpuprobe({"help", "environment"});
  const Finished markdown = Gpuprobe({"help", "environment", "--markdown"});
  EXPECT_EQ(markdown.exit_code, 0);
  for (const settings::Setting& s : settings::kSettings) {
    EXPECT_THAT(variables.out, HasSubstr(std::string(s.name)));
    EXPECT_THAT(markdown.out, HasSubstr("| `" + std::string(s.name) + "` |"));
  }
  EXPECT_THAT(Gpuprobe({"--version"}).out, HasSubstr("gpuprobe 0."));
  for (const char* command : {"run", "collect", "report", "export", "simulate"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    EXPECT_EQ(Gpuprobe({command, "--help"}).exit_code, 0) << command;
  }
}

TEST_F(ProgramTest, RunPassesExitCodesThrough) {
  for (const int code : {0, 1, 7, 42, 255}) {
    EXPECT_EQ(Gpuprobe({"run", "--", "/bin/sh", "-c", "exit " + std::to_string(code)}).exit_code, code);
  }
  EXPECT_EQ(Gpuprobe({"run", "--", "/bin/sh", "-c", "kill -KILL $$"}).exit_code, -SIGKILL)
      << "ends by the command's signal, as a shell around it would see without us";
}

TEST_F(ProgramTest, RunPassesStreamsThroughAndSaysThatNothingWasRecorded) {
  std::string input = "some bytes\n";
  input.push_back('\0');
  const Finished f = Gpuprobe({"run", "--out", dir_.File("out"), "--", "/bin/sh", "-c",
                               "cat; echo error >&2; printf %s \"$0\"", "--json"},
                              input);
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.out, input + "--json") << "what follows -- is the command's";
  EXPECT_THAT(f.err, HasSubstr("error\n"));
  EXPECT_THAT(f.err, HasSubstr("nothing was recorded"));
  EXPECT_THAT(f.err, Not(HasSubstr("the command"))) << "it ended well";
  EXPECT_FALSE(std::filesystem::exists(dir_.File("out")));
}

TEST_F(ProgramTest, RunSaysHowACommandFailedOfWhichNothingWasRecorded) {
  EXPECT_THAT(Gpuprobe({"run", "--", "/bin/sh", "-c", "exit 3"}).err,
              HasSubstr("nothing was recorded: no process of this command initialised CUDA, or none ran long "
                        "enough to connect; the command exited with code 3\n"));
  EXPECT_THAT(Gpuprobe({"run", "--", "/bin/sh", "-c", "kill -KILL $$"}).err,
              HasSubstr("; the command was ended by SIGKILL\n"));
}

TEST_F(ProgramTest, RunSetsTheEnvironmentAndKeepsThePreloadsThatAreThere) {
  const Finished f =
      RunProgram(Command({"run", "--", "/usr/bin/env"}), dir_.path(), {{"LD_PRELOAD", "libm.so.6"}});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  const std::string library = std::filesystem::path(GPUPROBE_TEST_PROGRAM).parent_path() / "libgpuprobe.so";
  EXPECT_THAT(f.out, HasSubstr("LD_PRELOAD=libm.so.6:" + library + "\n"));
  EXPECT_THAT(f.out, HasSubstr("CUDA_INJECTION64_PATH=" + library + "\n"));
  EXPECT_THAT(f.out, HasSubstr("NVTX_INJECTION64_PATH=" + library + "\n"));
  EXPECT_THAT(f.out, HasSubstr("GPUPROBE_SOCKET=/"));
}

TEST_F(ProgramTest, RunPassesSignalsThrough) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT}) {
    const std::string ready = dir_.File("ready-" + std::to_string(signal));
    Subprocess run(Command({"run", "--", "/bin/sh", "-c",
                            "trap 'echo caught; exit 33' TERM INT HUP USR1 USR2 QUIT; touch " + ready +
                                "; while :; do sleep 0.02; done"}),
                   dir_.path());
    ASSERT_TRUE(WaitFor([&] { return std::filesystem::exists(ready); }));
    run.Signal(signal);
    const Finished f = run.Wait();
    EXPECT_EQ(f.exit_code, 33) << signal << f.err;
    EXPECT_EQ(f.out, "caught\n");
  }
}

TEST_F(ProgramTest, RunReportsWhatItsCommandsProcessesSent) {
  const Finished f = Gpuprobe({"run", "--out", dir_.File("out"), "--", "/bin/sh", "-c",
                               std::string(GPUPROBE_TEST_FEED) + " $GPUPROBE_SOCKET 2 20; exit 5"});
  EXPECT_EQ(f.exit_code, 5) << f.err;
  EXPECT_EQ(f.out, "");
  EXPECT_THAT(f.err, HasSubstr("2 ranks on n1"));
  EXPECT_THAT(f.err, HasSubstr("page: " + dir_.File("out") + "/report.html"));
  const Json report = ReportOf(dir_.File("out"));
  EXPECT_EQ(report.at("ranks").size(), 2u);
  EXPECT_EQ(report.at("ranks")[1].at("kernels").at("count"), 80);
  EXPECT_EQ(report.at("conditions").at("command_line")[0], "/bin/sh");
}

TEST_F(ProgramTest, ReportReplaysToWhatTheCollectorSaid) {
  const std::string run = MakeRun(4);
  const Finished text = Gpuprobe({"report", run});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  for (const char* wanted : {"4 ranks", "AllReduce", "backward", "0 records lost"})
    EXPECT_THAT(text.out, HasSubstr(wanted));
  const Json json = Json::parse(Gpuprobe({"report", run, "--json"}).out);
  EXPECT_EQ(json.at("ranks").size(), 4u);
  EXPECT_THAT(Gpuprobe({"report", run, "--html"}).out, HasSubstr("</html>"));
}

TEST_F(ProgramTest, ADamagedLogIsNamedAndTheRestReported) {
  const std::string run = MakeRun(2);
  std::filesystem::resize_file(run + "/rank-1.gpr", std::filesystem::file_size(run + "/rank-1.gpr") * 2 / 3);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"report", run},
                                                    {"report", run, "--json"},
                                                    {"export", run, "--format", "jsonl"}}) {
    const Finished f = Gpuprobe(arguments);
    EXPECT_EQ(f.exit_code, 0);
    EXPECT_THAT(f.err, HasSubstr("rank-1.gpr is damaged after 1.1 s (cut off at byte "));
    EXPECT_THAT(f.err, HasSubstr("everything before it is reported"));
  }
  const Json json = Json::parse(Gpuprobe({"report", run, "--json"}).out);
  EXPECT_EQ(json.at("ranks")[0].at("kernels").at("count"), 40);
  EXPECT_LT(json.at("ranks")[1].at("kernels").at("count"), 40);
  EXPECT_EQ(json.at("trust").at("damaged_logs").size(), 1u);
}

TEST_F(ProgramTest, ExportPrintsEveryRecord) {
  const Finished f = Gpuprobe({"export", MakeRun(2), "--format", "jsonl"});
  EXPECT_EQ(f.exit_code, 0) << f.err;
  std::map<std::string, int> kinds;
  std::istringstream lines(f.out);
  for (std::string line; std::getline(lines, line);) ++kinds[Json::parse(line).at("kind")];
  EXPECT_EQ(kinds["kernel"], 80);
  EXPECT_EQ(kinds["memcpy"], 20);
  EXPECT_EQ(kinds["collective"], 20);
  EXPECT_EQ(kinds["range"], 80);
  EXPECT_EQ(kinds["launch"], 100);
  EXPECT_EQ(kinds["alloc"], 2);
}

TEST_F(ProgramTest, CollectEndsCleanlyOnSigtermWithWhatWasSent) {
  const std::string socket = dir_.File("gpuprobe/c.sock");
  Subprocess collect(Command({"collect", "--socket", socket, "--out", dir_.File("out")}), dir_.path());
  ASSERT_TRUE(Listening(socket));
  EXPECT_EQ(RunProgram({GPUPROBE_TEST_FEED, socket, "3", "10"}, dir_.path()).exit_code, 0);
  Client cut(socket);  // says hello and no more
  cut.Send(Stream({HelloFrame(MakeHello(3, 4))}));
  Client bad(socket);
  bad.Send("GET / HTTP/1.1\r\n\r\n" + std::string(300, '\x80'));
  EXPECT_THAT(bad.ReadToEnd(), HasSubstr("not a gpuprobe frame"));
  collect.Signal(SIGTERM);
  const Finished f = collect.Wait();
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("4 ranks on n1"));
  EXPECT_THAT(f.out, HasSubstr("page: " + dir_.File("out") + "/report.html"));
  const Json report = ReportOf(dir_.File("out"));
  EXPECT_EQ(report.at("ranks").size(), 4u);
  EXPECT_FALSE(report.at("ranks")[0].at("cut_off").get<bool>());
  EXPECT_TRUE(report.at("ranks")[3].at("cut_off").get<bool>());
  EXPECT_TRUE(std::filesystem::exists(dir_.File("out/rank-2.gpr")));
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST_F(ProgramTest, ASecondCollectorIsRefusedWithThePidOfTheFirst) {
  const std::string socket = dir_.File("c.sock");
  Subprocess first(Command({"collect", "--socket", socket, "--out", dir_.File("first")}), dir_.path());
  ASSERT_TRUE(Listening(socket));
  ExpectRefused({"collect", "--socket", socket, "--out", dir_.File("second")}, 1,
                "pid " + std::to_string(first.pid()));
  EXPECT_TRUE(Client(socket).connected());
  first.Signal(SIGKILL);
  first.Wait();
  Subprocess next(Command({"collect", "--socket", socket, "--out", dir_.File("third")}), dir_.path());
  EXPECT_TRUE(Listening(socket)) << "a socket that a killed collector left is taken over";
  next.Signal(SIGINT);
  EXPECT_EQ(next.Wait().exit_code, 0);
}

TEST_F(ProgramTest, AnAutostartedCollectorEndsAfterItsLastClientAndLeavesTheReportOnly) {
  const std::string socket = dir_.File("gpuprobe/c.sock");
  Subprocess collect(Command({"collect", "--autostarted", "--socket", socket, "--out", dir_.File("out")}),
                     dir_.path());
  ASSERT_TRUE(WaitFor([&] { return std::filesystem::exists(socket); }));
  ASSERT_EQ(RunProgram({GPUPROBE_TEST_FEED, socket, "4", "10"}, dir_.path()).exit_code, 0);
  const Finished f = collect.Wait();
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_EQ(f.out + f.err, "");
  EXPECT_EQ(ReportOf(dir_.File("out")).at("ranks").size(), 4u);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.File("gpuprobe")));
}

TEST_F(ProgramTest, WithoutOutTheRunIsCalledAfterTheProgram) {
  const std::string socket = dir_.File("c.sock");
  Subprocess collect(Command({"collect", "--socket", socket}), dir_.path());
  ASSERT_TRUE(Listening(socket));
  ASSERT_EQ(RunProgram({GPUPROBE_TEST_FEED, socket, "1", "1"}, dir_.path()).exit_code, 0);
  collect.Signal(SIGTERM);
  const Finished f = collect.Wait();
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out,
              ::testing::ContainsRegex("page: gpuprobe-runs/[0-9]{8}T[0-9]{6}Z-ddp_train/report.html"));
}

TEST_F(ProgramTest, ACollectorThatIsKilledLosesAtMostTheLastSecond) {
  const std::string socket = dir_.File("c.sock");
  Subprocess collect(Command({"collect", "--socket", socket, "--out", dir_.File("out")}), dir_.path());
  ASSERT_TRUE(Listening(socket));
  Client client(socket);
  std::vector<v1::Frame> frames = TrainingRank(0, 1, 10);
  frames.pop_back();
  client.Send(Stream(frames));
  sleep(2);
  collect.Signal(SIGKILL);
  collect.Wait();
  const Json json = Json::parse(Gpuprobe({"report", dir_.File("out"), "--json"}).out);
  EXPECT_EQ(json.at("ranks")[0].at("kernels").at("count"), 40);
  EXPECT_TRUE(json.at("ranks")[0].at("cut_off").get<bool>());
}

}  // namespace
}  // namespace gpuprobe::cli
