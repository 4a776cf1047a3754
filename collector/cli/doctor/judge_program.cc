// What will happen to the library in the program: a command that was not started, or a process.
#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/analysis/units.h"
#include "collector/cli/doctor/checks.h"
#include "collector/cli/doctor/thresholds.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::cli::doctor {
namespace {

using Driver = observe::DriverNow::State;

// "13.0" of 13000
std::string CudaText(uint32_t version) {
  constexpr uint32_t kMajor = 1000;
  constexpr uint32_t kMinor = 10;
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor);
}

// NVML's reference manual.
std::string WhyDriverRefuses(int error) {
  constexpr int kNoPermission = 4;
  constexpr int kNotLoaded = 9;
  constexpr int kMismatch = 18;
  switch (error) {
    case kNoPermission:
      return "this user may not use it";
    case kNotLoaded:
      return "its kernel module is not loaded";
    case kMismatch:
      return "its kernel module and its libraries are of different versions";
    default:
      return absl::StrCat("NVML's error ", error);
  }
}

// "4 x NVIDIA H100", "2 x A, 1 x B"
std::string GpuNames(const std::vector<observe::GpuNow>& gpus) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const observe::GpuNow& gpu : gpus) {
    const std::string name = gpu.name.empty() ? "GPU of unknown name" : gpu.name;
    const auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.first == name; });
    if (found != kinds.end()) {
      ++found->second;
    } else {
      kinds.emplace_back(name, 1);
    }
  }
  return absl::StrJoin(kinds, ", ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, kind.second, " x ", kind.first);
  });
}

void JudgeDriver(const observe::DriverNow& driver, Checks& checks) {
  switch (driver.state) {
    case Driver::kNoLibrary:
      checks.push_back(
          {"driver", State::kProblem, "NVIDIA's driver is not here: libnvidia-ml.so.1 was not found",
           "Run this where the GPUs are; a container needs NVIDIA's runtime (docker run --gpus all)."});
      return;
    case Driver::kRefuses:
      checks.push_back({"driver", State::kProblem,
                        absl::StrCat("NVIDIA's driver cannot be used: ", WhyDriverRefuses(driver.error)),
                        "Make nvidia-smi work first; after an update of the driver, that takes a restart."});
      return;
    case Driver::kSilent:
      checks.push_back(
          {"driver", State::kProblem, "NVIDIA's driver did not answer within 2 s",
           "Look for Xid errors in the kernel's log (dmesg), and reset the GPU or restart the host."});
      return;
    case Driver::kAnswers:
      break;
  }
  std::string fact = absl::StrCat("NVIDIA ", driver.version.empty() ? "of unknown version" : driver.version);
  if (driver.cuda > 0) absl::StrAppend(&fact, ", for CUDA up to ", CudaText(driver.cuda));
  if (driver.cuda > 0 && driver.cuda < kOldestCuda) {
    checks.push_back({"driver", State::kProblem, absl::StrCat(fact, "; gpuprobe needs 11.8"),
                      "Update the driver to 520 or newer."});
    return;
  }
  checks.push_back({"driver", State::kOk, std::move(fact), ""});
}

void JudgeDevices(const std::vector<DeviceFile>& devices, Checks& checks) {
  std::vector<std::string> closed;
  int error = 0;
  for (const DeviceFile& device : devices) {
    if (device.error == 0) continue;
    closed.push_back(device.path);
    error = device.error;
  }
  if (closed.empty()) return;
  checks.push_back({"GPUs", State::kProblem,
                    absl::StrCat(absl::StrJoin(closed, ", "), " cannot be opened: ", std::strerror(error)),
                    "Give this user access to these devices, or the container its GPUs."});
}

// Indices in CUDA_VISIBLE_DEVICES that are no GPU here, with what follows from it; CUDA stops at the first.
void JudgeVisibleDevices(const Facts& facts, size_t gpus, Checks& checks) {
  const Variables& variables = facts.environment->variables;
  const auto found = variables.find("CUDA_VISIBLE_DEVICES");
  if (found == variables.end()) return;
  const std::string fact = absl::StrCat("CUDA_VISIBLE_DEVICES=\"", found->second, "\"");
  constexpr char kRemedy[] = "Unset it, or name the GPUs that the job is to use.";
  size_t visible = 0;
  const std::vector<std::string> words = absl::StrSplit(found->second, ',', absl::SkipEmpty());
  for (const std::string& word : words) {
    if (word.starts_with("GPU-") || word.starts_with("MIG-")) {
      ++visible;
      continue;
    }
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    constexpr size_t kMostDigits = 6;
    if (number && word.size() <= kMostDigits && std::stoul(word) < gpus) {
      ++visible;
      continue;
    }
    if (visible == 0) break;
    checks.push_back({"GPUs", State::kWarning,
                      absl::StrCat(fact, ": there is no GPU ", word, " here, so CUDA sees ", visible,
                                   " of the ", words.size(), " that are named"),
                      kRemedy});
    return;
  }
  if (visible == 0)
    checks.push_back(
        {"GPUs", State::kProblem, absl::StrCat(fact, " hides all GPUs, so CUDA will not start"), kRemedy});
}

void JudgeGpuUse(const Facts& facts, Checks& checks) {
  std::vector<std::string> users;
  for (const observe::GpuNow& gpu : facts.gpus->driver.gpus) {
    std::vector<std::string> programs;
    for (const pid_t pid : gpu.pids) {
      if (facts.process.has_value() && pid == facts.process->pid) continue;
      const auto program = facts.gpus->programs.find(pid);
      programs.push_back(absl::StrCat(
          program == facts.gpus->programs.end() || program->second.empty() ? "a process" : program->second,
          " (pid ", pid, ")"));
    }
    if (!programs.empty())
      users.push_back(absl::StrCat("GPU ", gpu.index, " by ", absl::StrJoin(programs, ", ")));
  }
  if (users.empty()) return;
  checks.push_back({"GPUs", State::kNote, absl::StrCat("in use already: ", absl::StrJoin(users, "; ")),
                    "Times are those of shared GPUs; gpuprobe look shows what these programs do."});
}

// NCCL refuses two ranks of a communicator on one GPU.
void JudgeShares(const Facts& facts, Checks& checks) {
  const int gpus = static_cast<int>(facts.gpus->driver.gpus.size());
  const int ranks = RanksHere(facts);
  if (ranks <= gpus) return;
  checks.push_back({"GPUs", State::kWarning,
                    absl::StrCat(gpus, " for ", ranks, " ranks: some share one, which NCCL refuses"),
                    "Start as many ranks as there are GPUs."});
}

// Whether the program feels what the probe leaves out for this defect, and how much it matters.
std::optional<State> Felt(const Facts& facts, cupti::Precaution precaution) {
  switch (precaution) {
    case cupti::kNoForcedFlush:
    case cupti::kNoDeviceWaits:
      return State::kWarning;
    case cupti::kGraphsNodeByNode: {
      const std::vector<std::string> kinds = absl::StrSplit(ValueOf(facts, "GPUPROBE_KINDS"), ',');
      const bool asked = std::find(kinds.begin(), kinds.end(), "graphs") != kinds.end();
      return asked ? std::optional(State::kWarning) : std::nullopt;
    }
    case cupti::kKernelsStayEnabled: {
      const std::string budget = ValueOf(facts, "GPUPROBE_OVERHEAD_BUDGET");
      return budget.empty() || budget == "0" ? std::nullopt : std::optional(State::kNote);
    }
    case cupti::kGraphWorkUnjoined:
    case cupti::kNamesUncertain:
      return State::kNote;
  }
  return std::nullopt;
}

// "13.3 or newer (package 13.5.25), /opt/..., PyTorch loads it"
std::string CuptiText(const CuptiLibrary& library) {
  std::string text = CuptiRelease(library.version);
  if (library.at_least) absl::StrAppend(&text, " or newer");
  if (text.empty()) text = "a release that the file does not tell";
  if (!library.package.empty()) absl::StrAppend(&text, " (package ", library.package, ")");
  return absl::StrCat(text, ", ", library.path, library.origin.empty() ? "" : ", ", library.origin);
}

// ", on GPU 2"; empty: NVML knows of none.
std::string UsedGpus(const Facts& facts) {
  std::vector<std::string> used;
  if (!facts.gpus.has_value()) return "";
  for (const observe::GpuNow& gpu : facts.gpus->driver.gpus) {
    if (std::find(gpu.pids.begin(), gpu.pids.end(), facts.process->pid) != gpu.pids.end())
      used.push_back(absl::StrCat(gpu.index));
  }
  return used.empty() ? "" : absl::StrCat(", on GPU ", absl::StrJoin(used, ", "));
}

constexpr char kWithoutCupti[] = "no GPU times of kernels, copies and collectives are recorded";
constexpr char kGetCupti[] =
    "Install CUPTI of the program's CUDA (pip install nvidia-cuda-cupti-cu12, or the toolkit) and put its "
    "folder into "
    "LD_LIBRARY_PATH.";

void JudgeDefects(const Facts& facts, const CuptiLibrary& library, Checks& checks) {
  Check check{"CUPTI", State::kOk, CuptiText(library), ""};
  uint32_t mended = 0;
  std::vector<std::string> defects;
  for (const cupti::KnownDefect& defect : cupti::kKnownDefects) {
    // A lower bound says nothing about what later releases have mended.
    if (library.version == 0 || library.at_least) break;
    if (library.version < defect.from || library.version >= defect.before) continue;
    const std::optional<State> felt = Felt(facts, defect.precaution);
    if (!felt.has_value()) continue;
    check.state = std::max(check.state, *felt);
    mended = std::max(mended, defect.before);
    defects.push_back(absl::StrCat(std::string(defect.defect)));
  }
  if (check.state != State::kOk) {
    absl::StrAppend(&check.fact, ": ", absl::StrJoin(defects, "; "));
    check.remedy =
        absl::StrCat("Update CUPTI to ", CuptiRelease(mended),
                     " or newer, or live with it: the report says what is left out because of it.");
  }
  checks.push_back(std::move(check));
}

void JudgeObstacle(const PreloadFinding& finding, Checks& checks) {
  const std::string sentence = PreloadLine(finding);
  switch (finding.obstacle) {
    case PreloadObstacle::kSanitizer:
      checks.push_back({"command", State::kWarning, sentence,
                        "Profile a build without the sanitizer: its times are not those of the program."});
      return;
    case PreloadObstacle::kMusl:
      checks.push_back({"command", State::kProblem, sentence, "Use a build for glibc."});
      return;
    case PreloadObstacle::kArchitecture:
      checks.push_back({"command", State::kProblem, sentence, "Use a 64-bit build for this machine."});
      return;
    case PreloadObstacle::kPrivileges:
      checks.push_back(
          {"command", State::kWarning, sentence,
           "Profile a copy without the set-user-ID bit and capabilities, as a user who needs neither."});
      return;
  }
}

std::string NcclText(const CommandFacts& command) {
  if (command.has_nccl)
    return ", with NCCL inside: its calls come by way of NCCL's profiler plugin (NCCL 2.23 or newer)";
  for (const std::string& library : command.elf->libraries) {
    if (library.starts_with("libnccl.so")) return ", with NCCL as a library";
  }
  return "";
}

}  // namespace

void JudgeCommand(const CommandFacts& command, Checks& checks) {
  const std::string& name = command.words.front();
  if (command.files.empty() || command.error == ENOENT) {
    const bool script = command.files.size() > 1;
    checks.push_back({"command", State::kProblem,
                      script ? absl::StrCat(command.files[command.files.size() - 2], " is a script for ",
                                            command.files.back(), ", which is not there")
                             : absl::StrCat("there is no program ", name),
                      script ? "Install that interpreter, or correct the first line of the script."
                             : "Check the name and PATH."});
    return;
  }
  const std::string& file = command.files.back();
  if (command.error != 0) {
    checks.push_back({"command", State::kProblem,
                      absl::StrCat(file, " cannot be executed: ", std::strerror(command.error)),
                      command.error == EACCES ? absl::StrCat("Make it executable (chmod +x ", file, ").")
                                              : "Give a program that can be started."});
    return;
  }
  if (command.obstacle.has_value()) {
    JudgeObstacle(*command.obstacle, checks);
    return;
  }
  if (!command.elf.has_value()) {
    checks.push_back({"command", State::kProblem,
                      absl::StrCat(file, " is neither a program nor a script whose interpreter is there"),
                      "Let its first line name an interpreter (#!/bin/sh), or name that in front of it."});
    return;
  }
  if (!command.missing_loader.empty()) {
    checks.push_back(
        {"command", State::kProblem,
         absl::StrCat(file, " needs the loader ", command.missing_loader, ", which is not there"),
         "Use a build for this system."});
    return;
  }
  if (command.elf->interpreter.empty()) {
    checks.push_back({"command", State::kWarning,
                      absl::StrCat(file, " is statically linked: nothing can be loaded into it"),
                      "Link it dynamically; if it only starts other programs, nothing needs to be done: "
                      "these are recorded."});
    return;
  }
  std::string fact = file;
  if (command.files.size() > 1) absl::StrAppend(&fact, " for the script ", command.files.front());
  checks.push_back({"command", State::kOk, absl::StrCat(fact, NcclText(command)), ""});
}

void JudgeLibrary(const LibraryFacts& library, Checks& checks) {
  constexpr char kInstall[] = "Install gpuprobe again, or put libgpuprobe.so beside the program.";
  if (!library.problem.empty()) {
    checks.push_back({"library", State::kProblem, library.problem, kInstall});
    return;
  }
  if (!library.same_architecture || !library.is_probe) {
    checks.push_back(
        {"library", State::kProblem,
         absl::StrCat(library.path, library.same_architecture
                                        ? " is damaged, or another library: it lacks InitializeInjection"
                                        : " is not a library for this machine"),
         kInstall});
    return;
  }
  if (library.no_exec) {
    checks.push_back(
        {"library", State::kProblem,
         absl::StrCat(library.path, " is on a file system that is mounted noexec, so no program can load it"),
         "Install gpuprobe on a file system without that option."});
    return;
  }
  checks.push_back({"library", State::kOk, library.path, ""});
}

void JudgeGpus(const Facts& facts, Checks& checks) {
  const observe::DriverNow& driver = facts.gpus->driver;
  JudgeDriver(driver, checks);
  JudgeDevices(facts.gpus->devices, checks);
  if (driver.state != Driver::kAnswers) return;
  if (driver.gpus.empty()) {
    checks.push_back(
        {"GPUs", State::kProblem, "the driver has none for this user or container",
         "Give the container its GPUs (docker run --gpus all), or the job an allocation with some."});
    return;
  }
  checks.push_back({"GPUs", State::kOk, GpuNames(driver.gpus), ""});
  JudgeGpuUse(facts, checks);
  JudgeShares(facts, checks);
  if (facts.environment.has_value()) JudgeVisibleDevices(facts, driver.gpus.size(), checks);
}

void JudgeCupti(const Facts& facts, Checks& checks) {
  const CuptiFacts& cupti = *facts.cupti;
  if (cupti.library.has_value()) {
    if (cupti.library->version > 0 && cupti.library->version < kOldestCupti) {
      checks.push_back({"CUPTI", State::kProblem,
                        absl::StrCat(CuptiText(*cupti.library),
                                     ": older than 11.8, the first that gpuprobe knows, so ", kWithoutCupti),
                        kGetCupti});
      return;
    }
    JudgeDefects(facts, *cupti.library, checks);
    return;
  }
  if (!cupti.unsupported.has_value()) {
    checks.push_back(
        {"CUPTI", State::kProblem, absl::StrCat("libcupti was not found: ", kWithoutCupti), kGetCupti});
    return;
  }
  const bool too_new = facts.gpus.has_value() && facts.gpus->driver.cuda > 0 &&
                       cupti.unsupported->major > static_cast<int>(facts.gpus->driver.cuda / 1000);
  checks.push_back({"CUPTI", State::kProblem,
                    absl::StrCat("only ", CuptiText(*cupti.unsupported), " was found, which is ",
                                 too_new ? absl::StrCat("for a newer driver than this one (CUDA ",
                                                        CudaText(facts.gpus->driver.cuda), ")")
                                         : std::string("older than 11.8, the first that gpuprobe knows"),
                                 ": ", kWithoutCupti),
                    kGetCupti});
}

void JudgeProcess(const Facts& facts, Checks& checks) {
  const ProcessFacts& process = *facts.process;
  const std::string pid = absl::StrCat(process.pid);
  if (!process.readable) {
    checks.push_back(
        {"process", State::kWarning,
         absl::StrCat(pid, " (", process.command, ") may not be looked into: ", process.unreadable),
         "Run gpuprobe doctor as root, or as the user whose process it is."});
    return;
  }
  checks.push_back({"process", State::kOk, absl::StrCat(pid, ": ", process.command, UsedGpus(facts)), ""});
  constexpr char kAnew[] = "start it anew under gpuprobe run to record it";
  if (process.probe.empty()) {
    checks.push_back(
        {"recording", State::kWarning,
         absl::StrCat("it is not recorded: libgpuprobe.so is not in it",
                      !process.has_driver ? ", and it has not started CUDA either"
                      : process.no_attach.empty()
                          ? ""
                          : absl::StrCat(", and gpuprobe attach refuses it: ", process.no_attach)),
         absl::StrCat(process.has_driver && process.no_attach.empty()
                          ? absl::StrCat("Record it from now on with gpuprobe attach ", pid, ", see")
                          : std::string("See"),
                      " what it does with gpuprobe look ", pid, " or gpuprobe stacks ", pid, ", or ", kAnew,
                      ".")});
  } else if (process.recorded_parent != 0) {
    checks.push_back({"recording", State::kNote,
                      absl::StrCat("it was forked by pid ", process.recorded_parent,
                                   ", which is recorded; children are not"),
                      "Nothing needs to be done: what CUDA has set up cannot be used in such a child."});
  } else if (!process.has_driver) {
    checks.push_back({"recording", State::kNote,
                      absl::StrCat(process.probe, " is loaded and waits: the program has not started CUDA"),
                      "Nothing needs to be done; recording begins with the first use of CUDA."});
  } else if (!process.has_thread) {
    checks.push_back(
        {"recording", State::kProblem,
         absl::StrCat(process.probe, " is loaded, but its thread does not run: it stays out, or gave up"),
         absl::StrCat("Read what the program printed on standard error, and ", kAnew, ".")});
  } else if (process.connected.has_value() && !*process.connected) {
    checks.push_back({"recording", State::kWarning,
                      absl::StrCat(process.probe, " records, but no collector is connected"),
                      "Start gpuprobe collect, which it finds within 2 s."});
  } else {
    checks.push_back({"recording", State::kOk,
                      absl::StrCat("by ", process.probe,
                                   process.connected.has_value() ? ", connected to a collector" : ""),
                      ""});
  }
  if (!process.probe.empty() && !process.probe_is_ours)
    checks.push_back({"library", State::kNote,
                      absl::StrCat(process.probe, " is not the library that belongs to this program"),
                      "Use the gpuprobe that it was installed with, if they differ in version."});
  if (process.has_nccl || !process.nccl.empty())
    checks.push_back({"NCCL", State::kOk, process.nccl.empty() ? "inside the program" : process.nccl, ""});
  if (!process.tools.empty())
    checks.push_back(
        {"other tools", State::kNote, absl::StrCat("loaded: ", absl::StrJoin(process.tools, ", ")),
         "Before CUPTI 13.4 one tool has it; run one of them at a time for times that nobody disturbs."});
  if (process.python != 0 && process.no_stacks.empty())
    checks.push_back({"stacks", State::kOk,
                      absl::StrCat("gpuprobe stacks ", pid, " reads those of its Python ",
                                   process.python >> 24, ".", process.python >> 16 & 0xff),
                      ""});
  if (!process.no_stacks.empty())
    checks.push_back({"stacks", State::kNote, absl::StrCat("no Python stacks: ", process.no_stacks),
                      absl::StrCat("Try gpuprobe stacks ", pid, " --native for those of C and C++.")});
}

}  // namespace gpuprobe::cli::doctor
