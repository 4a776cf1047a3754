// The bytes of a model's state: a writer and a reader that visit the same members in the same order.
//
// A class lists its members once (members.h) and gets both directions. The bytes are not an interface: only
// the same state version reads them back, under a checksum. The reader trusts nothing all the same: counts
// are bounded by the bytes that are left, and after the first error it yields zeros.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "collector/model/state/members.h"
#include "google/protobuf/message_lite.h"

namespace gpuprobe::model {

template <typename T>
concept Scalar = std::integral<T> || std::is_enum_v<T>;
template <typename T>
concept Message = std::derived_from<T, google::protobuf::MessageLite>;

// What all archives have in common: a list of an object's members, of which none is missing
// (state/members.h), and how values are made of numbers, texts and counts, which each archive has its own
// way to write or read.
template <typename Archive>
class MemberArchive {
 public:
  // Wants one of everything that a Visit saves beyond its list, although the object has none (layout.h).
  static constexpr bool kDescribes = false;

  template <typename... T>
  void operator()(T&... values) {
    (Walk(values), ...);
  }
  template <typename T, typename... NotSaved, typename... Saved>
  void Members(T* object, Rebuilt<NotSaved...>, Saved&... saved) {
    StateAccess::CheckMembers<sizeof...(NotSaved) + sizeof...(Saved)>(*object);
    self()(saved...);
    if constexpr (Archive::kDescribes) self().Order({reinterpret_cast<uintptr_t>(&saved)...});
  }
  template <typename T, typename... Saved>
  void Members(T* object, Saved&... saved) {
    Members(object, Rebuilt(), saved...);
  }
  template <typename T>
  void Class(T& object) {
    StateAccess::Visit(object, self());
  }

 private:
  Archive& self() { return static_cast<Archive&>(*this); }

  template <typename T>
  void Walk(T& value) {
    if constexpr (Scalar<T>) {
      self().Number(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      self().Text(value);
    } else if constexpr (Message<T>) {
      std::string bytes;
      if constexpr (!Archive::kReads)
        bytes = Archive::kDescribes ? value.GetTypeName() : value.SerializeAsString();
      self().Text(bytes);
      if constexpr (Archive::kReads) self().Require(value.ParseFromString(bytes));
    } else if constexpr (StateAccess::HasVisit<T, Archive>()) {
      self().Class(value);
    } else {
      Parts(value);
    }
  }
  template <typename T>
  void WalkNew() {
    T value{};
    Walk(value);
  }
  void Parts(absl::uint128& value) {
    if constexpr (Archive::kDescribes) return self().Number(value);
    uint64_t high = absl::Uint128High64(value);
    uint64_t low = absl::Uint128Low64(value);
    (*this)(high, low);
    if constexpr (Archive::kReads) value = absl::MakeUint128(high, low);
  }
  template <typename T>
  void Parts(std::unique_ptr<T>& pointer) {
    if (Archive::kReads || pointer == nullptr) pointer = std::make_unique<T>();
    Walk(*pointer);
  }
  template <typename T>
  void Parts(std::optional<T>& value) {
    bool has = value.has_value();
    Walk(has);
    if constexpr (Archive::kDescribes) return WalkNew<T>();
    if constexpr (Archive::kReads) value.reset();
    if (!has) return;
    if constexpr (Archive::kReads) value.emplace();
    Walk(*value);
  }
  template <typename A, typename B>
  void Parts(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <typename... T>
  void Parts(std::tuple<T...>& tuple) {
    std::apply(*this, tuple);
  }
  template <typename T, size_t n>
  void Parts(std::array<T, n>& array) {
    for (T& each : array) Walk(each);
  }
  void Parts(std::vector<bool>& flags) {
    const size_t count = self().Count(flags.size());
    if constexpr (Archive::kDescribes) return WalkNew<bool>();
    if constexpr (Archive::kReads) flags.assign(count, false);
    for (size_t i = 0; i < flags.size(); ++i) {
      bool flag = flags[i];
      Walk(flag);
      flags[i] = flag;
    }
  }
  // A vector or deque.
  template <typename T>
  void Parts(T& sequence) {
    size_t left = self().Count(sequence.size());
    if constexpr (Archive::kDescribes) {
      WalkNew<typename T::value_type>();
    } else if constexpr (Archive::kReads) {
      sequence.clear();
      for (; left > 0 && self().ok(); --left) Walk(sequence.emplace_back());
    } else {
      for (auto& each : sequence) Walk(each);
    }
  }
  template <typename Map>
  requires requires { typename Map::mapped_type; }
  void Parts(Map& map) {
    using Key = typename Map::key_type;
    using Value = typename Map::mapped_type;
    size_t left = self().Count(map.size());
    if constexpr (Archive::kDescribes) {
      WalkNew<std::pair<Key, Value>>();
    } else if constexpr (Archive::kReads) {
      map.clear();
      for (; left > 0 && self().ok(); --left) {
        Key key{};
        Walk(key);
        if constexpr (requires { map.try_emplace(key); }) {
          Walk(map.try_emplace(std::move(key)).first->second);
        } else {
          Walk(map.emplace(std::move(key), Value{})->second);
        }
      }
    } else {
      for (auto& [key, value] : map) {
        Key copy = key;
        (*this)(copy, value);
      }
    }
  }
};

class StateWriter : public MemberArchive<StateWriter> {
 public:
  static constexpr bool kReads = false;

  size_t size() const { return size_; }
  // The bytes written since the last time.
  std::string Take();
  bool ok() const { return true; }
  void Require(bool) {}

 private:
  friend MemberArchive;

  // Not inline, like what the reader's values begin with: inlined for each of thousands of members they would
  // double the time that a build from scratch needs for the state.
  void PutNumber(uint64_t value);
  char* Room(size_t bytes);
  template <Scalar T>
  void Number(const T& value) {
    PutNumber(static_cast<uint64_t>(value));
  }
  void Text(const std::string& text);
  size_t Count(size_t size) {
    PutNumber(size);
    return size;
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

  // Bytes that no writer of ours could have written.
  void Require(bool condition) {
    if (!condition) Fail();
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  friend MemberArchive;

  void Fail();
  uint64_t GetNumber();
  template <Scalar T>
  void Number(T& value) {
    value = static_cast<T>(GetNumber());
  }
  void Number(bool& value) { value = GetNumber() != 0; }
  void Text(std::string& text);
  // Every element takes a byte at least.
  size_t Count(size_t = 0);
  template <typename T>
  void Class(T& object) {
    if (++depth_ > kMaxDepth) Fail();
    StateAccess::Visit(object, *this);
    --depth_;
  }

  std::string_view rest_;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace gpuprobe::model
