// As check.h, for NCCL.
#pragma once

#include <nccl.h>

#include <cstdio>
#include <cstdlib>

#define CHECK_NCCL(expression)                                                 \
  do {                                                                         \
    const ncclResult_t check_status = (expression);                            \
    if (check_status != ncclSuccess) {                                         \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                   ncclGetErrorString(check_status));                          \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)
