// Decodes what the injector encoded, with libprotobuf: the other implementation of the same schema.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"
#include "injector/send/send_queue.h"

namespace gpuprobe::injector::testing {

// All delimited frames in `bytes`. Fails the test when they are malformed or cut.
std::vector<v1::Frame> ParseFrames(std::string_view bytes);

// Takes everything out of the queue and parses it.
std::vector<v1::Frame> TakeFrames(SendQueue* queue);
std::vector<v1::Batch> TakeBatches(SendQueue* queue);

// Undoes a delta column.
std::vector<uint64_t> Undelta(const google::protobuf::RepeatedField<int64_t>& deltas, int rows);
// Starts from start deltas and durations.
std::vector<uint64_t> Starts(uint64_t base_ns, const google::protobuf::RepeatedField<int64_t>& deltas,
                             const google::protobuf::RepeatedField<uint64_t>& durations);
// Value `i` of a column that may have been left out.
template <typename Column>
auto At(const Column& column, int i) {
  return column.empty() ? decltype(column[0] + 0){} : column[i];
}

// Text of a StringDef in any of the batches.
std::string Text(const std::vector<v1::Batch>& batches, uint32_t id);

}  // namespace gpuprobe::injector::testing
