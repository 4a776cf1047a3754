#include "tests/sim/nccl/payload.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace gpusim::nccl {
namespace {

uint64_t ToAddress(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

char* ToBytes(uint64_t address) {
  return reinterpret_cast<char*>(address);  // NOLINT(performance-no-int-to-ptr)
}

uint64_t BytesOf(const Call& call) { return call.count * TypeSize(call.type); }

bool HasPartForEachRank(Operation operation) {
  switch (operation) {
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAlltoAll:
    case Operation::kGather:
    case Operation::kScatter:
      return true;
    default:
      return false;
  }
}

// The same on all ranks.
bool Moves(const Call& call) {
  const auto parts =
      static_cast<uint64_t>(HasPartForEachRank(call.operation) ? call.communicator->Ranks() : 1);
  return BytesOf(call) <= kMostMovedBytes / parts;
}

Piece GivenTo(const Call& call) {
  const auto ranks = static_cast<uint64_t>(call.communicator->Ranks());
  const bool is_root = call.root == call.communicator->Rank();
  uint64_t bytes = Moves(call) ? BytesOf(call) : 0;
  switch (call.operation) {
    case Operation::kReduceScatter:
    case Operation::kAlltoAll:
      bytes *= ranks;
      break;
    case Operation::kScatter:
      bytes *= is_root ? ranks : 0;
      break;
    case Operation::kBroadcast:
      bytes *= is_root ? 1 : 0;
      break;
    case Operation::kRecv:
      bytes = 0;
      break;
    default:
      break;
  }
  return {ToAddress(call.send), bytes};
}

void Put(uint64_t address, uint64_t bytes, Content content, const std::vector<char>& from) {
  if (content == Content::kNone || !IsMemory(address, bytes)) return;
  if (content == Content::kBytes) {
    std::memcpy(ToBytes(address), from.data(), bytes);
    return;
  }
  ForEachTouched(address, bytes, [](uint64_t at, uint64_t touched) { std::memset(ToBytes(at), 0, touched); });
}

// A type without arithmetic on the host is added up as float.
template <typename Value>
Value Plain(Value value) {
  return value;
}
float Plain(__half value) { return __half2float(value); }
float Plain(__nv_bfloat16 value) { return __bfloat162float(value); }
float Plain(__nv_fp8_e4m3 value) { return static_cast<float>(value); }
float Plain(__nv_fp8_e5m2 value) { return static_cast<float>(value); }

template <typename Value>
using PlainType = decltype(Plain(std::declval<Value>()));

// Integers wrap.
template <typename Plain>
auto Wide(Plain value) {
  if constexpr (std::is_integral_v<Plain>) {
    return static_cast<uint64_t>(value);
  } else {
    return value;
  }
}

template <typename Plain>
Plain Combine(int reduction, Plain a, Plain b) {
  switch (reduction) {
    case ncclProd:
      return static_cast<Plain>(Wide(a) * Wide(b));
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return static_cast<Plain>(Wide(a) + Wide(b));
  }
}

template <typename Plain>
Plain Finished(const Call& call, Plain sum) {
  if (call.reduction == ncclAvg)
    return static_cast<Plain>(sum / static_cast<Plain>(call.communicator->Ranks()));
  if (call.reduction >= ncclNumOps) return static_cast<Plain>(static_cast<double>(sum) * call.scale);
  return sum;
}

// `contributions`: each rank's, one after the other. The result takes the place of the first.
template <typename Value>
void Reduce(const Call& call, std::vector<char>* contributions) {
  const auto ranks = static_cast<size_t>(call.communicator->Ranks());
  const auto at = [contributions](size_t index) {
    Value value;
    std::memcpy(&value, contributions->data() + index * sizeof value, sizeof value);
    return Plain(value);
  };
  for (size_t i = 0; i < call.count; ++i) {
    PlainType<Value> result = at(i);
    for (size_t rank = 1; rank < ranks; ++rank)
      result = Combine(call.reduction, result, at(rank * call.count + i));
    const Value value(Finished(call, result));
    std::memcpy(contributions->data() + i * sizeof value, &value, sizeof value);
  }
}

void Reduce(const Call& call, std::vector<char>* contributions) {
  switch (call.type) {
    case ncclInt8:
      return Reduce<int8_t>(call, contributions);
    case ncclUint8:
      return Reduce<uint8_t>(call, contributions);
    case ncclInt32:
      return Reduce<int32_t>(call, contributions);
    case ncclUint32:
      return Reduce<uint32_t>(call, contributions);
    case ncclInt64:
      return Reduce<int64_t>(call, contributions);
    case ncclUint64:
      return Reduce<uint64_t>(call, contributions);
    case ncclFloat16:
      return Reduce<__half>(call, contributions);
    case ncclFloat32:
      return Reduce<float>(call, contributions);
    case ncclFloat64:
      return Reduce<double>(call, contributions);
    case ncclBfloat16:
      return Reduce<__nv_bfloat16>(call, contributions);
    case ncclFloat8e4m3:
      return Reduce<__nv_fp8_e4m3>(call, contributions);
    case ncclFloat8e5m2:
      return Reduce<__nv_fp8_e5m2>(call, contributions);
    default:
      return;
  }
}

void TakeReduced(const Call& call, size_t piece, uint64_t from, const LetterOf& letter_of) {
  std::vector<char> contributions;
  std::vector<char> part;
  Content content = Content::kZeros;
  for (int rank = 0; rank < call.communicator->Ranks(); ++rank) {
    part.assign(BytesOf(call), 0);
    const Content given = letter_of(rank).Read(piece, from, BytesOf(call), &part);
    if (given == Content::kNone) return;
    if (given == Content::kBytes) content = Content::kBytes;
    contributions.insert(contributions.end(), part.begin(), part.end());
  }
  if (content == Content::kBytes) Reduce(call, &contributions);
  Put(ToAddress(call.receive), BytesOf(call), content, contributions);
}

void TakePart(const Call& call, size_t piece, uint64_t from, uint64_t to, const Letter& letter) {
  std::vector<char> bytes;
  const Content content = letter.Read(piece, from, BytesOf(call), &bytes);
  Put(ToAddress(call.receive) + to, BytesOf(call), content, bytes);
}

void Take(const Call& call, size_t piece, const LetterOf& letter_of) {
  const int own = call.communicator->Rank();
  const uint64_t own_part = static_cast<uint64_t>(own) * BytesOf(call);
  switch (call.operation) {
    case Operation::kReduce:
      if (call.root != own) return;
      [[fallthrough]];
    case Operation::kAllReduce:
      return TakeReduced(call, piece, 0, letter_of);
    case Operation::kReduceScatter:
      return TakeReduced(call, piece, own_part, letter_of);
    case Operation::kBroadcast:
      if (call.root == own && call.send == call.receive) return;
      return TakePart(call, piece, 0, 0, letter_of(call.root));
    case Operation::kScatter:
      return TakePart(call, piece, own_part, 0, letter_of(call.root));
    case Operation::kGather:
      if (call.root != own) return;
      [[fallthrough]];
    case Operation::kAllGather:
    case Operation::kAlltoAll:
      for (int rank = 0; rank < call.communicator->Ranks(); ++rank) {
        TakePart(call, piece, call.operation == Operation::kAlltoAll ? own_part : 0,
                 static_cast<uint64_t>(rank) * BytesOf(call), letter_of(rank));
      }
      return;
    case Operation::kRecv:
      return TakePart(call, piece, 0, 0, letter_of(call.peer));
    case Operation::kSend:
      return;
  }
}

}  // namespace

uint64_t Give(const std::vector<Call>& calls, std::function<bool()> is_read) {
  std::vector<Piece> pieces;
  std::transform(calls.begin(), calls.end(), std::back_inserter(pieces), GivenTo);
  return Mailbox::OfProcess().Send(pieces, std::move(is_read));
}

void Take(const std::vector<Call>& calls, const LetterOf& letter_of) {
  for (size_t i = 0; i < calls.size(); ++i) {
    if (Moves(calls[i])) Take(calls[i], i, letter_of);
  }
}

}  // namespace gpusim::nccl
