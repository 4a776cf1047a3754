#include "collector/hub/users.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::hub {
namespace {

constexpr char kAlices[] = "the-hub-token-of-alice";
constexpr char kReads[] = "the-reading-token-of-alice";
constexpr char kBobs[] = "the-hub-token-of-bob";

class UsersTest : public ::testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0600) const {
    const std::string next = absl::StrCat(path_, ".new");
    std::ofstream(next) << text;
    ASSERT_EQ(chmod(next.c_str(), mode), 0);
    ASSERT_EQ(rename(next.c_str(), path_.c_str()), 0);
  }
  // What is wrong with the text, without the file's path.
  std::string Refusal(const std::string& text, mode_t mode = 0600, const std::string& operators = "") const {
    Write(text, mode);
    const auto read = Users::Read(path_, operators);
    if (read.ok()) return "";
    std::string said(read.status().message());
    EXPECT_EQ(said.find('\n'), std::string::npos) << "one line";
    EXPECT_EQ(said.find("-token-of-"), std::string::npos) << "it tells a token: " << said;
    while (said.find(path_) != std::string::npos) said.replace(said.find(path_), path_.size(), "FILE");
    return said;
  }

  const testing::TempDir folder_;
  const std::string path_ = absl::StrCat(folder_.path(), "/users");
};

TEST_F(UsersTest, AUserIsFoundByTheNameOfHisSecret) {
  Write(absl::StrCat("# comment\n\n  alice\t", kAlices, "  ", kReads, "  # more\nbob ", kBobs, "\r"));
  const auto users = Users::Read(path_);
  ASSERT_TRUE(users.ok()) << users.status();
  const User alice = (*users)->Find(Secret(kAlices).Name());
  EXPECT_EQ(alice.name, "alice");
  EXPECT_EQ(alice.read_token, kReads);
  EXPECT_TRUE(alice.secret.HasSigned("post", "text", Secret(kAlices).Sign("post", "text")));
  const User bob = (*users)->Find(Secret(kBobs).Name());
  EXPECT_EQ(bob.name, "bob");
  EXPECT_EQ(bob.read_token, "");
  EXPECT_EQ((*users)->all().size(), 2u);
}

TEST_F(UsersTest, NobodyHasASecretThatNoHostHas) {
  Write(absl::StrCat("alice ", kAlices, " ", kReads, "\n"));
  const auto users = Users::Read(path_);
  ASSERT_TRUE(users.ok()) << users.status();
  for (const std::string& other :
       {std::string(), std::string("alice"), Secret(kBobs).Name(), Secret(kReads).Name()}) {
    const User nobody = (*users)->Find(other);
    EXPECT_EQ(nobody.name, "");
    for (const char* const key : {"", kAlices, kReads, kBobs})
      EXPECT_FALSE(nobody.secret.HasSigned("post", "text", Secret(key).Sign("post", "text"))) << key;
  }
}

TEST_F(UsersTest, WhatIsWrongIsSaidWithItsLineAndWhatMendsIt) {
  const std::string alice = absl::StrCat("alice ", kAlices, " ", kReads, "\n");
  constexpr char kMake[] = "to make one: openssl rand -hex 32";
  constexpr char kName[] =
      "1: a user's name has at most 32 of a-z 0-9 _ . -, begins with a letter or _, and is not "
      "clickhouse-spool";
  constexpr char kLength[] = "the token must have 16 to 512 characters; ";
  constexpr char kForm[] = "a line is NAME HUB-TOKEN [READ-TOKEN], and this one has ";
  const auto named = [](const std::string& name) { return absl::StrCat(name, " ", kAlices, "\n"); };
  for (const char* const name :
       {"Alice", "1alice", ".alice", "al/ice", "..", "clickhouse-spool", "alic\xc3\xa9"})
    EXPECT_EQ(Refusal(named(name)), absl::StrCat("FILE:", kName)) << name;
  EXPECT_EQ(Refusal(named(std::string(33, 'a'))), absl::StrCat("FILE:", kName));
  EXPECT_EQ(Refusal(named(std::string(32, 'a'))), "");
  EXPECT_EQ(Refusal(named("_a.b-c_9")), "");
  EXPECT_EQ(Refusal("alice\n"), absl::StrCat("FILE:1: ", kForm, "1 word"));
  EXPECT_EQ(Refusal(absl::StrCat("#\nalice ", kAlices, " ", kReads, " x\n")),
            absl::StrCat("FILE:2: ", kForm, "4 words"));
  EXPECT_EQ(Refusal("alice 123456789012345\n"), absl::StrCat("FILE:1: HUB-TOKEN: ", kLength, kMake));
  EXPECT_EQ(Refusal(absl::StrCat("alice ", std::string(513, 'x'))),
            absl::StrCat("FILE:1: HUB-TOKEN: ", kLength, kMake));
  EXPECT_EQ(Refusal(absl::StrCat("alice ", kAlices, " short")),
            absl::StrCat("FILE:1: READ-TOKEN: ", kLength, kMake));
  EXPECT_EQ(Refusal("alice a-token,with-a-comma"),
            "FILE:1: HUB-TOKEN: the token may have letters, digits and - . _ ~ + / only");
  EXPECT_EQ(Refusal(absl::StrCat(alice, "alice ", kBobs)),
            "FILE:2: alice is in line 1 already; each user has one line");
  for (const char* const token : {kAlices, kReads})
    EXPECT_EQ(Refusal(absl::StrCat(alice, "bob ", token)),
              absl::StrCat("FILE:2: HUB-TOKEN: this token is in line 1 already; ", kMake));
  EXPECT_EQ(Refusal(absl::StrCat("alice ", kAlices, " ", kAlices)),
            absl::StrCat("FILE:1: READ-TOKEN: this token is in line 1 already; ", kMake));
  EXPECT_EQ(Refusal(alice, 0600, kReads),
            "FILE:1: READ-TOKEN: this token is the operator's (--http-token); give another one");
  EXPECT_EQ(Refusal("# nobody\n"), "FILE names nobody: add lines NAME HUB-TOKEN [READ-TOKEN]");
  EXPECT_EQ(Refusal(std::string((1 << 20) + 1, '\n')), "FILE is longer than 1024 KiB");
  std::string many;
  for (size_t i = 0; i <= Users::kMost; ++i) absl::StrAppend(&many, "user", i, " ", kBobs, i, "\n");
  EXPECT_EQ(Refusal(many), "FILE:1001: there are more than 1000 users");
}

TEST_F(UsersTest, AFileThatOthersCanReadIsRefused) {
  const std::string alice = absl::StrCat("alice ", kAlices, "\n");
  for (const mode_t mode : {0640, 0604, 0620, 0666})
    EXPECT_EQ(Refusal(alice, mode), "FILE is open to others, so its tokens are no secrets: chmod 600 FILE");
  EXPECT_EQ(Refusal(alice, 0400), "");
  EXPECT_EQ(Users::Read(folder_.path()).status().message(), absl::StrCat(folder_.path(), " is not a file"));
  EXPECT_EQ(Users::Read(absl::StrCat(path_, "x")).status().message(),
            absl::StrCat(path_, "x: No such file or directory"));
}

TEST_F(UsersTest, ItIsReadAgainWhenItChanges) {
  Write(absl::StrCat("alice ", kAlices, "\n"));
  const auto users = Users::Read(path_);
  ASSERT_TRUE(users.ok()) << users.status();
  const auto has = [&](const char* token) { return !(*users)->Find(Secret(token).Name()).name.empty(); };
  const auto changed = [&] {
    const absl::StatusOr<bool> read = (*users)->ReadAgain();
    return read.ok() ? (*read ? "yes" : "no") : "wrong";
  };
  EXPECT_STREQ(changed(), "no");
  Write(absl::StrCat("bob ", kBobs, "\n"));
  EXPECT_STREQ(changed(), "yes");
  EXPECT_TRUE(has(kBobs) && !has(kAlices));
  Write("bob\n");
  EXPECT_STREQ(changed(), "wrong");
  EXPECT_STREQ(changed(), "no") << "it is said once";
  EXPECT_TRUE(has(kBobs)) << "what was before holds";
  remove(path_.c_str());
  EXPECT_STREQ(changed(), "wrong");
  EXPECT_STREQ(changed(), "no");
  Write(absl::StrCat("alice ", kAlices, "\n"), 0644);
  EXPECT_STREQ(changed(), "wrong");
  EXPECT_TRUE(has(kBobs));
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  EXPECT_STREQ(changed(), "yes") << "who can read it is a change, too";
  EXPECT_TRUE(has(kAlices) && !has(kBobs));
}

}  // namespace
}  // namespace gpuprobe::hub
