// simulate_truth: prints the truth of what gpuprobe-simulate feeds for the same arguments ("--name=value").
#include <cstdio>

#include "collector/simulate/request.h"
#include "tests/collector/simulate/truth.h"

int main(int argc, char** argv) {
  using namespace gpuprobe;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<simulate::Request> request = simulate::ReadRequest(arguments);
  if (!request.ok()) {
    std::fprintf(stderr, "simulate_truth: %s\n", request.status().ToString().c_str());
    return 2;
  }
  simulate::SimulationOptions options;
  options.seed = request->seed;
  simulate::Truth truth(request->job);
  simulate::Simulation simulation(request->job, options, &truth);
  if (!simulation.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); }).ok()) return 1;
  truth.Finish();
  return std::puts(truth.Json(request->scenario->name, simulation).c_str()) < 0 ? 1 : 0;
}
