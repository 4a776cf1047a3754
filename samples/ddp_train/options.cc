#include "samples/ddp_train/options.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace gpuprobe::samples {
namespace {

struct Option {
  std::string name;
  std::string help;
  std::function<bool(const std::string&)> set;
};

bool ToNumber(const std::string& text, double minimum, double* value) {
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && *value >= minimum;
}

std::function<bool(const std::string&)> Integer(int* target, int minimum) {
  return [target, minimum](const std::string& text) {
    double value = 0;
    if (!ToNumber(text, minimum, &value) || value != static_cast<int>(value)) return false;
    *target = static_cast<int>(value);
    return true;
  };
}

std::function<bool(const std::string&)> Real(double* target) {
  return [target](const std::string& text) { return ToNumber(text, 1e-9, target); };
}

std::vector<Option> Table(Options* options) {
  return {
      {"steps", "training steps", Integer(&options->steps, 1)},
      {"layers", "residual layers", Integer(&options->layers, 1)},
      {"width", "features of a layer", Integer(&options->width, 1)},
      {"batch", "samples a rank and step", Integer(&options->batch, 1)},
      {"bucket-mib", "MiB of gradients that are reduced together", Real(&options->bucket_mib)},
      {"log-every", "steps between reading the loss; 0: only at the end", Integer(&options->log_every, 0)},
      {"epoch", "steps between evaluations", Integer(&options->epoch, 1)},
      {"lr", "learning rate", Real(&options->learning_rate)},
      {"nvtx", "1: NVTX ranges, 0: none",
       [options](const std::string& text) {
         options->nvtx = text == "1";
         return text == "0" || text == "1";
       }},
      {"id-file",
       "file through which rank 0 gives NCCL's id to the others; else $DDP_ID_FILE, else a temporary one",
       [options](const std::string& text) {
         options->id_file = text;
         return !text.empty();
       }},
  };
}

[[noreturn]] void Usage(const std::vector<Option>& table, std::FILE* out, int status) {
  std::fprintf(out,
               "usage: ddp_train [options]\n"
               "A data-parallel training loop, one process per rank: launch it with samples/launch_ranks.sh "
               "N, mpirun -n N or torchrun --no-python.\n");
  for (const Option& option : table)
    std::fprintf(out, "  --%-12s %s\n", option.name.c_str(), option.help.c_str());
  std::exit(status);
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  const std::vector<Option> table = Table(&options);
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--help") Usage(table, stdout, 0);
    std::string value;
    const size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
      argument.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    bool known = false;
    for (const Option& option : table) {
      if (argument != "--" + option.name) continue;
      known = true;
      if (option.set(value)) continue;
      std::fprintf(stderr, "ddp_train: %s cannot be \"%s\"\n", argument.c_str(), value.c_str());
      std::exit(2);
    }
    if (!known) {
      std::fprintf(stderr, "ddp_train: unknown option %s\n", argument.c_str());
      Usage(table, stderr, 2);
    }
  }
  return options;
}

}  // namespace gpuprobe::samples
