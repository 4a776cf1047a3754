#include "tests/injector/support/frames.h"

#include <google/protobuf/io/coded_stream.h>
#include <gtest/gtest.h>

namespace gpuprobe::injector::testing {

std::vector<v1::Frame> ParseFrames(std::string_view bytes) {
  std::vector<v1::Frame> frames;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  uint32_t size = 0;
  while (input.ReadVarint32(&size)) {
    std::string frame;
    EXPECT_TRUE(input.ReadString(&frame, static_cast<int>(size)));
    EXPECT_TRUE(frames.emplace_back().ParseFromString(frame));
  }
  EXPECT_EQ(input.CurrentPosition(), static_cast<int>(bytes.size()));
  return frames;
}

std::vector<v1::Frame> TakeFrames(SendQueue* queue) {
  std::string bytes;
  SendQueue::Frame frame;
  while (queue->Front(&frame)) {
    bytes.append(frame.data, frame.size);
    queue->Pop();
  }
  return ParseFrames(bytes);
}

std::vector<v1::Batch> TakeBatches(SendQueue* queue) {
  std::vector<v1::Batch> batches;
  for (v1::Frame& frame : TakeFrames(queue)) {
    EXPECT_TRUE(frame.has_batch());
    batches.push_back(std::move(*frame.mutable_batch()));
  }
  return batches;
}

std::vector<uint64_t> Undelta(const google::protobuf::RepeatedField<int64_t>& deltas, int rows) {
  std::vector<uint64_t> values;
  uint64_t value = 0;
  for (int i = 0; i < rows; ++i) {
    value += deltas.empty() ? 0 : static_cast<uint64_t>(deltas[i]);
    values.push_back(value);
  }
  return values;
}

std::vector<uint64_t> Starts(uint64_t base_ns, const google::protobuf::RepeatedField<int64_t>& deltas,
                             const google::protobuf::RepeatedField<uint64_t>& durations) {
  std::vector<uint64_t> starts;
  uint64_t previous_end = base_ns;
  for (int i = 0; i < deltas.size(); ++i) {
    starts.push_back(previous_end + static_cast<uint64_t>(deltas[i]));
    previous_end = starts.back() + (durations.empty() ? 0 : durations[i]);
  }
  return starts;
}

std::string Text(const std::vector<v1::Batch>& batches, uint32_t id) {
  for (const v1::Batch& batch : batches) {
    for (const v1::StringDef& def : batch.strings()) {
      if (def.id() == id) return def.value();
    }
  }
  return {};
}

}  // namespace gpuprobe::injector::testing
