#include "collector/observe/gpus_now.h"

#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "collector/observe/nvml.h"

namespace gpuprobe::observe {
namespace {

std::vector<GpuNow> Look(const std::string& library) {
  std::vector<GpuNow> gpus;
  const std::unique_ptr<Nvml> nvml = Nvml::Load(library.c_str());
  if (nvml == nullptr) return gpus;
  for (const Nvml::Device device : nvml->Devices()) {
    gpus.push_back({.index = static_cast<uint32_t>(gpus.size()),
                    .utilisation = nvml->Utilisation(device).value_or(0),
                    .clock_mhz = nvml->SmClockMhz(device).value_or(0),
                    .power_milliwatts = nvml->PowerMilliwatts(device).value_or(0),
                    .pids = nvml->ProcessesOn(device)});
  }
  return gpus;
}

}  // namespace

std::vector<GpuNow> LookAtGpus(std::chrono::milliseconds patience, const std::string& library) {
  const auto promise = std::make_shared<std::promise<std::vector<GpuNow>>>();
  std::future<std::vector<GpuNow>> gpus = promise->get_future();
  try {
    std::thread([promise, library] { promise->set_value(Look(library)); }).detach();
  } catch (const std::system_error&) {
    return {};
  }
  return gpus.wait_for(patience) == std::future_status::ready ? gpus.get() : std::vector<GpuNow>();
}

}  // namespace gpuprobe::observe
