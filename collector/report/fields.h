// Describes the report's structs to everything that reads or writes all of their fields: JSON out and in, its
// schema, the page's types and the tables of docs/report-json.md.
//
// A struct of the report declares each field once, below its members:
//
//   struct PoolReport {
//     uint32_t pool = 0;
//     uint64_t at_ns = 0;
//
//     static constexpr void Declare(auto& fields) {
//       fields("pool", &PoolReport::pool, "its number, from 1");
//       fields("at_ns", &PoolReport::at_ns, "when").NullIfZero();
//     }
//   };
//
// A name ends in its unit (docs/report-json.md, "Conventions"). Members that JSON leaves out, or from which
// it computes a field, are named in Unwritten; one in neither place does not compile. TypeOf turns the
// declarations into one table for each type, in which types are erased, so that the code that walks a report
// is compiled once and not for every struct.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collector/model/state/members.h"
#include "collector/report/words.h"

namespace gpuprobe::report {

struct Object;

// A value's address, and its key if it is in a map.
using Visit = absl::FunctionRef<void(const std::string* key, const void* value)>;

struct Type {
  enum class Kind : uint8_t {
    kBool,
    kSigned,
    kUnsigned,
    kNumber,
    kText,
    kWord,
    kOptional,
    kList,
    kMap,
    kObject
  };
  Kind kind = Kind::kBool;
  uint8_t bytes = 0;               // of an integer or a word
  const Words* words = nullptr;    // of a word, or of the keys of a map
  const Object* object = nullptr;  // of an object
  // Of optional, list and map: what is in it.
  const Type* inner = nullptr;
  void (*each)(const void* container, Visit visit) = nullptr;
  // Room for the value at that place or key; nullptr: there is none.
  void* (*add)(void* container, size_t place, const std::string& key) = nullptr;
};

struct Field {
  const char* name = "";     // empty: the entries of a map that stand among the fields
  const char* meaning = "";  // Markdown
  const Type* type = nullptr;
  size_t at = 0;     // of the value in the object
  size_t owner = 0;  // of the struct that declared it: an object may show the fields of a struct within it
  const Object* from = nullptr;                // and that struct, then
  bool (*known)(const void* owner) = nullptr;  // where it is false, the value is null
  bool null_if_zero = false;                   // or empty
  bool absent_if_empty = false;
  bool in_summary = false;  // of an entry in which few fields are shown
  bool summarises = false;  // where a summary is asked for, its entries are summaries
  // A value that is not a member. Without `set`, it follows from other fields, and is not read.
  void (*get)(const void* owner, absl::FunctionRef<void(const void*)> then) = nullptr;
  void (*set)(void* owner, absl::FunctionRef<void(void*)> fill) = nullptr;
};

struct Object {
  std::string name = {};  // of the struct; empty: a group of fields of the struct around it
  std::vector<Field> fields = {};
  bool (*known)(const void* object) = nullptr;  // where it is false, the object is null
  void (*learn)(void* object) = nullptr;        // called when one is read that is not null
};

// Changes the field that was declared last.
template <typename T>
class FieldOf {
 public:
  explicit FieldOf(Field& field) : field_(field) {}
  FieldOf& NullIfZero() { return Set(&Field::null_if_zero); }
  FieldOf& AbsentIfEmpty() { return Set(&Field::absent_if_empty); }
  FieldOf& InSummary() { return Set(&Field::in_summary); }
  FieldOf& Summarises() { return Set(&Field::summarises); }
  template <typename Predicate>
  FieldOf& NullUnless(Predicate) {
    field_.known = [](const void* owner) {
      return static_cast<bool>(Predicate{}(*static_cast<const T*>(owner)));
    };
    return *this;
  }

 private:
  FieldOf& Set(bool Field::*flag) {
    field_.*flag = true;
    return *this;
  }
  Field& field_;
};

template <typename T>
const Type& TypeOf();

// Declares the fields of a struct that does not do it itself.
template <typename T>
struct Declaration {
  static void Of(auto& fields) { T::Declare(fields); }
};

// Counts the members that T declares, with the calls that Declaring has.
template <typename T>
class Counting {
 public:
  template <typename What>
  constexpr Counting& operator()(const char*, What, const char*) {
    return Count<What>();
  }
  constexpr Counting& NullIfZero() { return *this; }
  constexpr Counting& AbsentIfEmpty() { return *this; }
  constexpr Counting& InSummary() { return *this; }
  constexpr Counting& Summarises() { return *this; }
  constexpr Counting& NullUnless(auto) { return *this; }
  constexpr Counting& Computed(auto&&...) { return *this; }
  constexpr void Named(const char*) {}
  constexpr void WhenRead(auto) {}
  template <typename... M>
  constexpr void Unwritten(M T::*... members) {
    count_ += sizeof...(members);
  }
  template <typename M>
  constexpr Counting& Inline(M T::*) {
    return Count<M T::*>();
  }
  template <typename What>
  constexpr void Replace(const char*, What, const char*) {
    Count<What>();
  }
  template <typename M>
  constexpr void Element(const char*, M T::*, size_t place, const char*) {
    if (place == 0) Count<M T::*>();
  }
  template <typename M>
  constexpr Counting& Entries(M T::*, const char*) {
    return Count<M T::*>();
  }
  constexpr Counting& Group(const char*, const char*, auto declare) {
    declare(*this);
    return *this;
  }
  static constexpr size_t Members() {
    Counting fields;
    T::Declare(fields);
    return fields.count_;
  }

 private:
  template <typename What>
  constexpr Counting& Count() {
    count_ += std::is_member_object_pointer_v<What> ? 1 : 0;
    return *this;
  }
  size_t count_ = 0;
};

template <typename T>
class Declaring {
 public:
  static void CheckMembers() {
    if constexpr (requires(Counting<T> & fields) { T::Declare(fields); })
      model::StateAccess::CheckMembers<Counting<T>::Members()>(Sample());
  }

  explicit Declaring(Object& object) : object_(object) {}

  template <typename M>
  FieldOf<T> operator()(const char* name, M T::*member, const char* meaning) {
    return Add<M>(name, &(Sample().*member), meaning);
  }
  // A value within a member: `of` returns a reference to it.
  template <typename Accessor>
  requires std::is_lvalue_reference_v<std::invoke_result_t<Accessor, T&>> FieldOf<T>
  operator()(const char* name, Accessor of, const char* meaning) {
    return Add<std::remove_cvref_t<std::invoke_result_t<Accessor, T&>>>(name, &of(Sample()), meaning);
  }
  template <typename... M>
  void Unwritten(M T::*...) {}
  // The struct's name in the schema and the page's types, if it is not its own.
  void Named(const char* name) { object_.name = name; }
  // The member's own fields, among these.
  template <typename M>
  void Inline(M T::*member) {
    const size_t at = Offset(&(Sample().*member));
    for (Field field : TypeOf<M>().object->fields) {
      field.at += at;
      field.owner += at;
      field.from = TypeOf<M>().object;
      object_.fields.push_back(field);
    }
  }
  // In place of the field of this name.
  template <typename What>
  void Replace(const char* name, What what, const char* meaning) {
    if constexpr (std::is_member_pointer_v<What>) {
      (*this)(name, what, meaning);
    } else {
      Computed(name, what, meaning);
    }
    auto& fields = object_.fields;
    const auto old = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& f) { return std::strcmp(f.name, name) == 0; });
    *old = fields.back();
    fields.pop_back();
  }
  // An element of an array.
  template <typename V, size_t n>
  void Element(const char* name, std::array<V, n> T::*member, size_t place, const char* meaning) {
    Add<V>(name, &(Sample().*member)[place], meaning);
  }
  // The entries of a map, among these.
  template <typename M>
  FieldOf<T> Entries(M T::*member, const char* meaning) {
    return Add<M>("", &(Sample().*member), meaning);
  }
  // An object of its own in JSON, of members of this struct.
  FieldOf<T> Group(const char* name, const char* meaning, void (*declare)(Declaring& fields)) {
    auto* const group = new Object;  // lives as long as the program, as all types do
    Declaring inner(*group);
    declare(inner);
    Field& field = object_.fields.emplace_back();
    field.name = name;
    field.meaning = meaning;
    field.type = new Type{.kind = Type::Kind::kObject, .object = group};
    return FieldOf<T>(field);
  }
  // Follows from other fields: get(const T&) computes it.
  template <typename Get>
  FieldOf<T> Computed(const char* name, Get, const char* meaning) {
    using Value = std::invoke_result_t<Get, const T&>;
    Field& field = object_.fields.emplace_back();
    field.name = name;
    field.meaning = meaning;
    field.type = &TypeOf<Value>();
    field.get = [](const void* owner, absl::FunctionRef<void(const void*)> then) {
      const Value value = Get{}(*static_cast<const T*>(owner));
      then(&value);
    };
    return FieldOf<T>(field);
  }
  // The same, of what no other field says: set(T&, const Value&) keeps it when it is read.
  template <typename Get, typename Set>
  FieldOf<T> Computed(const char* name, Get get, Set, const char* meaning) {
    const FieldOf<T> field = Computed(name, get, meaning);
    object_.fields.back().set = [](void* owner, absl::FunctionRef<void(void*)> fill) {
      std::invoke_result_t<Get, const T&> value{};
      fill(&value);
      Set{}(*static_cast<T*>(owner), value);
    };
    return field;
  }
  // The object is null unless it has this.
  template <typename Predicate>
  void NullUnless(Predicate) {
    object_.known = [](const void* object) {
      return static_cast<bool>(Predicate{}(*static_cast<const T*>(object)));
    };
  }
  template <typename Learn>
  void WhenRead(Learn) {
    object_.learn = [](void* object) { Learn{}(*static_cast<T*>(object)); };
  }

 private:
  static T& Sample() {
    static T sample{};
    return sample;
  }
  static size_t Offset(const void* member) {
    return static_cast<size_t>(static_cast<const char*>(member) - reinterpret_cast<const char*>(&Sample()));
  }
  template <typename M>
  FieldOf<T> Add(const char* name, const M* member, const char* meaning) {
    Field& field = object_.fields.emplace_back();
    field.name = name;
    field.meaning = meaning;
    field.type = &TypeOf<M>();
    field.at = Offset(member);
    return FieldOf<T>(field);
  }

  Object& object_;
};

// "StepsPhase" of gpuprobe::analysis::StepsReport::Phase.
std::string ObjectName(std::string_view function);

template <typename T>
struct MakeType {
  static Type Of() {
    if constexpr (std::is_same_v<T, bool>) {
      return {.kind = Type::Kind::kBool};
    } else if constexpr (std::is_enum_v<T>) {
      return {.kind = Type::Kind::kWord, .bytes = sizeof(T), .words = &WordsOf<T>()};
    } else if constexpr (std::is_integral_v<T>) {
      return {.kind = std::is_signed_v<T> ? Type::Kind::kSigned : Type::Kind::kUnsigned, .bytes = sizeof(T)};
    } else if constexpr (std::is_floating_point_v<T>) {
      static_assert(std::is_same_v<T, double>);
      return {.kind = Type::Kind::kNumber};
    } else if constexpr (std::is_same_v<T, std::string>) {
      return {.kind = Type::Kind::kText};
    } else {
      auto* const object = new Object{.name = ObjectName(__PRETTY_FUNCTION__)};
      Declaring<T>::CheckMembers();
      Declaring<T> fields(*object);
      Declaration<T>::Of(fields);
      return {.kind = Type::Kind::kObject, .object = object};
    }
  }
};

template <typename V>
struct MakeType<std::optional<V>> {
  static Type Of() {
    return {.kind = Type::Kind::kOptional,
            .inner = &TypeOf<V>(),
            .each =
                [](const void* container, Visit visit) {
                  const auto& value = *static_cast<const std::optional<V>*>(container);
                  if (value.has_value()) visit(nullptr, &*value);
                },
            .add = [](void* container, size_t, const std::string&) -> void* {
              auto& value = *static_cast<std::optional<V>*>(container);
              value = V{};
              return &*value;
            }};
  }
};

template <typename V>
struct MakeType<std::vector<V>> {
  static Type Of() {
    return {.kind = Type::Kind::kList,
            .inner = &TypeOf<V>(),
            .each =
                [](const void* container, Visit visit) {
                  for (const V& value : *static_cast<const std::vector<V>*>(container))
                    visit(nullptr, &value);
                },
            .add = [](void* container, size_t, const std::string&) -> void* {
              return &static_cast<std::vector<V>*>(container)->emplace_back();
            }};
  }
};

template <typename V, size_t n>
struct MakeType<std::array<V, n>> {
  static Type Of() {
    return {.kind = Type::Kind::kList,
            .inner = &TypeOf<V>(),
            .each =
                [](const void* container, Visit visit) {
                  for (const V& value : *static_cast<const std::array<V, n>*>(container))
                    visit(nullptr, &value);
                },
            .add = [](void* container, size_t place, const std::string&) -> void* {
              return place < n ? &(*static_cast<std::array<V, n>*>(container))[place] : nullptr;
            }};
  }
};

template <typename V>
struct MakeType<std::map<std::string, V>> {
  static Type Of() {
    return {.kind = Type::Kind::kMap,
            .inner = &TypeOf<V>(),
            .each =
                [](const void* container, Visit visit) {
                  for (const auto& [key, value] : *static_cast<const std::map<std::string, V>*>(container))
                    visit(&key, &value);
                },
            .add = [](void* container, size_t, const std::string& key) -> void* {
              return &(*static_cast<std::map<std::string, V>*>(container))[key];
            }};
  }
};

template <typename E, typename V>
struct MakeType<WordMap<E, V>> {
  static Type Of() {
    return {.kind = Type::Kind::kMap,
            .words = &WordsOf<E>(),
            .inner = &TypeOf<V>(),
            .each =
                [](const void* container, Visit visit) {
                  for (const auto& [key, value] : *static_cast<const WordMap<E, V>*>(container))
                    visit(&Word(key), &value);
                },
            .add = [](void* container, size_t, const std::string& key) -> void* {
              const std::optional<int64_t> value = ValueOf(WordsOf<E>(), key);
              return value.has_value() ? &(*static_cast<WordMap<E, V>*>(container))[static_cast<E>(*value)]
                                       : nullptr;
            }};
  }
};

template <typename T>
const Type& TypeOf() {
  static const Type kType = MakeType<T>::Of();
  return kType;
}

}  // namespace gpuprobe::report
