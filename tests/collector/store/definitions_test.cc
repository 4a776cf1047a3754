#include "collector/store/definitions.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/model/process/process_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::store {
namespace {

using gpuprobe::testing::BatchBuilder;
using gpuprobe::testing::kStart;
using gpuprobe::testing::MakeHello;

TEST(Definitions, RestatesTheLatestNamesAndOlderOnesThatAreReferredTo) {
  constexpr uint32_t kNames = 400'000;
  Definitions definitions;
  BatchBuilder first;
  v1::Batch batch = first.String(1, "tensor parallel").String(2, "epoch").String(3, "forgotten").batch();
  v1::Communicator* comm = batch.add_communicators();
  comm->set_id(1);
  comm->set_name(1);
  batch.mutable_host_state()->add_open_ranges(2);
  definitions.Learn(batch);
  uint32_t id = 4;
  for (uint64_t sequence = 2; id < kNames; ++sequence) {
    BatchBuilder b(sequence);
    for (int i = 0; i < 8000; ++i, ++id) b.String(id, absl::StrCat("kernel ", id)).Site(id, id);
    definitions.Learn(b.batch());
  }
  // A log that begins with them can be read alone.
  model::ProcessModel model(MakeHello(0), {});
  std::map<uint32_t, std::string> strings;
  size_t sites = 0;
  for (const std::string& bytes : definitions.Frames()) {
    v1::Frame frame;
    ASSERT_TRUE(frame.ParseFromString(bytes));
    for (const v1::StringDef& def : frame.batch().strings()) strings[def.id()] = def.value();
    sites += static_cast<size_t>(frame.batch().kernel_sites_size());
    ASSERT_TRUE(model.Apply(frame.batch()).ok());
  }
  EXPECT_EQ(strings.at(1), "tensor parallel");
  EXPECT_EQ(strings.at(2), "epoch");
  EXPECT_FALSE(strings.contains(3));
  EXPECT_EQ(sites, Definitions::kMaxKept);
  EXPECT_GE(strings.size(), Definitions::kMaxKept);
  EXPECT_LT(strings.size(), 2 * Definitions::kMaxKept);
  for (uint32_t latest = id - 65536; latest < id; ++latest)
    ASSERT_EQ(strings.at(latest), absl::StrCat("kernel ", latest));
  BatchBuilder b(1000);
  b.String(id, "kernel")
      .Site(id, id)
      .Kernel(kStart, kStart + 10, id - 65536)
      .Kernel(kStart + 20, kStart + 30, id);
  EXPECT_TRUE(model.Apply(b.batch()).ok());
  EXPECT_EQ(model.totals().kernels, 2u);
}

}  // namespace
}  // namespace gpuprobe::store
