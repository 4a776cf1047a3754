// A number for what the bytes of a state mean: the members that each class saves, by type and order.
//
//   StateLayout layout;
//   layout(model);
//   layout.version()
//
// It visits the lists that StateWriter visits (members.h), so a change to one is another version: a member
// more or less, of another type or size, or in another place. Containers count by what they hold, and each
// class once, where it comes first. Not seen, and therefore kFormat's: how a value is encoded, and what a
// Visit does beyond its list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <type_traits>

#include "collector/model/state/archive.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class StateLayout : public MemberArchive<StateLayout> {
 public:
  static constexpr bool kReads = false;
  static constexpr bool kDescribes = true;

  bool ok() const { return true; }
  void Require(bool) {}
  uint32_t version() const { return static_cast<uint32_t>(hash_ >> 32); }

 private:
  friend MemberArchive;
  static constexpr uint64_t kFormat = 1;

  // FNV-1a, a byte at a time.
  void Mix(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8) hash_ = (hash_ ^ (value & 0xff)) * 0x100000001b3;
  }
  template <typename T>
  void Number(const T&) {
    Mix(std::is_enum_v<T> ? 'e' : std::is_same_v<T, bool> ? 'b' : std::is_signed_v<T> ? 'i' : 'u');
    Mix(sizeof(T));
  }
  void Text(const std::string& text) {
    Mix('s');
    for (const char c : text) Mix(static_cast<uint64_t>(c));
  }
  size_t Count(size_t) {
    Mix('[');
    return 0;
  }
  template <typename T>
  void Class(T& object) {
    const auto [known, is_new] = classes_.emplace(&kClass<T>, classes_.size());
    Mix('c');
    Mix(known->second);
    if (is_new) StateAccess::Visit(object, *this);
  }
  // Mixes in where each member is in the object, so that swapping two of one type in the list changes the
  // version.
  void Order(std::initializer_list<uintptr_t> members) {
    for (const uintptr_t one : members)
      Mix(static_cast<uint64_t>(
          std::count_if(members.begin(), members.end(), [one](uintptr_t other) { return other < one; })));
  }

  template <typename T>
  static constexpr char kClass = 0;

  uint64_t hash_ = 0xcbf29ce484222325 ^ kFormat;
  std::map<const void*, uint64_t> classes_;  // by kClass, in the order in which they came
};

}  // namespace gpuprobe::model
