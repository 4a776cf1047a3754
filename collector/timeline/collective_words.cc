#include "collector/timeline/collective_words.h"

#include <utility>

#include "proto/nccl_operations.h"

namespace gpuprobe::timeline {
namespace {

using nccl::Operation;

struct Words {
  Operation operation;
  std::string_view name;
  bool takes_from_each;
  bool gives_to_each;
};

constexpr Words kWords[] = {
    {Operation::kAllReduce, "allreduce", false, false},
    {Operation::kAllGather, "_allgather_base", false, true},
    {Operation::kReduceScatter, "_reduce_scatter_base", true, false},
    {Operation::kBroadcast, "broadcast", false, false},
    {Operation::kReduce, "reduce", false, false},
    {Operation::kAlltoAll, "all_to_all", true, true},
    {Operation::kGather, "gather", false, true},
    {Operation::kScatter, "scatter", true, false},
    {Operation::kSend, "send", false, false},
    {Operation::kRecv, "recv", false, false},
    {Operation::kSendRecv, "sendrecv", false, false},
};

constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {"int8", "Char"},
    {"uint8", "Byte"},
    {"int32", "Int"},
    {"uint32", "UInt32"},
    {"int64", "Long"},
    {"uint64", "UInt64"},
    {"float16", "Half"},
    {"float32", "Float"},
    {"float64", "Double"},
    {"bfloat16", "BFloat16"},
    {"float8_e4m3", "Float8_e4m3fn"},
    {"float8_e5m2", "Float8_e5m2"},
};

const Words* WordsOf(std::string_view op) {
  const Operation operation = nccl::OperationOf(op);
  for (const Words& words : kWords) {
    if (words.operation == operation) return &words;
  }
  return nullptr;
}

}  // namespace

std::string_view CollectiveName(std::string_view op) {
  const Words* words = WordsOf(op);
  return words == nullptr ? op : words->name;
}

std::string_view DataTypeWord(std::string_view datatype) {
  for (const auto& [name, word] : kTypes) {
    if (name == datatype) return word;
  }
  return datatype;
}

bool TakesFromEach(std::string_view op) {
  const Words* words = WordsOf(op);
  return words != nullptr && words->takes_from_each;
}

bool GivesToEach(std::string_view op) {
  const Words* words = WordsOf(op);
  return words != nullptr && words->gives_to_each;
}

}  // namespace gpuprobe::timeline
