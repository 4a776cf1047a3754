#include "collector/report/json.h"

#include <cstring>
#include <string>

#include "collector/report/report_type.h"
#include "gtest/gtest.h"

namespace gpuprobe::report {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Type::Kind;

// Gives every declared field a value of its own, none of them zero.
class Filler {
 public:
  void Fill(const Type& type, void* value) {
    switch (type.kind) {
      case Kind::kBool:
        *static_cast<bool*>(value) = true;
        return;
      case Kind::kSigned:
      case Kind::kUnsigned:
        ++number_;
        std::memcpy(value, &number_, type.bytes);
        return;
      case Kind::kNumber:
        *static_cast<double*>(value) = ++number_ + 0.1;
        return;
      case Kind::kText:
        *static_cast<std::string*>(value) = "text " + std::to_string(++number_);
        return;
      case Kind::kWord: {
        const auto& [number, word] = (*type.words)[++words_ % type.words->size()];
        std::memcpy(value, &number, type.bytes);
        return;
      }
      case Kind::kOptional:
      case Kind::kList:
      case Kind::kMap:
        for (size_t place = 0; place < (type.kind == Kind::kOptional ? 1U : 2U); ++place)
          Fill(*type.inner, type.add(value, place,
                                     type.words != nullptr ? (*type.words)[place].second
                                                           : "key " + std::to_string(place)));
        return;
      case Kind::kObject:
        for (const Field& field : type.object->fields) FillField(field, static_cast<char*>(value));
        if (type.object->learn != nullptr) type.object->learn(value);
        return;
    }
  }

 private:
  void FillField(const Field& field, char* object) {
    if (field.set != nullptr) {
      field.set(object + field.owner, [&](void* value) { Fill(*field.type, value); });
    } else if (field.get == nullptr) {
      Fill(*field.type, object + field.at);
    }
  }

  int number_ = 0;
  size_t words_ = 0;
};

std::string Rewritten(const Json& json) { return ToJson(FromJson(json).value()).dump(); }

TEST(ReportJson, IsReadAsItWasWritten) {
  analysis::Report report;
  Filler().Fill(ReportType(), &report);
  const Json json = ToJson(report);
  EXPECT_EQ(Rewritten(json), json.dump());
  EXPECT_EQ(Rewritten(ToJson(analysis::Report())), ToJson(analysis::Report()).dump());
}

TEST(ReportJson, KeepsWhatIsNeitherZeroNorSmall) {
  analysis::Report report;
  report.ranks.resize(1);
  report.ranks[0].start_ns = UINT64_MAX;
  report.trust.clock_step_ns = INT64_MIN;
  report.trust.coverage = 0.1 + 0.2;
  report.communication.unheard_share = 5e-324;
  report.conditions.job = "a \"quoted\" \n name";
  const analysis::Report read = FromJson(ToJson(report)).value();
  EXPECT_EQ(read.ranks[0].start_ns, UINT64_MAX);
  EXPECT_EQ(read.trust.clock_step_ns, INT64_MIN);
  EXPECT_EQ(read.trust.coverage, 0.1 + 0.2);
  EXPECT_EQ(read.communication.unheard_share, 5e-324);
  EXPECT_EQ(read.conditions.job, report.conditions.job);
}

TEST(ReportJson, ValuesOfOtherTypesAndUnknownFieldsAreIgnored) {
  EXPECT_FALSE(FromJson(Json::array()).ok());
  const Json json = Json::parse(
      R"({"new": 1, "ranks": [{"rank": "three", "pid": "x", "cut_off": 1, "kernels": [], "memory": {"device": 3},
                               "top_kernels": [{"grid": [1, 2, 3, 4]}]}, 7],
          "trust": [], "steps": 4, "stragglers": {"a": 1}, "hangs": [{"kind": "new_kind", "issued": 1.5}]})");
  const analysis::Report report = FromJson(json).value();
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].pid, 0u);
  EXPECT_EQ(report.ranks[0].top_kernels[0].geometry.grid[2], 3u);
  EXPECT_TRUE(report.stragglers.empty());
  EXPECT_EQ(report.hangs[0].issued, 0);
}

TEST(ReportJson, NumbersThatDoNotFitAreIgnored) {
  const Json json = Json::parse(
      R"({"ranks": [{"pid": 4294967297, "start_ns": -1}, {"pid": -1, "start_ns": 18446744073709551615},
                    {"rank": 9223372036854775808}]})");
  const analysis::Report report = FromJson(json).value();
  ASSERT_EQ(report.ranks.size(), 3u);
  EXPECT_EQ(report.ranks[0].pid, 0u);
  EXPECT_EQ(report.ranks[0].start_ns, 0u);
  EXPECT_EQ(report.ranks[1].pid, 0u);
  EXPECT_EQ(report.ranks[1].start_ns, UINT64_MAX);
  EXPECT_EQ(report.ranks[2].rank, analysis::RankReport().rank);
}

TEST(ReportJson, EveryFieldHasANameOfItsOwnAndAMeaning) {
  const auto check = [](const auto& self, const Type& type) -> void {
    if (type.inner != nullptr) self(self, *type.inner);
    if (type.object == nullptr) return;
    std::set<std::string> names;
    for (const Field& field : type.object->fields) {
      EXPECT_TRUE(names.insert(field.name).second) << type.object->name << "." << field.name;
      EXPECT_STRNE(field.meaning, "") << type.object->name << "." << field.name;
      self(self, *field.type);
    }
  };
  check(check, ReportType());
}

}  // namespace
}  // namespace gpuprobe::report
