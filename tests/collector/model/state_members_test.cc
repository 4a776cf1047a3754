// Every member of every class in a model's state is saved, or said to be rebuilt.
#include "collector/model/state_members.h"

#include <cxxabi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <typeinfo>
#include <vector>

namespace gpuprobe::model {
namespace {

template <typename T>
std::string NameOf() {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status), std::free);
  return name.get();
}

// An archive that writes nothing: it notes which bytes of an object its class names. What is left over must
// be padding.
class MemberCoverage {
 public:
  static constexpr bool kReads = false;

  template <typename... T>
  void operator()(T&... values) {
    (Take(values), ...);
  }
  template <typename... T>
  void Rebuilt(const T&... values) {
    (Note(values), ...);
  }
  void BeginsWithReferences(int count) {
    objects_.back().members.push_back({0, static_cast<size_t>(count) * sizeof(void*), alignof(void*)});
  }
  void Require(bool) {}
  bool ok() const { return true; }

  const std::vector<std::string>& gaps() const { return gaps_; }
  size_t classes() const { return seen_.size(); }

 private:
  struct Member {
    size_t begin;
    size_t end;
    size_t alignment;
  };
  struct Object {
    const std::byte* begin;
    size_t bytes;
    std::vector<Member> members;
  };

  // What lies elsewhere, a local variable for one, is no member.
  template <typename T>
  void Note(const T& value) {
    if (objects_.empty()) return;
    Object& object = objects_.back();
    const auto* const at = reinterpret_cast<const std::byte*>(&value);
    if (at < object.begin || at + sizeof(T) > object.begin + object.bytes) return;
    const auto begin = static_cast<size_t>(at - object.begin);
    object.members.push_back({begin, begin + sizeof(T), alignof(T)});
  }

  template <typename T>
  void Take(T& value) {
    Note(value);
    Enter(value);
  }

  template <typename T>
  void Enter(T& value) {
    if constexpr (requires(MemberCoverage & c) { value.Visit(c); }) {
      if (!seen_.insert(typeid(T).name()).second) return;
      objects_.push_back({reinterpret_cast<const std::byte*>(&value), sizeof(T), {}});
      value.Visit(*this);
      Check<T>();
      objects_.pop_back();
    }
  }
  // An element of each container, whether or not it has one.
  template <typename T>
  void EnterFresh() {
    T value = T();
    Enter(value);
  }
  template <typename T>
  void Enter(std::unique_ptr<T>& pointer) {
    if (pointer != nullptr) return Enter(*pointer);
    EnterFresh<T>();
  }
  template <typename A, typename B>
  void Enter(std::pair<A, B>&) {
    EnterFresh<std::remove_const_t<A>>();
    EnterFresh<B>();
  }
  template <typename... T>
  void Enter(std::tuple<T...>&) {
    (EnterFresh<T>(), ...);
  }
  template <typename T, size_t n>
  void Enter(std::array<T, n>&) {
    EnterFresh<T>();
  }
  template <typename T>
  void Enter(std::vector<T>&) {
    EnterFresh<T>();
  }
  template <typename T>
  void Enter(std::deque<T>&) {
    EnterFresh<T>();
  }
  template <typename K, typename V>
  void Enter(std::map<K, V>&) {
    EnterFresh<K>();
    EnterFresh<V>();
  }
  template <typename K, typename V>
  void Enter(std::multimap<K, V>&) {
    EnterFresh<K>();
    EnterFresh<V>();
  }
  template <typename K, typename V>
  void Enter(absl::flat_hash_map<K, V>&) {
    EnterFresh<K>();
    EnterFresh<V>();
  }

  template <typename T>
  void Check() {
    Object& object = objects_.back();
    auto& members = object.members;
    std::sort(members.begin(), members.end(),
              [](const Member& a, const Member& b) { return a.begin < b.begin; });
    members.push_back({sizeof(T), sizeof(T), alignof(T)});
    size_t end = 0;
    for (const Member& member : members) {
      const size_t padded = (end + member.alignment - 1) / member.alignment * member.alignment;
      if (member.begin > padded) {
        gaps_.push_back(NameOf<T>() + ": bytes " + std::to_string(end) + " to " +
                        std::to_string(member.begin) + " of " + std::to_string(sizeof(T)) +
                        " are neither saved nor said to be rebuilt");
      }
      end = std::max(end, member.end);
    }
  }

  std::vector<Object> objects_;
  std::set<std::string> seen_;
  std::vector<std::string> gaps_;
};

template <typename T>
std::string GapsOf(T& object) {
  MemberCoverage coverage;
  coverage(object);
  std::string all;
  for (const std::string& gap : coverage.gaps()) all += gap + "\n";
  return all;
}

struct Forgetful {
  uint64_t saved = 0;
  uint64_t forgotten = 0;
  bool flag = false;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive(saved, flag);
  }
};
struct Complete {
  uint64_t saved = 0;
  uint64_t follows = 0;
  bool flag = false;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive(saved, flag);
    archive.Rebuilt(follows);
  }
};

TEST(StateMembersTest, AForgottenMemberIsFound) {
  Forgetful forgetful;
  EXPECT_EQ(GapsOf(forgetful),
            NameOf<Forgetful>() + ": bytes 8 to 16 of 24 are neither saved nor said to be rebuilt\n");
  Complete complete;
  EXPECT_EQ(GapsOf(complete), "");
}

TEST(StateMembersTest, EveryMemberOfEveryClassIsSavedOrRebuilt) {
  JobModel job;
  MemberCoverage coverage;
  coverage(job.Join({}));
  coverage(const_cast<RankComparison&>(job.comparison()), const_cast<IssuedCalls&>(job.issued()));
  std::string all;
  for (const std::string& gap : coverage.gaps()) all += gap + "\n";
  EXPECT_EQ(all, "");
  EXPECT_GT(coverage.classes(), 80u);
}

}  // namespace
}  // namespace gpuprobe::model
