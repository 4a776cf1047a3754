// What one host may have at a hub: jobs and disk.
#include "collector/recording/hub_jobs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "collector/hub/protocol.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::recording {
namespace {

HubJobs::Options OptionsOf(const testing::TempDir& folder) {
  HubJobs::Options options;
  options.out = folder.path();
  options.host = "hub";
  options.most_bytes_of_host = 1 << 20;
  options.least_free_bytes = 0;
  return options;
}

struct AtHub {
  explicit AtHub(const HubJobs::Options& options) : jobs(options, [](const std::string&) {}) {
    EXPECT_TRUE(jobs.Resume().ok());
  }
  hub::Taken Post(const std::string& job, const std::string& from, size_t bytes = 0) {
    v1::HubPost post;
    post.set_job(job);
    post.set_host(from);
    post.set_instance(std::hash<std::string>()(job + from));
    post.set_sequence(++sequence);
    v1::FilePart& part = *post.add_parts();
    part.set_name("rank-0.gpr");
    part.set_offset(written[job + from]);
    part.set_data(std::string(bytes, 'x'));
    written[job + from] += bytes;
    return jobs.Take(post, from);
  }
  HubJobs jobs;
  uint64_t sequence = 0;
  std::map<std::string, uint64_t> written;
};

TEST(HubJobs, AHostHasSoManyJobsAtATimeAndJoinsThoseOfOthers) {
  const testing::TempDir folder;
  HubJobs::Options options = OptionsOf(folder);
  options.most_jobs_of_host = 2;
  AtHub hub(options);
  EXPECT_EQ(hub.Post("first", "10.0.0.1").status, hub::kOk);
  EXPECT_EQ(hub.Post("second", "10.0.0.1").status, hub::kOk);
  const hub::Taken refused = hub.Post("third", "10.0.0.1");
  EXPECT_EQ(refused.status, hub::kTooMany);
  EXPECT_GT(refused.again.count(), 0);
  EXPECT_EQ(refused.answer.refused(), "10.0.0.1 has 2 jobs at a time already (--host-jobs)");
  EXPECT_EQ(hub.Post("third", "10.0.0.2").status, hub::kOk);
  EXPECT_EQ(hub.Post("third", "10.0.0.1").status, hub::kOk) << "another host's";
}

TEST(HubJobs, AHostHasSoMuchOfTheDiskAlsoAfterANewBeginning) {
  const testing::TempDir folder;
  HubJobs::Options options = OptionsOf(folder);
  options.most_bytes_of_address = 100'000;
  {
    AtHub hub(options);
    EXPECT_EQ(hub.Post("first", "10.0.0.1", 60'000).status, hub::kOk);
    const hub::Taken refused = hub.Post("second", "10.0.0.1", 60'000);
    EXPECT_EQ(refused.status, hub::kInsufficientRoom);
    EXPECT_EQ(refused.answer.refused(), "10.0.0.1 has 97.7 KiB at the hub (--host-total); remove runs there");
    EXPECT_EQ(hub.Post("second", "10.0.0.2", 60'000).status, hub::kOk);
  }
  {
    AtHub hub(options);
    EXPECT_EQ(hub.Post("third", "10.0.0.1", 60'000).status, hub::kInsufficientRoom);
  }
  for (const auto& run : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::remove_all(run.path());
  AtHub hub(options);
  EXPECT_EQ(hub.Post("third", "10.0.0.1", 60'000).status, hub::kOk) << "what was removed is free again";
}

TEST(HubJobs, NothingIsTakenBeforeTheDiskIsFull) {
  const testing::TempDir folder;
  HubJobs::Options options = OptionsOf(folder);
  options.least_free_bytes = uint64_t{1} << 60;
  AtHub hub(options);
  EXPECT_EQ(hub.Post("first", "10.0.0.1", 1).status, hub::kInsufficientRoom);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace gpuprobe::recording
