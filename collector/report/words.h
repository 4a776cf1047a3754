// The words of enums in JSON, made from their enumerators' names: kSlowKernels is "slow_kernels".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/generated_enum_reflection.h"

namespace gpuprobe::report {

// The word of each value, in order.
using Words = std::vector<std::pair<int64_t, std::string>>;

// "slow_kernels" of a compiler's name for a function with the parameter Cause::kSlowKernels; empty: of a
// number that is no enumerator.
std::string EnumeratorWord(std::string_view function);

template <auto value>
void AppendWords(Words& words) {
  std::string word = EnumeratorWord(__PRETTY_FUNCTION__);
  if (word.empty()) return;
  words.emplace_back(static_cast<int64_t>(value), std::move(word));
}

// Enumerators count from 0, and there are at most so many.
inline constexpr size_t kMostWords = 12;

// Specialised for an enum whose words are other ones.
template <typename E>
struct EnumWords {
  static Words Of() {
    Words words;
    [&]<size_t... n>(std::index_sequence<n...>) { (AppendWords<static_cast<E>(n)>(words), ...); }
    (std::make_index_sequence<kMostWords>());
    return words;
  }
};

// "h2d" of COPY_DIRECTION_H2D: the names of an enum of the wire, in lower case without its own.
Words WireWords(const google::protobuf::EnumDescriptor& type);
template <typename E>
requires google::protobuf::is_proto_enum<E>::value struct EnumWords<E> {
  static Words Of() { return WireWords(*google::protobuf::GetEnumDescriptor<E>()); }
};

template <typename E>
const Words& WordsOf() {
  static const Words kWords = EnumWords<E>::Of();
  return kWords;
}

// The word of a value; that of the first one if there is none.
const std::string& WordOf(const Words& words, int64_t value);
template <typename E>
const std::string& Word(E value) {
  return WordOf(WordsOf<E>(), static_cast<int64_t>(value));
}
// Absent: it is none of them.
std::optional<int64_t> ValueOf(const Words& words, const std::string& word);

// A map whose keys are words in JSON, in their order.
struct ByWord {
  template <typename E>
  bool operator()(E a, E b) const {
    return Word(a) < Word(b);
  }
};
template <typename E, typename V>
using WordMap = std::map<E, V, ByWord>;

}  // namespace gpuprobe::report
