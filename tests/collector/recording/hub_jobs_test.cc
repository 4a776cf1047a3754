// What one host may have at a hub: jobs and disk. Which jobs of another hub one goes on with.
#include "collector/recording/hub_jobs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/hub/protocol.h"
#include "collector/store/directory.h"
#include "collector/store/run_recording.h"
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
  hub::Taken Post(const std::string& job, const std::string& from, size_t bytes = 0,
                  const std::string& user = "") {
    v1::HubPost post;
    post.set_job(job);
    post.set_host(from);
    post.set_instance(std::hash<std::string>()(job + from));
    post.set_sequence(++sequence);
    v1::FilePart& part = *post.add_parts();
    part.set_name("rank-0.gpr");
    part.set_offset(written[user + "/" + job + from]);
    part.set_data(std::string(bytes, 'x'));
    written[user + "/" + job + from] += bytes;
    return jobs.Take(post, {.host = from, .user = user});
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

// Folders of the jobs that the hub has reported.
std::vector<std::string> Reported(const std::vector<std::string>& said) {
  std::vector<std::string> folders;
  for (const std::string& text : said) {
    if (text.find("gpuprobe: over: ") == 0) folders.push_back(text.substr(text.rfind('/') + 1));
  }
  return folders;
}

void LeaveJob(const testing::TempDir& folder, const std::string& name, const std::string& job, int attempt) {
  const std::filesystem::path run = std::filesystem::path(folder.path()) / name;
  std::filesystem::create_directories(run / "n1");
  std::ofstream(run / "job.txt") << job << "\n" << attempt << "\n";
  const absl::StatusOr<store::Directory> host = store::Directory::Make(run / "n1");
  ASSERT_TRUE(host.ok()) << host.status();
  store::RunRecording recording(*host, "1.0", 64 << 20, 1);
  v1::Frame hello;
  hello.mutable_hello()->set_protocol_major(1);
  hello.mutable_hello()->mutable_identity()->set_pid(7);
  hello.mutable_hello()->mutable_identity()->set_host("n1");
  ASSERT_TRUE(recording.Open(hello.hello(), hello.SerializeAsString(), 0).ok());
  ASSERT_TRUE(recording.Close().ok());
}

TEST(HubJobs, AttemptsThatAnotherHubLeftAreReportedInTheirOrder) {
  const testing::TempDir folder;
  LeaveJob(folder, "20261128T100000Z-a", "a job", 1);
  LeaveJob(folder, "20261128T110000Z-a", "a job", 2);
  LeaveJob(folder, "20261128T120000Z-a", "a job", 3);
  std::vector<std::string> said;
  HubJobs jobs(OptionsOf(folder), [&](const std::string& text) { said.push_back(text); });
  ASSERT_TRUE(jobs.Resume().ok());
  EXPECT_EQ(jobs.jobs(), 1) << "the latest, which may go on";
  jobs.Tick();
  jobs.Tick();
  EXPECT_EQ(Reported(said), (std::vector<std::string>{"20261128T100000Z-a\n", "20261128T110000Z-a\n"}));
  EXPECT_EQ(jobs.jobs(), 1);
  jobs.Tick();
  EXPECT_EQ(Reported(said).size(), 2) << "the latest is waited for";
  jobs.End();
}

TEST(HubJobs, JobsBeyondTheMostAtATimeWaitForAPlace) {
  const testing::TempDir folder;
  for (size_t i = 0; i < HubJobs::kMostJobs + 1; ++i)
    LeaveJob(folder, absl::StrFormat("20261128T%06d", i), absl::StrCat("job ", i), 1);
  AtHub hub(OptionsOf(folder));
  EXPECT_EQ(hub.jobs.jobs(), HubJobs::kMostJobs);
  const std::string last = absl::StrCat("job ", HubJobs::kMostJobs);
  EXPECT_EQ(hub.Post(last, "10.0.0.1", 1).status, hub::kTooMany);
  EXPECT_EQ(hub.jobs.jobs(), HubJobs::kMostJobs);
  const auto folders = std::distance(std::filesystem::directory_iterator(folder.path()),
                                     std::filesystem::directory_iterator());
  EXPECT_EQ(static_cast<size_t>(folders), HubJobs::kMostJobs + 1) << "it is no new attempt";
}

HubJobs::Options OptionsWithUsers(const testing::TempDir& folder) {
  HubJobs::Options options = OptionsOf(folder);
  options.has_users = true;
  return options;
}

std::vector<std::string> FoldersIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(folder, error)) names.push_back(each.path());
  return names;
}

TEST(HubJobs, UsersWhoCallTheirJobsTheSameDoNotMeet) {
  const testing::TempDir folder;
  AtHub hub(OptionsWithUsers(folder));
  for (const char* const user : {"alice", "bob"}) {
    EXPECT_EQ(hub.Post("a job", "n1", 1000, user).status, hub::kOk);
    EXPECT_EQ(hub.Post("a job", "n1", 500, user).status, hub::kOk) << "of the same instance";
    const std::vector<std::string> runs = FoldersIn(absl::StrCat(folder.path(), "/", user));
    ASSERT_EQ(runs.size(), 1u) << user;
    EXPECT_EQ(std::filesystem::file_size(runs[0] + "/n1/rank-0.gpr"), 1500);
    EXPECT_EQ(std::filesystem::status(std::filesystem::path(runs[0]).parent_path()).permissions(),
              std::filesystem::perms::owner_all);
  }
  EXPECT_EQ(hub.jobs.jobs(), 2u);
  hub.jobs.Tick();
  const auto moment = hub.jobs.MomentNow(HubJobs::RankSeries::kNone);
  EXPECT_EQ(hub.jobs.List()->jobs.size(), 2u);
  const auto of_users = hub.jobs.OfUsers(*moment);
  ASSERT_EQ(of_users.size(), 2u);
  for (const auto& [user, his] : of_users) {
    ASSERT_EQ(his.list->jobs.size(), 1u);
    const http::ListedJob& job = his.list->jobs[0];
    EXPECT_EQ(job.user, user);
    EXPECT_EQ(job.attempt, 1u);
    EXPECT_EQ(job.id.substr(0, user.size() + 1), user + "/");
    EXPECT_EQ(job.directory, absl::StrCat(folder.path(), "/", job.id));
    ASSERT_EQ(his.moment->jobs.size(), 1u);
    EXPECT_EQ(his.moment->jobs[0].user, user);
    EXPECT_TRUE(his.moment->of_user);
  }
  hub.jobs.End();
}

TEST(HubJobs, AUserHasSoManyJobsAndSoMuchOfTheDisk) {
  const testing::TempDir folder;
  HubJobs::Options options = OptionsWithUsers(folder);
  options.most_jobs_of_user = 2;
  options.most_bytes_of_user = 100'000;
  options.most_bytes_of_address = 80'000;
  {
    AtHub hub(options);
    EXPECT_EQ(hub.Post("first", "10.0.0.1", 60'000, "alice").status, hub::kOk);
    EXPECT_EQ(hub.Post("first", "10.0.0.2", 30'000, "alice").status, hub::kOk);
    const hub::Taken full = hub.Post("first", "10.0.0.3", 20'000, "alice");
    EXPECT_EQ(full.status, hub::kInsufficientRoom);
    EXPECT_EQ(full.answer.refused(), "alice has 97.7 KiB at the hub (--user-total); remove runs there");
    EXPECT_EQ(hub.Post("first", "10.0.0.1", 60'000, "bob").status, hub::kOk) << "of the same host";
    EXPECT_EQ(hub.Post("second", "10.0.0.2", 1, "alice").status, hub::kOk);
    const hub::Taken many = hub.Post("third", "10.0.0.3", 1, "alice");
    EXPECT_EQ(many.status, hub::kTooMany);
    EXPECT_EQ(many.answer.refused(), "alice has 2 jobs at a time already (--user-jobs)");
    EXPECT_EQ(hub.Post("third", "10.0.0.3", 1, "bob").status, hub::kOk);
  }
  AtHub hub(options);
  EXPECT_EQ(hub.jobs.jobs(), 4u) << "another hub goes on with them";
  EXPECT_EQ(hub.Post("first", "10.0.0.4", 20'000, "alice").status, hub::kInsufficientRoom);
  EXPECT_EQ(hub.Post("first", "10.0.0.4", 20'000, "bob").status, hub::kOk);
  EXPECT_EQ(FoldersIn(absl::StrCat(folder.path(), "/bob")).size(), 2u) << "it is no new attempt";
}

TEST(HubJobs, AHubWithoutUsersShowsNoneOfTheirJobs) {
  const testing::TempDir folder;
  {
    AtHub hub(OptionsWithUsers(folder));
    EXPECT_EQ(hub.Post("a job", "n1", 1000, "alice").status, hub::kOk);
  }
  LeaveJob(folder, "20261128T100000Z-a", "a job", 1);
  AtHub hub(OptionsOf(folder));
  EXPECT_EQ(hub.jobs.jobs(), 1u);
  hub.jobs.Tick();
  ASSERT_EQ(hub.jobs.List()->jobs.size(), 1u);
  EXPECT_EQ(hub.jobs.List()->jobs[0].id, "20261128T100000Z-a");
  hub.jobs.End();
}

}  // namespace
}  // namespace gpuprobe::recording
