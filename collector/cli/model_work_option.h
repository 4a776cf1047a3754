// Options that state the arithmetic of a step, for the utilisation of the devices.
#pragma once

#include "CLI/CLI.hpp"
#include "collector/analysis/report/utilisation.h"

namespace gpuprobe::cli {

struct ModelWorkOption {
  analysis::ModelWork work;

  void AddTo(CLI::App& app);
};

}  // namespace gpuprobe::cli
