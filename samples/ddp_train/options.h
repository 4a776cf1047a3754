// The command line of ddp_train.
#pragma once

#include <string>

namespace gpuprobe::samples {

struct Options {
  int steps = 40;
  int layers = 8;
  int width = 256;          // of every layer
  int batch = 64;           // samples a rank and step
  double bucket_mib = 1.0;  // gradients of adjacent layers are reduced together up to this size
  int log_every = 10;       // steps between reading the loss; 0: never until the end
  int epoch = 20;           // steps between evaluations, which release the backward workspace
  double learning_rate = 2e-3;
  bool nvtx = true;
  std::string id_file;
};

// Ends the program with a usage message on anything it does not know, with status 0 on --help. Takes
// --name=value and --name value.
Options ParseOptions(int argc, char** argv);

}  // namespace gpuprobe::samples
