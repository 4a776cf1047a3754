// Ends the program with the failing expression's place and the library's own words.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK_CUDA(expression)                                                 \
  do {                                                                         \
    const cudaError_t check_status = (expression);                             \
    if (check_status != cudaSuccess) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                   cudaGetErrorString(check_status));                          \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)
