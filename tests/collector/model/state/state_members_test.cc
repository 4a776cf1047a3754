// Every class of a model's state, filled with values that are not its defaults, is the same after it was
// saved and loaded. That no member is missing from a class's list is checked by the compiler
// (collector/model/state/members.h).
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/state/archive.h"
#include "collector/model/state/layout.h"

namespace gpuprobe::model {
namespace {

template <typename T>
std::string NameOf() {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status), std::free);
  const std::string full = name.get();
  constexpr std::string_view kNamespace = "gpuprobe::model::";
  return full.starts_with(kNamespace) ? full.substr(kNamespace.size()) : full;
}

template <typename T>
std::string Save(T& object) {
  StateWriter writer;
  writer(object);
  return writer.Take();
}

// Gives every saved member another value than it has, and checks each class that it meets for the first time.
class Filler : public MemberArchive<Filler> {
 public:
  static constexpr bool kReads = false;

  template <typename... T>
  void operator()(T&... values) {
    (Fill(values), ...);
  }
  void Require(bool) {}
  bool ok() const { return true; }
  const std::vector<std::string>& problems() const { return problems_; }
  size_t classes() const { return seen_.size(); }
  // Classes that cannot be made by themselves, because they refer to others.
  const std::set<std::string>& within_others() const { return within_others_; }

 private:
  // Keys must differ, and indices and enumerators be small: 1, or 2 where it was 1.
  template <Scalar T>
  void Fill(T& value) {
    value = value == static_cast<T>(1) ? static_cast<T>(2) : static_cast<T>(1);
  }
  void Fill(bool& value) { value = !value; }
  void Fill(absl::uint128& value) { value = absl::MakeUint128(3, static_cast<uint64_t>(value) + 1); }
  void Fill(std::string& text) { text += "x"; }
  void Fill(std::vector<bool>& flags) { flags = {true, false, true}; }
  template <Message T>
  void Fill(T& message) {
    const google::protobuf::Descriptor& fields = *message.GetDescriptor();
    const google::protobuf::Reflection& access = *message.GetReflection();
    for (int i = 0; i < fields.field_count(); ++i) {
      const google::protobuf::FieldDescriptor& field = *fields.field(i);
      if (field.is_repeated()) continue;
      using Type = google::protobuf::FieldDescriptor;
      if (field.cpp_type() == Type::CPPTYPE_STRING) access.SetString(&message, &field, "text");
      if (field.cpp_type() == Type::CPPTYPE_UINT64) access.SetUInt64(&message, &field, 300);
      if (field.cpp_type() == Type::CPPTYPE_UINT32) access.SetUInt32(&message, &field, 200);
    }
  }
  template <typename T>
  requires(StateAccess::HasVisit<T, Filler>()) void Fill(T& object) {
    const bool first = seen_.insert(typeid(T).name()).second;
    if (int& depth = open_[typeid(T).name()]; depth < 2) {  // of a tree, two levels
      ++depth;
      StateAccess::Visit(object, *this);
      --depth;
    }
    if (first) Check(object);
    Settle(object);
  }
  template <typename T>
  void Fill(std::unique_ptr<T>& pointer) {
    pointer = std::make_unique<T>();
    Fill(*pointer);
  }
  template <typename T>
  void Fill(std::optional<T>& value) {
    Fill(value.emplace());
  }
  template <typename A, typename B>
  void Fill(std::pair<A, B>& pair) {
    Fill(pair.first);
    Fill(pair.second);
  }
  template <typename... T>
  void Fill(std::tuple<T...>& tuple) {
    std::apply([this](auto&... each) { (this->Fill(each), ...); }, tuple);
  }
  template <typename T, size_t n>
  void Fill(std::array<T, n>& array) {
    for (T& each : array) Fill(each);
  }
  template <typename T>
  void FillSequence(T& sequence) {
    sequence.clear();
    for (int i = 0; i < 2; ++i) Fill(sequence.emplace_back());
  }
  template <typename T>
  void Fill(std::vector<T>& vector) {
    FillSequence(vector);
  }
  template <typename T>
  void Fill(std::deque<T>& deque) {
    FillSequence(deque);
  }
  // `most`: entries; one where the order of more would depend on addresses.
  template <typename K, typename Map>
  void FillMap(Map& map, int most) {
    map.clear();
    K key{};
    for (int i = 0; i < most; ++i) {
      Fill(key);
      auto value = typename Map::mapped_type();
      Fill(value);
      map.emplace(key, std::move(value));
    }
  }
  template <typename K, typename V>
  void Fill(std::map<K, V>& map) {
    FillMap<K>(map, 2);
  }
  template <typename K, typename V>
  void Fill(std::multimap<K, V>& map) {
    FillMap<K>(map, 2);
  }
  template <typename K, typename V>
  void Fill(absl::flat_hash_map<K, V>& map) {
    FillMap<K>(map, 1);
  }

  // Classes whose members must agree with each other, made by what they are for.
  void Fill(Distribution& distribution) {
    if (seen_.insert(typeid(Distribution).name()).second) {
      for (const size_t exact : {size_t{8}, size_t{2}}) {  // as samples, and as a histogram
        Distribution each(exact);
        for (const uint64_t value : {3, 500, 70000}) each.Add(value);
        Check(each);
      }
    }
    distribution = Distribution();
    distribution.Add(7);
  }
  void Fill(IntervalUnion& intervals) {
    const bool first = seen_.insert(typeid(IntervalUnion).name()).second;
    for (uint64_t at = 0; at < 100; ++at) intervals.Add(1000 * at, 1000 * at + 10);
    if (first) Check(intervals);
  }
  void Fill(CorrelationRing& ring) {
    const bool first = seen_.insert(typeid(CorrelationRing).name()).second;
    CorrelationRing::Slot slot;
    Fill(slot);
    ring.Claim(7).launched = true;
    if (first) Check(ring);
  }
  void Fill(OperationBlocks& operations) {
    const bool first = seen_.insert(typeid(OperationBlocks).name()).second;
    Operation operation;
    Fill(operation);
    operations.Next() = operation;
    if (first) Check(operations);
  }

  // What a class requires of objects that it holds.
  template <typename T>
  void Settle(T& object) {
    if constexpr (std::is_same_v<T, PendingStep>) object = {.begin = 2, .end = 2};
    if constexpr (std::is_same_v<T, LateSteps::Level>)
      object.late = object.others_late = object.longer_known = 0;
    // These must agree with the operations or kernels that they are about. run_recording_test.cc saves and
    // loads them at every point of a run.
    if constexpr (std::is_same_v<T, AnchorCutter> || std::is_same_v<T, StepWork>) object = T();
  }
  template <typename T>
  static constexpr bool kNeedsOthers = std::is_same_v<T, AnchorCutter> || std::is_same_v<T, StepWork>;

  template <typename T>
  void Check(T& object) {
    if constexpr (!std::is_default_constructible_v<T>) {
      within_others_.insert(NameOf<T>());
    } else if constexpr (!kNeedsOthers<T>) {
      T loaded = T();
      const std::string unfilled = Save(loaded);
      const std::string saved = Save(object);
      StateReader reader(saved);
      reader(loaded);
      if (!reader.ok() || !reader.at_end())
        problems_.push_back(NameOf<T>() + ": the saved bytes are refused");
      if (Save(loaded) != saved) problems_.push_back(NameOf<T>() + ": differs after it was loaded");
      if (saved == unfilled) problems_.push_back(NameOf<T>() + ": has no other value than its default");
    }
  }

  std::set<std::string> seen_;
  std::map<std::string, int> open_;
  std::set<std::string> within_others_;
  std::vector<std::string> problems_;
};

std::string Lines(const std::vector<std::string>& all) {
  std::string lines;
  for (const std::string& each : all) lines += each + "\n";
  return lines;
}

TEST(StateMembersTest, EveryClassIsTheSameAfterItWasSavedAndLoaded) {
  Filler filler;
  JobModel job;
  ProcessModel& process = job.Join({});
  RankComparison comparison;
  IssuedCalls issued;
  HangVerdicts verdicts;
  filler(process, comparison, issued, verdicts);
  EXPECT_EQ(Lines(filler.problems()), "");
  EXPECT_GT(filler.classes(), 80u);
}

TEST(StateMembersTest, AProcessIsTheSameAfterItWasSavedAndLoaded) {
  Filler filler;
  JobModel filled;
  ProcessModel& process = filled.Join({});
  filler(process);
  const std::string saved = Save(process);
  JobModel other;
  ProcessModel& loaded = other.Join({});
  StateReader reader(saved);
  reader(loaded);
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(Save(loaded), saved);
  // The classes that exist only as parts of a process, which the first test leaves to this one.
  const std::set<std::string> parts{"CollectiveTracker",   "Delivery",     "DeviceSteps",
                                    "DeviceSteps::Device", "DeviceWork",   "OperationJoiner",
                                    "ProcessMemory",       "ProcessModel", "StepOperations"};
  EXPECT_EQ(filler.within_others(), parts);
}

// Classes of two members.
template <typename First, typename Second>
struct Pair {
  First first{};
  Second second{};

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, first, second);
  }
};
struct Swapped {
  uint64_t first = 0;
  uint64_t second = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, second, first);
  }
};
struct Shorter {
  uint64_t first = 0;
  uint64_t second = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(second), first);
  }
};

struct Tree {
  uint64_t value = 0;
  std::map<uint64_t, std::unique_ptr<Tree>> children;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, value, children);
  }
};

template <typename T>
uint32_t VersionOf() {
  StateLayout layout;
  T object{};
  layout(object);
  return layout.version();
}

TEST(StateVersionTest, ListsThatDifferInTypeOrderOrLengthHaveDifferentVersions) {
  enum class Word : uint64_t { kNone };
  const std::vector<uint32_t> versions{
      VersionOf<Pair<uint64_t, uint64_t>>(),
      VersionOf<Swapped>(),
      VersionOf<Shorter>(),
      VersionOf<Pair<uint64_t, uint32_t>>(),
      VersionOf<Pair<uint32_t, uint64_t>>(),
      VersionOf<Pair<uint64_t, int64_t>>(),
      VersionOf<Pair<uint64_t, Word>>(),
      VersionOf<Pair<uint64_t, bool>>(),
      VersionOf<Pair<uint64_t, std::string>>(),
      VersionOf<Pair<uint64_t, v1::Device>>(),
      VersionOf<Pair<uint64_t, v1::Hello>>(),
      VersionOf<Pair<uint64_t, absl::uint128>>(),
      VersionOf<Pair<uint64_t, std::optional<uint64_t>>>(),
      VersionOf<Pair<uint64_t, std::vector<uint64_t>>>(),
      VersionOf<Pair<uint64_t, std::vector<bool>>>(),
      VersionOf<Pair<uint64_t, std::array<uint64_t, 2>>>(),
      VersionOf<Pair<uint64_t, std::array<uint64_t, 3>>>(),
      VersionOf<Pair<uint64_t, std::map<uint64_t, uint32_t>>>(),
      VersionOf<Pair<uint64_t, std::map<uint32_t, uint64_t>>>(),
      VersionOf<Pair<uint64_t, std::tuple<uint32_t, uint64_t>>>(),
      VersionOf<Pair<uint64_t, Swapped>>(),
      VersionOf<Pair<uint64_t, std::vector<Swapped>>>(),
      VersionOf<Pair<uint64_t, std::vector<Shorter>>>(),
      VersionOf<Pair<Swapped, Shorter>>(),
      VersionOf<Pair<Shorter, Swapped>>(),
      VersionOf<Pair<Swapped, Swapped>>(),
  };
  EXPECT_EQ(std::set<uint32_t>(versions.begin(), versions.end()).size(), versions.size());
}

TEST(StateVersionTest, AClassIsItsMembersWhateverItsNameAndItsContainers) {
  EXPECT_EQ((VersionOf<Pair<uint64_t, uint64_t>>()), (VersionOf<Pair<unsigned long, size_t>>()));
  EXPECT_EQ((VersionOf<Pair<int, std::vector<Shorter>>>()), (VersionOf<Pair<int, std::deque<Shorter>>>()));
  EXPECT_EQ((VersionOf<Pair<int, std::map<int, bool>>>()),
            (VersionOf<Pair<int, absl::flat_hash_map<int, bool>>>()));
}

TEST(StateVersionTest, ATreeHasAVersion) {
  EXPECT_NE(VersionOf<Tree>(), (VersionOf<Pair<uint64_t, std::map<uint64_t, Shorter>>>()));
}

TEST(StateVersionTest, AStateOfAnotherVersionIsRefused) {
  JobModel job;
  job.Join({});
  const std::string saved = job.SaveState();
  uint32_t version = 0;
  StateReader reader(saved);
  reader(version);
  ++version;
  std::string other = Save(version);
  uint32_t same = version - 1;
  other += saved.substr(Save(same).size());
  EXPECT_TRUE(JobModel().LoadState(saved).ok());
  EXPECT_EQ(JobModel().LoadState(other), absl::DataLossError("totals of another release"));
  // As releases wrote it that counted their versions.
  version = 41;
  EXPECT_EQ(JobModel().LoadState(Save(version)), absl::DataLossError("totals of another release"));
}

}  // namespace
}  // namespace gpuprobe::model
