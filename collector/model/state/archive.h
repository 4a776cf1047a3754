// The bytes of a model's state: a writer and a reader that visit the same members in the same order.
//
// A class lists its members once (members.h) and gets both directions. The bytes are not an interface: only
// the same state version reads them back, under a checksum. The reader trusts nothing all the same: counts
// are bounded by the bytes that are left, and after the first error it yields zeros.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "collector/model/state/members.h"
#include "google/protobuf/message_lite.h"

namespace gpuprobe::model {

template <typename T>
concept Scalar = std::integral<T> || std::is_enum_v<T>;
template <typename T>
concept Message = std::derived_from<T, google::protobuf::MessageLite>;

// What all archives have in common: a list of an object's members, of which none is missing
// (state/members.h).
template <typename Archive>
class MemberArchive {
 public:
  template <typename T, typename... NotSaved, typename... Saved>
  void Members(T* object, Rebuilt<NotSaved...>, Saved&... saved) {
    StateAccess::CheckMembers<sizeof...(NotSaved) + sizeof...(Saved)>(*object);
    static_cast<Archive&> (*this)(saved...);
  }
  template <typename T, typename... Saved>
  void Members(T* object, Saved&... saved) {
    Members(object, Rebuilt(), saved...);
  }
};

class StateWriter : public MemberArchive<StateWriter> {
 public:
  static constexpr bool kReads = false;

  // `expected`: bytes, about; growing costs copies.
  explicit StateWriter(size_t expected = 0) : bytes_(expected, '\0') {}

  template <typename... T>
  void operator()(T&... values) {
    (Put(values), ...);
  }
  size_t size() const { return size_; }
  // The bytes written since the last time.
  std::string Take();
  bool ok() const { return true; }
  void Require(bool) {}

 private:
  // Not inline, like what the reader's values begin with: inlined for each of thousands of members they would
  // double the time that a build from scratch needs for the state.
  void PutNumber(uint64_t value);
  char* Room(size_t bytes);
  template <Scalar T>
  void Put(const T& value) {
    PutNumber(static_cast<uint64_t>(value));
  }
  void Put(const absl::uint128& value) {
    PutNumber(absl::Uint128High64(value));
    PutNumber(absl::Uint128Low64(value));
  }
  void Put(const std::string& text);
  template <Message T>
  void Put(const T& message) {
    Put(message.SerializeAsString());
  }
  template <typename T>
  requires(StateAccess::HasVisit<T, StateWriter>()) void Put(T& object) { StateAccess::Visit(object, *this); }
  template <typename T>
  void Put(std::unique_ptr<T>& pointer) {
    Put(*pointer);
  }
  template <typename T>
  void Put(std::optional<T>& value) {
    bool has = value.has_value();
    Put(has);
    if (has) Put(*value);
  }
  template <typename A, typename B>
  void Put(std::pair<A, B>& pair) {
    Put(pair.first);
    Put(pair.second);
  }
  template <typename... T>
  void Put(std::tuple<T...>& tuple) {
    std::apply([this](auto&... each) { (this->Put(each), ...); }, tuple);
  }
  template <typename T, size_t n>
  void Put(std::array<T, n>& array) {
    for (T& each : array) Put(each);
  }
  void Put(std::vector<bool>& flags) {
    PutNumber(flags.size());
    for (const bool flag : flags) PutNumber(flag ? 1 : 0);
  }
  template <typename T>
  void PutEach(T& sequence) {
    PutNumber(sequence.size());
    for (auto& each : sequence) Put(each);
  }
  template <typename T>
  void Put(std::vector<T>& vector) {
    PutEach(vector);
  }
  template <typename T>
  void Put(std::deque<T>& deque) {
    PutEach(deque);
  }
  template <typename Map>
  void PutMap(Map& map) {
    PutNumber(map.size());
    for (auto& [key, value] : map) {
      auto copy = key;
      Put(copy);
      Put(value);
    }
  }
  template <typename K, typename V>
  void Put(std::map<K, V>& map) {
    PutMap(map);
  }
  template <typename K, typename V>
  void Put(std::multimap<K, V>& map) {
    PutMap(map);
  }
  template <typename K, typename V>
  void Put(absl::flat_hash_map<K, V>& map) {
    PutMap(map);
  }

  std::string bytes_;  // the first size_ of them are written
  size_t size_ = 0;
};

class StateReader : public MemberArchive<StateReader> {
 public:
  static constexpr bool kReads = true;
  // Deeper nesting than any of our trees has.
  static constexpr int kMaxDepth = 8192;

  explicit StateReader(std::string_view bytes) : rest_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }
  // Bytes that no writer of ours could have written.
  void Require(bool condition) {
    if (!condition) Fail();
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  void Fail();
  uint64_t GetNumber();
  // Every element takes a byte at least.
  size_t GetCount();
  template <Scalar T>
  void Get(T& value) {
    value = static_cast<T>(GetNumber());
  }
  void Get(bool& value) { value = GetNumber() != 0; }
  void Get(absl::uint128& value) {
    const uint64_t high = GetNumber();
    value = absl::MakeUint128(high, GetNumber());
  }
  void Get(std::string& text);
  template <Message T>
  void Get(T& message) {
    const size_t size = GetCount();
    if (!message.ParseFromArray(rest_.data(), static_cast<int>(size))) return Fail();
    rest_.remove_prefix(size);
  }
  template <typename T>
  requires(StateAccess::HasVisit<T, StateReader>()) void Get(T& object) {
    if (++depth_ > kMaxDepth) Fail();
    StateAccess::Visit(object, *this);
    --depth_;
  }
  template <typename T>
  void Get(std::unique_ptr<T>& pointer) {
    pointer = std::make_unique<T>();
    Get(*pointer);
  }
  template <typename T>
  void Get(std::optional<T>& value) {
    value.reset();
    if (GetNumber() != 0) Get(value.emplace());
  }
  template <typename A, typename B>
  void Get(std::pair<A, B>& pair) {
    Get(pair.first);
    Get(pair.second);
  }
  template <typename... T>
  void Get(std::tuple<T...>& tuple) {
    std::apply([this](auto&... each) { (this->Get(each), ...); }, tuple);
  }
  template <typename T, size_t n>
  void Get(std::array<T, n>& array) {
    for (T& each : array) Get(each);
  }
  void Get(std::vector<bool>& flags) {
    flags.assign(GetCount(), false);
    for (size_t i = 0; i < flags.size(); ++i) flags[i] = GetNumber() != 0;
  }
  template <typename T>
  void GetEach(T& sequence) {
    sequence.clear();
    for (size_t left = GetCount(); left > 0 && ok_; --left) Get(sequence.emplace_back());
  }
  template <typename T>
  void Get(std::vector<T>& vector) {
    GetEach(vector);
  }
  template <typename T>
  void Get(std::deque<T>& deque) {
    GetEach(deque);
  }
  template <typename K, typename Map>
  void GetMap(Map& map) {
    map.clear();
    for (size_t left = GetCount(); left > 0 && ok_; --left) {
      K key{};
      Get(key);
      if constexpr (requires { map.try_emplace(key); }) {
        Get(map.try_emplace(std::move(key)).first->second);
      } else {
        Get(map.emplace(std::move(key), typename Map::mapped_type{})->second);
      }
    }
  }
  template <typename K, typename V>
  void Get(std::map<K, V>& map) {
    GetMap<K>(map);
  }
  template <typename K, typename V>
  void Get(std::multimap<K, V>& map) {
    GetMap<K>(map);
  }
  template <typename K, typename V>
  void Get(absl::flat_hash_map<K, V>& map) {
    GetMap<K>(map);
  }

  std::string_view rest_;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace gpuprobe::model
