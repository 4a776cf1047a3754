#include "tests/sim/nccl/rank_processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace gpusim::nccl {
namespace {

std::set<std::string> Segments() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.rfind("gpusim-nccl-" + std::to_string(getpid()) + "-", 0) == 0) {
      names.insert(name);
    }
  }
  return names;
}

void ReadTruth(const std::string& folder, pid_t pid, std::vector<nlohmann::json>* collectives,
               std::vector<nlohmann::json>* unlaunched, std::vector<nlohmann::json>* kernels) {
  std::ifstream file(folder + "/" + std::to_string(pid) + ".jsonl");
  std::string line;
  while (std::getline(file, line)) {
    const nlohmann::json object = nlohmann::json::parse(line);
    if (object.at("kind") == "collective") {
      (object.contains("start_ns") ? collectives : unlaunched)->push_back(object);
    } else if (object.at("kind") == "kernel") {
      kernels->push_back(object);
    }
  }
  std::stable_sort(collectives->begin(), collectives->end(),
                   [](const auto& a, const auto& b) { return a.at("start_ns") < b.at("start_ns"); });
}

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

}  // namespace

void FailCheck(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what);
  _exit(1);
}

RunResult RunRanks(int ranks, const RunOptions& options, const std::function<int(int rank)>& body) {
  char folder[] = "/tmp/gpusim-nccl-test-XXXXXX";
  const std::string truth = mkdtemp(folder);
  const std::set<std::string> before = Segments();
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("GPUSIM_TRUTH", truth.c_str(), 1);
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
      for (const auto& [name, value] : options.environment) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      _exit(body(rank));
    }
    children.push_back(child);
  }
  RunResult result;
  result.codes.assign(children.size(), -SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  std::set<size_t> running;
  for (size_t i = 0; i < children.size(); ++i) {
    running.insert(i);
  }
  while (!running.empty() && std::chrono::steady_clock::now() < deadline) {
    for (auto it = running.begin(); it != running.end();) {
      int status = 0;
      if (waitpid(children[*it], &status, WNOHANG) == children[*it]) {
        result.codes[*it] = CodeOf(status);
        it = running.erase(it);
      } else {
        ++it;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  for (const size_t i : running) {
    kill(children[i], SIGKILL);
    waitpid(children[i], nullptr, 0);
  }
  result.collectives.resize(children.size());
  result.unlaunched.resize(children.size());
  result.kernels.resize(children.size());
  for (size_t i = 0; i < children.size(); ++i) {
    ReadTruth(truth, children[i], &result.collectives[i], &result.unlaunched[i], &result.kernels[i]);
  }
  for (const std::string& name : Segments()) {
    if (before.count(name) == 0) {
      result.left_behind.push_back(name);
      std::filesystem::remove("/dev/shm/" + name);
    }
  }
  std::filesystem::remove_all(truth);
  return result;
}

}  // namespace gpusim::nccl
