// Programs with ever more names: the memory for them is bounded, and every launch is still counted.
#include "collector/records/process_names.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/model/job/job_model.h"
#include "collector/records/collective_kernels.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

// Defines the texts of a program that gives each step a name of its own, from id `id` on.
void DefineSteps(ProcessNames& names, uint32_t& id, uint32_t count) {
  v1::StringDef def;
  for (uint32_t i = 0; i < count; ++i) {
    def.set_id(id);
    def.set_value(absl::StrCat("step ", id++));
    ASSERT_TRUE(names.On(def).ok());
  }
}

uint32_t Define(ProcessNames& names, uint32_t& id, const std::string& text) {
  v1::StringDef def;
  def.set_id(id);
  def.set_value(text);
  EXPECT_TRUE(names.On(def).ok());
  return id++;
}

TEST(ProcessNames, OneIdStandsForAllOfTheSameText) {
  ProcessNames names;
  uint32_t id = 1;
  const uint32_t first = Define(names, id, "gemm");
  const uint32_t other = Define(names, id, "softmax");
  const uint32_t again = Define(names, id, "gemm");
  EXPECT_EQ(names.Canonical(again), first);
  EXPECT_EQ(names.Canonical(first), first);
  EXPECT_EQ(names.Canonical(other), other);
  EXPECT_EQ(names.String(again), "gemm");
  EXPECT_EQ(names.Canonical(77), 77u) << "not defined";
  EXPECT_EQ(names.Canonical(0), 0u);
}

TEST(ProcessNames, BeyondTheLimitKnownTextsAreKnownAndOthersShareTheirShape) {
  ProcessNames names;
  uint32_t id = 1;
  const uint32_t gemm = Define(names, id, "gemm");
  DefineSteps(names, id, ProcessNames::kMaxTexts - 1);
  EXPECT_EQ(names.other_names(), 0u);
  EXPECT_EQ(names.String(names.Canonical(id - 1)), absl::StrCat("step ", id - 1));
  const uint32_t beyond = id;
  DefineSteps(names, id, 1000);
  EXPECT_EQ(names.other_names(), 1000u);
  EXPECT_EQ(names.String(beyond), "step #");
  EXPECT_EQ(names.Canonical(id - 1), names.Canonical(beyond));
  EXPECT_EQ(names.Canonical(Define(names, id, "gemm")), gemm) << "as the injector defines it again";
  const uint32_t plain = Define(names, id, "evaluation");
  EXPECT_EQ(names.String(plain), "evaluation") << "a shape without numbers is the text";
  EXPECT_EQ(names.other_names(), 1000u);
  const uint32_t send = Define(names, id, "Send");
  EXPECT_TRUE(names.IsPointToPoint(send));
}

TEST(ProcessNames, BeyondTheShapesAllAreOtherNames) {
  ProcessNames names;
  uint32_t id = 1;
  DefineSteps(names, id, ProcessNames::kMaxTexts);
  static_assert(ProcessNames::kMaxShapes == 16 * 16 * 16);
  for (char a = 'a'; a < 'q'; ++a) {
    for (char b = 'a'; b < 'q'; ++b) {
      for (char c = 'a'; c < 'q'; ++c) Define(names, id, {a, b, c});
    }
  }
  EXPECT_EQ(names.other_names(), 0u);
  const uint32_t one = Define(names, id, "y");
  const uint32_t other = Define(names, id, "step 99999999 z");
  EXPECT_EQ(names.String(one), "other names");
  EXPECT_EQ(names.Canonical(one), ProcessNames::kOtherNames);
  EXPECT_EQ(names.Canonical(other), ProcessNames::kOtherNames);
  EXPECT_EQ(names.String(ProcessNames::kOtherNames), "other names");
  EXPECT_EQ(names.other_names(), 2u);
}

TEST(ProcessNames, LongTextsAreBoundedByTheirBytes) {
  ProcessNames names;
  uint32_t id = 1;
  const size_t length = size_t{16} << 10;
  size_t kept = 0;
  for (size_t i = 0; i < 2000; ++i) {
    const std::string text = std::string(length - i, 'k') + "?";
    kept += names.String(Define(names, id, text)) == text ? 1 : 0;
  }
  EXPECT_GT(kept, 500u);
  EXPECT_LT(kept, 700u);
  EXPECT_EQ(names.other_names(), 2000 - kept);
}

TEST(ProcessNames, NcclsKernelsAreKnownBeyondTheLimit) {
  ProcessNames names;
  uint32_t id = 1;
  DefineSteps(names, id, ProcessNames::kMaxTexts);
  const uint32_t mangled =
      Define(names, id, "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
  const uint32_t plain = Define(names, id, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL");
  EXPECT_EQ(OperationOfKernel(names.String(mangled)), "AllReduce");
  EXPECT_EQ(OperationOfKernel(names.String(plain)), "ReduceScatter");
}

TEST(ProcessNames, TheHeadOfALogMayLeaveIdsOut) {
  ProcessNames names;
  v1::StringDef def;
  def.set_id(3'000'000);
  def.set_value("late");
  EXPECT_FALSE(names.On(def).ok());
  EXPECT_TRUE(names.On(def, /*restated=*/true).ok());
  EXPECT_EQ(names.String(3'000'000), "late");
}

// Applies `batches` batches, each of which launches "gemm" and `names` kernels with new names. "gemm" is
// defined again in each, as the injector does. Returns how often gemm was launched.
uint64_t LaunchEverNewKernels(ProcessModel& model, uint32_t batches, uint32_t names, uint32_t from = 0) {
  uint32_t id = 1 + from * (names + 1);
  uint64_t gemms = 0;
  for (uint32_t batch = from; batch < from + batches; ++batch) {
    BatchBuilder b(batch + 1, kStart + batch * 100 * kMs);
    uint64_t at_ns = kStart + batch * 100 * kMs;
    const auto launch = [&](const std::string& name, uint64_t length_ns) {
      b.String(id, name).Site(id, id).Kernel(at_ns, at_ns + length_ns, id);
      at_ns += length_ns;
      ++id;
    };
    launch("gemm", 500);
    ++gemms;
    for (uint32_t i = 0; i < names; ++i) launch(absl::StrCat("fused_", id), 100);
    EXPECT_TRUE(model.Apply(b.batch()).ok());
  }
  return gemms;
}

// Calls by name and size of the grid.
std::map<std::pair<std::string, uint32_t>, uint64_t> KernelsOf(const JobModel& job) {
  std::map<std::pair<std::string, uint32_t>, uint64_t> calls;
  const ProcessModel& model = *job.processes().front();
  model.ForEachSite([&](const KernelTotals& kernel, const LaunchGeometry& geometry, uint64_t n) {
    calls[{model.String(kernel.name), geometry.grid[0]}] += n;
  });
  return calls;
}

TEST(ProcessNames, AnOrdinaryKernelKeepsItsCallsWhileOthersHaveEverNewNames) {
  constexpr uint32_t kBatches = 20;
  constexpr uint32_t kNames = 5000;
  JobModel job;
  ProcessModel& model = job.Join(MakeHello(0));
  const uint64_t gemms = LaunchEverNewKernels(model, kBatches, kNames);
  model.Finish();  // their launches do not come
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  size_t gemm_rows = 0;
  for (const auto& kernel : model.kernels()) {
    calls += kernel->time_ns.count();
    total_ns += kernel->time_ns.total();
    if (model.String(kernel->name) != "gemm") continue;
    ++gemm_rows;
    EXPECT_EQ(kernel->time_ns.count(), gemms);
    EXPECT_EQ(kernel->time_ns.total(), 500 * gemms);
  }
  EXPECT_EQ(gemm_rows, 1u);
  EXPECT_EQ(calls, kBatches * (kNames + 1));
  EXPECT_EQ(total_ns, kBatches * (kNames * 100 + 500));
  EXPECT_EQ(model.totals().kernels, calls);
  EXPECT_LE(model.kernels().size(), ProcessNames::kMaxTexts + 1);
  EXPECT_EQ(model.OtherNames(), kBatches * kNames + 1 - ProcessNames::kMaxTexts);
  uint64_t at_sites = 0;
  model.ForEachSite(
      [&](const KernelTotals& /*kernel*/, const LaunchGeometry& /*geometry*/, uint64_t n) { at_sites += n; });
  EXPECT_EQ(at_sites, calls);
}

TEST(ProcessNames, SitesBeyondTheirLimitAreKnownByNameAndDevice) {
  JobModel job;
  ProcessModel& model = job.Join(MakeHello(0));
  uint32_t site = 1;
  constexpr auto kSites = static_cast<uint32_t>(2 * DeviceWork::kMaxSites);
  for (uint64_t sequence = 1; site <= kSites; ++sequence) {
    BatchBuilder b(sequence, kStart + sequence * 100 * kMs);
    if (sequence == 1) b.String(1, "gemm").String(2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    for (uint32_t i = 0; i < 16384; ++i, ++site) {
      const uint64_t at_ns = kStart + sequence * 100 * kMs + i * 1000;
      b.Site(site, 1 + site % 2, 0, /*stream=*/site).Kernel(at_ns, at_ns + 10, site);
    }
    ASSERT_TRUE(model.Apply(b.batch()).ok());
  }
  model.Finish();  // their launches do not come
  size_t places = 0;
  uint64_t without_geometry = 0;
  uint64_t calls = 0;
  model.ForEachSite([&](const KernelTotals& /*kernel*/, const LaunchGeometry& geometry, uint64_t n) {
    ++places;
    calls += n;
    if (geometry == LaunchGeometry{}) without_geometry += n;
  });
  EXPECT_EQ(calls, kSites);
  EXPECT_EQ(places, DeviceWork::kMaxSites + 2);
  EXPECT_EQ(without_geometry, DeviceWork::kMaxSites);
  ASSERT_EQ(model.kernels().size(), 2u);
  EXPECT_EQ(model.kernels()[0]->time_ns.count(), kSites / 2);
  EXPECT_EQ(model.kernels()[1]->time_ns.count(), kSites / 2);
}

TEST(ProcessNames, AModelWithTooManyNamesGoesOnAfterItWasLoaded) {
  constexpr uint32_t kNames = 5000;
  JobModel straight;
  LaunchEverNewKernels(straight.Join(MakeHello(0)), 18, kNames);
  JobModel before;
  LaunchEverNewKernels(before.Join(MakeHello(0)), 15, kNames);
  JobModel after;
  ASSERT_TRUE(after.LoadState(before.SaveState()).ok());
  ASSERT_EQ(after.processes().size(), 1u);
  LaunchEverNewKernels(*after.processes()[0], 3, kNames, 15);
  EXPECT_EQ(KernelsOf(after), KernelsOf(straight));
  EXPECT_EQ(after.processes()[0]->OtherNames(), straight.processes()[0]->OtherNames());
  EXPECT_GT(after.processes()[0]->OtherNames(), 0u);
}

TEST(ProcessNames, StepsAreFoundThoughEachHasANameOfItsOwn) {
  ProcessModel model(MakeHello(0), {});
  uint32_t id = 10;
  uint64_t sequence = 1;
  for (uint32_t defined = 0; defined < ProcessNames::kMaxTexts; defined += 16384) {
    BatchBuilder b(sequence++);
    for (uint32_t i = 0; i < 16384; ++i, ++id) b.String(id, absl::StrCat("text ", id));
    ASSERT_TRUE(model.Apply(b.batch()).ok());
  }
  constexpr uint64_t kSteps = 50;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const uint64_t at_ns = kStart + step * 10 * kMs;
    BatchBuilder b(sequence++, at_ns);
    if (step == 0) b.String(1, "gemm").Site(1, 1).Thread(1, true);
    b.String(id, absl::StrCat("step ", step)).Range(step + 1, 0, id, 1, at_ns, at_ns + 9 * kMs);
    ++id;
    for (uint64_t i = 0; i < 4; ++i) {
      const uint64_t correlation = step * 4 + i + 1;
      b.Launch(1, at_ns + i * kMs, correlation, step + 1)
          .Kernel(at_ns + i * kMs + 1000, at_ns + i * kMs + kMs / 2, 1, correlation);
    }
    ASSERT_TRUE(model.Apply(b.batch()).ok());
  }
  model.Finish();
  EXPECT_GT(model.OtherNames(), 0u);
  EXPECT_GE(model.steps().count() + model.steps().warmup_count(), kSteps - 2);
  ASSERT_EQ(model.ranges().root().children.size(), 1u) << "one phase";
  EXPECT_EQ(model.ranges().root().children.begin()->second->host_ns.count(), kSteps);
}

}  // namespace
}  // namespace gpuprobe::model
