#include "tests/fuzz/messages.h"

#include <string>

namespace gpuprobe::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr uint64_t kBaseNs = 1'700'000'000'000'000'000;
constexpr int kMaxDepth = 5;

// One value of a scalar field, set or added.
void PutScalar(Choices& choices, const FieldDescriptor& field, Message& message) {
  const Reflection& at = *message.GetReflection();
  const auto put = [&](auto set, auto add, auto value) {
    field.is_repeated() ? (at.*add)(&message, &field, value) : (at.*set)(&message, &field, value);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(choices.Number()));
    case FieldDescriptor::CPPTYPE_INT64: {
      const bool negative = choices.Rarely(8);
      const auto value = static_cast<int64_t>(choices.Number());
      return put(&Reflection::SetInt64, &Reflection::AddInt64, negative && value > 0 ? -value : value);
    }
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(choices.Number()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::SetUInt64, &Reflection::AddUInt64, choices.Number());
    case FieldDescriptor::CPPTYPE_ENUM:
      return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, static_cast<int>(choices.Below(18)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return put(&Reflection::SetBool, &Reflection::AddBool, choices.Below(2) == 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return put(&Reflection::SetDouble, &Reflection::AddDouble, static_cast<double>(choices.Number()));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return put(&Reflection::SetFloat, &Reflection::AddFloat, static_cast<float>(choices.Number()));
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text = choices.Text();
      // A string field with anything but UTF-8 does not parse: it would end the input here.
      if (field.type() == FieldDescriptor::TYPE_STRING)
        for (char& c : text) c = static_cast<char>(c & 0x7f);
      return put(&Reflection::SetString, &Reflection::AddString, text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return;
  }
}

bool HoldsColumns(const Descriptor& descriptor) {
  int columns = 0;
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    columns += field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ? 1 : 0;
  }
  return columns >= 3;
}

void FillFields(Choices& choices, Message& message, int depth) {
  const Descriptor& descriptor = *message.GetDescriptor();
  const bool columns = HoldsColumns(descriptor);
  const uint32_t rows = columns ? choices.Below(7) : 0;
  for (int i = 0; i < descriptor.field_count() && !choices.empty(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const uint8_t how = choices.Byte();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (depth >= kMaxDepth || how < 128) continue;
      const Reflection& at = *message.GetReflection();
      if (!field.is_repeated()) {
        FillFields(choices, *at.MutableMessage(&message, &field), depth + 1);
        continue;
      }
      for (int n = how & 3; n >= 0; --n) FillFields(choices, *at.AddMessage(&message, &field), depth + 1);
    } else if (!field.is_repeated()) {
      if (how >= 64) PutScalar(choices, field, message);
    } else {
      // Left out, of another length than the rest, or as long as the rest.
      const uint32_t length = how < 32 ? 0 : how < 36 || !columns ? choices.Below(5) : rows;
      for (uint32_t n = 0; n < length; ++n) PutScalar(choices, field, message);
    }
  }
}

void Define(v1::Batch& batch, uint32_t id, const char* text) {
  v1::StringDef& string = *batch.add_strings();
  string.set_id(id);
  string.set_value(text);
}

// What does not parse is said by libprotobuf itself, a line each time.
[[maybe_unused]] const bool quiet = [] {
  google::protobuf::SetLogHandler(nullptr);
  return true;
}();

}  // namespace

void Fill(Choices& choices, Message& message) { FillFields(choices, message, 0); }

v1::Hello PlainHello(int index) {
  v1::Hello hello;
  hello.set_protocol_major(1);
  hello.set_timing_source(v1::TIMING_SOURCE_CUPTI_ACTIVITY);
  hello.mutable_clock()->set_realtime_ns(kBaseNs);
  hello.mutable_clock()->set_monotonic_ns(1'000'000'000);
  v1::Identity& id = *hello.mutable_identity();
  id.set_rank(index);
  id.set_local_rank(index);
  id.set_world_size(4);
  id.set_rank_source(v1::RANK_SOURCE_TORCHRUN);
  id.set_host("node");
  id.set_pid(static_cast<uint32_t>(100 + index));
  id.set_process_start_ns(kBaseNs);
  id.set_executable("/usr/bin/python3");
  return hello;
}

v1::Batch Definitions() {
  v1::Batch batch;
  batch.set_sequence(1);
  batch.set_base_ns(kBaseNs);
  Define(batch, 1, "AllReduce");
  Define(batch, 2, "float32");
  Define(batch, 3, "_Z12LinearForwardPKfS0_Pfi");
  Define(batch, 4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  Define(batch, 5, "step");
  Define(batch, 6, "Send");
  Define(batch, 7, "Recv");
  for (uint32_t id = 1; id <= 2; ++id) {
    v1::ThreadDef& thread = *batch.add_threads();
    thread.set_id(id);
    thread.set_tid(100 + id);
    thread.set_main(id == 1);
    thread.set_name(id == 1 ? "main" : "pt_autograd_0");
    v1::Device& device = *batch.add_devices();
    device.set_ordinal(id - 1);
    device.set_name("NVIDIA L40S");
    device.set_memory_bytes(uint64_t{48} << 30);
  }
  for (uint32_t id = 1; id <= 4; ++id) {
    v1::KernelSite& site = *batch.add_kernel_sites();
    site.set_id(id);
    site.set_name(id == 2 ? 4 : 3);
    site.set_context(1);
    site.set_stream(7 + id % 2);
    site.set_grid_x(128);
    site.set_block_x(256);
  }
  for (uint32_t id = 1; id <= 2; ++id) {
    v1::Communicator& comm = *batch.add_communicators();
    comm.set_id(id);
    comm.set_hash(0xabc0 + id);
    comm.set_ranks(2);
    comm.set_rank(0);
    comm.set_time_ns(kBaseNs);
  }
  return batch;
}

v1::Batch NextBatch(Choices& choices, uint64_t sequence) {
  v1::Batch batch;
  const bool wild = choices.Rarely(16);
  Fill(choices, batch);
  if (wild) return batch;
  batch.set_sequence(sequence);
  batch.set_base_ns(kBaseNs + sequence * 1'000'000 + choices.Number());
  batch.clear_restated();
  // Tables that a definition makes grow are slow to fill; wild batches do that.
  constexpr uint32_t kIds = 64;
  for (v1::StringDef& string : *batch.mutable_strings()) string.set_id(string.id() % kIds);
  for (v1::ThreadDef& thread : *batch.mutable_threads()) thread.set_id(thread.id() % kIds);
  for (v1::KernelSite& site : *batch.mutable_kernel_sites()) site.set_id(site.id() % kIds);
  return batch;
}

}  // namespace gpuprobe::fuzz
