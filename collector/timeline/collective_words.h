// PyTorch's words for NCCL's operations and data types, which the tools that read its traces look for.
#pragma once

#include <string_view>

namespace gpuprobe::timeline {

// "AllReduce" -> "allreduce", "AllGather" -> "_allgather_base"; an unknown operation as it is.
std::string_view CollectiveName(std::string_view op);
// "float32" -> "Float"; an unknown type as it is.
std::string_view DataTypeWord(std::string_view datatype);
// Each rank's part of the input, or of the output, is `count` elements: the whole has that for every rank.
bool TakesFromEach(std::string_view op);
bool GivesToEach(std::string_view op);

}  // namespace gpuprobe::timeline
