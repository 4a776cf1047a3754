// Runs a fuzz target without libFuzzer, fuzz_replay TARGET CORPUS: every file of its corpus, then inputs made
// by changing those files, for GPUPROBE_FUZZ_SECONDS (default 2). Changes are a fixed sequence, so a failure
// comes again.
//
// An input that kills the process is left in the working directory as crash-<target>, and its name is
// printed.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace gpuprobe::fuzz {

// Targets register before main, in any order.
std::vector<Target>& Targets() {
  static std::vector<Target> targets;
  return targets;
}

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxBytes = 4096;
constexpr unsigned kHangSeconds = 20;  // for one input, on a loaded machine

std::string current;     // the input that runs now
std::string crash_path;  // where it goes if it does not come back

// On the thread that crashed: system calls only.
void KeepInput(int signal) {
  const int fd = open(crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && write(fd, current.data(), current.size()) >= 0) {
    constexpr char kSaid[] = "the input is kept in ";
    (void)!write(STDERR_FILENO, kSaid, sizeof(kSaid) - 1);
    (void)!write(STDERR_FILENO, crash_path.data(), crash_path.size());
    (void)!write(STDERR_FILENO, "\n", 1);
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void Run(const Target& target, std::string input) {
  current = std::move(input);
  alarm(kHangSeconds);
  target.run(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  alarm(0);
}

std::vector<std::string> ReadCorpus(const fs::path& folder) {
  std::vector<std::string> inputs;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return inputs;
}

class Changer {
 public:
  explicit Changer(const std::vector<std::string>& corpus) : corpus_(corpus) {}

  std::string Next() {
    std::string input = corpus_[Below(corpus_.size())];
    for (size_t left = 1 + Below(8); left > 0; --left) Change(input);
    if (input.size() > kMaxBytes) input.resize(kMaxBytes);
    return input;
  }

 private:
  size_t Below(size_t count) { return random_() % count; }
  char Any() { return static_cast<char>(random_()); }

  void Change(std::string& input) {
    const size_t at = Below(input.size() + 1);
    switch (Below(6)) {
      case 0:
        if (at < input.size()) input[at] = Any();
        return;
      case 1:
        input.insert(at, 1 + Below(4), Any());
        return;
      case 2:
        input.erase(at, 1 + Below(8));
        return;
      case 3:
        for (size_t left = Below(64); left > 0; --left) input.push_back(Any());
        return;
      case 4:  // a piece of another one
        input.insert(at, corpus_[Below(corpus_.size())].substr(0, Below(200)));
        return;
      default:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ 1 << Below(8));
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937 random_{12345};
};

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

int Replay(const Target& target, const char* folder) {
  crash_path = std::string("crash-") + target.name;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, KeepInput);
  const std::vector<std::string> corpus = ReadCorpus(folder);
  for (const std::string& input : corpus) Run(target, input);
  const uint64_t inputs = Setting("GPUPROBE_FUZZ_INPUTS", UINT64_MAX);
  const auto end = Clock::now() + std::chrono::seconds(Setting("GPUPROBE_FUZZ_SECONDS", 2));
  uint64_t changed = 0;
  if (!corpus.empty()) {
    for (Changer changer(corpus); changed < inputs && Clock::now() < end; ++changed)
      Run(target, changer.Next());
  }
  std::printf("%zu inputs, %llu changed ones\n", corpus.size(), static_cast<unsigned long long>(changed));
  return corpus.empty() ? 1 : 0;
}

}  // namespace
}  // namespace gpuprobe::fuzz

int main(int argc, char** argv) {
  if (argc == 3) {
    for (const gpuprobe::fuzz::Target& target : gpuprobe::fuzz::Targets()) {
      if (std::string(argv[1]) == target.name) return gpuprobe::fuzz::Replay(target, argv[2]);
    }
  }
  std::fprintf(stderr, "usage: %s TARGET CORPUS\ntargets:", argv[0]);
  for (const gpuprobe::fuzz::Target& target : gpuprobe::fuzz::Targets())
    std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}
