// Who may read the page, and which files may hold its token.
#include "collector/http/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::http {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr uint16_t kPort = 9460;

Claims Host(std::string_view host) { return {.host = host, .authorization = "", .cookies = "", .token = ""}; }
Claims Token(std::string_view host, std::string_view token) {
  return {.host = host, .authorization = "", .cookies = "", .token = token};
}

Verdict JudgeAuthorization(const Access& access, const std::string& header) {
  return access.Judge({.host = "", .authorization = header, .cookies = "", .token = ""});
}
Verdict JudgeCookies(const Access& access, const std::string& header) {
  return access.Judge({.host = "", .authorization = "", .cookies = header, .token = ""});
}

TEST(Secret, IsTheSameOnlyIfEveryByteIs) {
  EXPECT_TRUE(SameSecret("secret", "secret"));
  EXPECT_FALSE(SameSecret("secres", "secret"));
  EXPECT_FALSE(SameSecret("secre", "secret"));
  EXPECT_FALSE(SameSecret("secretsecret", "secret"));
  EXPECT_FALSE(SameSecret("", "secret"));
  EXPECT_FALSE(SameSecret("", "")) << "nobody has a secret that is not there";
}

TEST(AccessOnLoopback, WelcomesWhoeverNamesThisHost) {
  const Access access("", /*loopback=*/true, kPort);
  EXPECT_FALSE(access.asks_for_token());
  EXPECT_EQ(access.Judge(Host("127.0.0.1:9460")), Verdict::kWelcome);
  EXPECT_EQ(access.Judge(Host("localhost")), Verdict::kWelcome);
  EXPECT_EQ(access.Judge(Host("evil.example:9460")), Verdict::kWrongHost);
  EXPECT_EQ(access.Judge(Host("")), Verdict::kWrongHost);
}

TEST(AccessWithToken, TakesItFromAHeaderACookieOrOnceFromTheAddress) {
  const Access access(kToken, /*loopback=*/false, kPort);
  EXPECT_EQ(access.Judge(Host("node7:9460")), Verdict::kNoToken);
  EXPECT_EQ(JudgeAuthorization(access, std::string("Bearer ") + kToken), Verdict::kWelcome);
  EXPECT_EQ(JudgeAuthorization(access, std::string("bearer  ") + kToken), Verdict::kWelcome);
  EXPECT_EQ(JudgeAuthorization(access, std::string("Basic ") + kToken), Verdict::kNoToken);
  EXPECT_EQ(JudgeAuthorization(access, kToken), Verdict::kNoToken);
  EXPECT_EQ(access.Judge(Token("", kToken)), Verdict::kWelcomeWithCookie);
  EXPECT_EQ(access.Judge(Token("", "0123456789abcdef0123456789abcdee")), Verdict::kNoToken);

  const std::string cookie = std::string("gpuprobe-9460=") + kToken;
  EXPECT_EQ(JudgeCookies(access, cookie), Verdict::kWelcome);
  EXPECT_EQ(JudgeCookies(access, "a=b; " + cookie + "; c=d"), Verdict::kWelcome);
  EXPECT_EQ(JudgeCookies(access, std::string("gpuprobe-9461=") + kToken), Verdict::kNoToken)
      << "the cookie of a collector on another port";
  EXPECT_EQ(JudgeCookies(access, "gpuprobe-9460="), Verdict::kNoToken);
  EXPECT_TRUE(access.Cookie().starts_with(cookie + ";"));
  EXPECT_NE(access.Cookie().find("HttpOnly"), std::string::npos);
  EXPECT_NE(access.Cookie().find("SameSite=Strict"), std::string::npos);
}

TEST(AccessWithToken, StillRefusesOtherNamesOnLoopback) {
  const Access access(kToken, /*loopback=*/true, kPort);
  EXPECT_EQ(access.Judge(Token("evil.example", kToken)), Verdict::kWrongHost);
}

TEST(Token, IsLongEnoughAndFitsIntoAHeader) {
  EXPECT_TRUE(CheckToken(kToken).ok());
  EXPECT_TRUE(CheckToken("aZ09-._~+/aZ09-._~+/").ok());
  EXPECT_FALSE(CheckToken("0123456789abcde").ok()) << "15 characters";
  EXPECT_TRUE(CheckToken("0123456789abcdef").ok()) << "16 characters";
  EXPECT_FALSE(CheckToken(std::string(513, 'a')).ok());
  for (const char* bad : {"0123456789abcdef ;", "0123456789abcdef\r\nSet-Cookie: a", "0123456789abcdef\""})
    EXPECT_FALSE(CheckToken(bad).ok()) << bad;
}

TEST(TokenFile, IsReadableByItsOwnerAlone) {
  const testing::TempDir folder;
  const std::string path = folder.path() + "/token";
  std::ofstream(path) << "  " << kToken << "  \nignored\n";
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const auto token = ReadToken(path);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(*token, kToken);
  for (const mode_t mode : {0640, 0604}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_FALSE(ReadToken(path).ok()) << mode;
  }
  EXPECT_FALSE(ReadToken(folder.path()).ok()) << "a folder";
  EXPECT_FALSE(ReadToken(path + "-none").ok());
}

}  // namespace
}  // namespace gpuprobe::http
