// What a hub makes of posts, and that what a host records arrives whole whatever happens on the way.
#include "collector/hub/hub.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collector/http/connections.h"
#include "collector/http/service.h"
#include "collector/hub/capture_board.h"
#include "collector/hub/mirror.h"
#include "collector/hub/protocol.h"
#include "tests/collector/testing/temp_dir.h"

namespace gpuprobe::hub {
namespace {

using std::chrono::milliseconds;

constexpr char kToken[] = "a-secret-of-these-tests";
constexpr uint64_t kMost = 10'000;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void Append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

std::shared_ptr<const http::Encryption> MadeEncryption() {
  // OpenSSL writes to sockets whose other end has gone.
  std::signal(SIGPIPE, SIG_IGN);
  auto made = http::Encryption::Make();
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// A hub that listens.
struct Served {
  explicit Served(uint16_t port = 0, uint64_t most_bytes = kMost)
      : hub({.job = "job", .host = "n1", .most_bytes_of_host = most_bytes}),
        endpoint(hub, Secret(kToken), ListenOn(port), MadeEncryption()) {}

  static http::Listener ListenOn(uint16_t port) {
    absl::StatusOr<http::Listener> listener = http::Listener::Open({.host = "127.0.0.1", .port = port});
    EXPECT_TRUE(listener.ok()) << listener.status();
    return *std::move(listener);
  }
  uint16_t Start(const std::string& directory) {
    hub.SetDirectory(directory, "n1");
    endpoint.Start();
    return endpoint.address().port;
  }

  Hub hub;
  Endpoint endpoint;
};

struct Posts {
  Posts() { hub.SetDirectory(folder.path(), "n1"); }

  v1::HubAnswer Post(const std::string& name, uint64_t offset, const std::string& data, bool whole = false) {
    v1::HubPost post = Empty();
    v1::FilePart& part = *post.add_parts();
    part.set_name(name);
    part.set_offset(offset);
    part.set_data(data);
    part.set_whole(whole);
    return hub.Take(post, {"10.0.0.2"}).answer;
  }
  v1::HubPost Empty() {
    v1::HubPost post;
    post.set_job("job");
    post.set_host("n2");
    post.set_instance(2);
    post.set_sequence(++sequence);
    return post;
  }

  testing::TempDir folder;
  Hub hub{{.job = "job", .host = "n1", .most_bytes_of_host = kMost}};
  uint64_t sequence = 0;
};

TEST(Hub, WritesWhatIsBehindWhatItHas) {
  Posts posts;
  const std::string log = posts.folder.File("n2/rank-2.gpr");
  const v1::HubAnswer first = posts.Post("rank-2.gpr", 0, "abc");
  EXPECT_EQ(first.host(), "n1");
  ASSERT_EQ(first.have_size(), 1);
  EXPECT_EQ(first.have(0).bytes(), 3U);
  posts.Post("rank-2.gpr", 1, "bcdef");
  EXPECT_EQ(Read(log), "abcdef") << "an overlap";
  posts.Post("rank-2.gpr", 0, "abc");
  EXPECT_EQ(Read(log), "abcdef") << "what it has";
  EXPECT_EQ(posts.Post("rank-2.gpr", 7, "h").have(0).bytes(), 6U) << "a gap";
  posts.Post("live.json", 0, "old and long", true);
  posts.Post("live.json", 0, "new", true);
  EXPECT_EQ(Read(posts.folder.File("n2/live.json")), "new");
}

TEST(Hub, AppliesAPostOnce) {
  Posts posts;
  posts.Post("rank-2.gpr", 0, "abc");
  posts.Post("live.json", 0, "first", true);
  v1::HubPost again = posts.Empty();
  again.set_sequence(1);
  v1::FilePart& part = *again.add_parts();
  part.set_name("live.json");
  part.set_whole(true);
  part.set_data("of before");
  posts.hub.Take(again, {"10.0.0.2"});
  EXPECT_EQ(Read(posts.folder.File("n2/live.json")), "first");
}

TEST(Hub, ForgetsWhatTheHostHasDroppedAndThatItRecords) {
  Posts posts;
  for (const char* name : {"rank-2.gpr", "rank-2.0002.gpr", "totals-0002.gpt"}) posts.Post(name, 0, "abc");
  posts.Post("live.json", 0, "{}", true);
  v1::HubPost post = posts.Empty();
  for (const char* name : {"rank-2.0002.gpr", "totals-0002.gpt", "live.json"}) post.add_names(name);
  EXPECT_EQ(posts.hub.Take(post, {"10.0.0.2"}).answer.have_size(), 3);
  EXPECT_FALSE(std::filesystem::exists(posts.folder.File("n2/rank-2.gpr")));
  v1::HubPost last = posts.Empty();
  for (const char* name : {"rank-2.0002.gpr", "totals-0002.gpt"}) last.add_names(name);
  EXPECT_EQ(posts.hub.Take(last, {"10.0.0.2"}).answer.have_size(), 3)
      << "its collector has finished, and may have more to send";
  v1::HubPost end = posts.Empty();
  end.set_ended(true);
  EXPECT_EQ(posts.hub.Take(end, {"10.0.0.2"}).answer.have_size(), 2);
  EXPECT_FALSE(std::filesystem::exists(posts.folder.File("n2/live.json")));
  EXPECT_EQ(Read(posts.folder.File("n2/rank-2.0002.gpr")), "abc") << "all else stays";
}

TEST(Hub, RefusesWithAReason) {
  Posts posts;
  for (const char* name :
       {"../rank-0.gpr", "/tmp/rank-0.gpr", ".gpr", "a/b.gpr", "report.html", "rank-0.gpr.tmp", ""}) {
    EXPECT_EQ(posts.Post(name, 0, "x").refused(), "a file's name is none of a run directory") << name;
  }
  EXPECT_EQ(posts.Post("rank-2.gpr", 0, std::string(kMost, 'x')).refused(), "");
  EXPECT_EQ(posts.Post("rank-2.gpr", kMost, "x").refused(), "a host may have 0 MiB here");
  v1::HubPost other = posts.Empty();
  other.set_job("another");
  EXPECT_EQ(posts.hub.Take(other, {"10.0.0.2"}).answer.refused(), "this is the hub of another job");
  Hub early({.job = "job", .host = "n1"});
  EXPECT_EQ(early.Take(posts.Empty(), {"10.0.0.2"}).answer.refused(),
            "nothing is recorded on the hub's host yet");
}

TEST(Hub, GivesEachCollectorAFolderOfItsOwn) {
  Posts posts;
  posts.Post("rank-2.gpr", 0, "abc");
  for (const auto& [instance, host] :
       {std::pair(3, "n2"), std::pair(4, "n1"), std::pair(5, "a b/../c"), std::pair(6, "")}) {
    v1::HubPost post = posts.Empty();
    post.set_instance(static_cast<uint64_t>(instance));
    post.set_host(host);
    EXPECT_EQ(posts.hub.Take(post, {"10.0.0.2"}).answer.refused(), "");
  }
  EXPECT_EQ(posts.hub.folders(), (std::vector<std::string>{"n2", "n2-2", "n1-2", "a_b_.._c", "host-"}));
  // One that records into the directory itself.
  std::filesystem::create_directory(posts.folder.File("n3"));
  Append(posts.folder.File("n3/instance.txt"), "0000000000000007\n");
  v1::HubPost shared = posts.Empty();
  shared.set_instance(7);
  shared.set_host("n3");
  EXPECT_TRUE(posts.hub.Take(shared, {"10.0.0.2"}).answer.shared());
}

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// One connection, both ways, until one side ends it.
void PassOn(int listener, uint16_t port) {
  pollfd waits{.fd = listener, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&waits, 1, 10'000), 1);
  const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const int server = ConnectTo(port);
  pollfd ends[] = {{.fd = client, .events = POLLIN, .revents = 0},
                   {.fd = server, .events = POLLIN, .revents = 0}};
  for (bool open = true; open && poll(ends, 2, 10'000) > 0;) {
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)}) {
      if (ends[from].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = read(ends[from].fd, buffer, sizeof(buffer));
      open &= n > 0 && write(ends[to].fd, buffer, static_cast<size_t>(n)) == n;
    }
  }
  close(client);
  close(server);
}

struct Host {
  explicit Host(uint16_t port, const char* token = kToken)
      : mirror({.host = "127.0.0.1", .first_port = port, .ports = 1, .job = "job"}, Secret(token), "n2") {}

  testing::TempDir folder;
  Mirror mirror;
};

void AwaitThat(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(holds());
}

TEST(Mirror, SendsAllOfALargeFileAndWhatComesLater) {
  testing::TempDir folder;
  Served served(0, uint64_t{1} << 30);
  Host host(served.Start(folder.path()));
  std::string large(size_t{11} << 20, '\0');  // more than a post
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 2654435761U >> 11U);
  Append(host.folder.File("rank-2.gpr"), large);
  Append(host.folder.File("live.json"), "{}");
  Append(host.folder.File("report.json"), "{}");
  host.mirror.Begin(host.folder.path(), host.folder.path());
  AwaitThat([&] { return std::filesystem::exists(folder.File("n2/live.json")); });
  Append(host.folder.File("rank-2.gpr"), "the end");
  const Mirror::State end = host.mirror.End(milliseconds(10'000));
  EXPECT_TRUE(end.all_sent) << end.why;
  EXPECT_EQ(end.hub_host, "n1");
  EXPECT_EQ(Read(folder.File("n2/rank-2.gpr")), large + "the end");
  EXPECT_FALSE(std::filesystem::exists(folder.File("n2/report.json")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("n2/live.json")));
}

TEST(Mirror, BringsWhatProcessesSayAndWhatTheHubOrders) {
  for (const bool is_shared : {false, true}) {
    testing::TempDir folder;
    Served served;
    const uint16_t port = served.Start(folder.path());
    Host host(port);
    // A host that records into the hub's own directory posts on, without files.
    const std::string records = is_shared ? folder.File("n2") : host.folder.path();
    std::filesystem::create_directories(records);
    host.mirror.Begin(records, records);
    v1::CapturedProcess process;
    process.set_number(3);
    process.set_rank(8);
    process.set_connected(true);
    host.mirror.SetProcesses({process});
    CaptureBoard& board = served.hub.captures();
    AwaitThat([&] { return !board.Hosts().empty() && !board.Hosts().front().processes.empty(); });
    ASSERT_EQ(board.Hosts().front().processes.front().rank(), 8);
    EXPECT_EQ(board.Hosts().front().name, "n2");
    const Mirror::Phase phase = is_shared ? Mirror::Phase::kShared : Mirror::Phase::kSending;
    AwaitThat([&] { return host.mirror.state().phase == phase; });
    v1::Capture order;
    order.set_id(41);
    board.SetCapturing(true);
    board.Order(board.Hosts().front().instance, 3, order);
    std::vector<v1::CaptureOrder> orders;
    AwaitThat([&] {
      if (orders.empty()) orders = host.mirror.TakeOrders();
      return !orders.empty();
    });
    ASSERT_EQ(orders.size(), 1U);
    EXPECT_EQ(orders.front().number(), 3U);
    EXPECT_EQ(orders.front().capture().id(), 41U);
    EXPECT_EQ(host.mirror.state().directory, folder.path());
    EXPECT_TRUE(host.mirror.End(milliseconds(10'000)).all_sent);
    EXPECT_FALSE(board.Hosts().front().processes.front().connected());
  }
}

TEST(Mirror, GoesOnWithAHubThatBeganAgain) {
  testing::TempDir folder;
  auto hub = std::make_unique<Served>();
  const uint16_t port = hub->Start(folder.path());
  Host host(port);
  Append(host.folder.File("rank-2.gpr"), "before ");
  host.mirror.Begin(host.folder.path(), host.folder.path());
  AwaitThat([&] { return Read(folder.File("n2/rank-2.gpr")) == "before "; });
  hub.reset();
  Append(host.folder.File("rank-2.gpr"), "meanwhile ");
  AwaitThat([&] { return host.mirror.state().phase == Mirror::Phase::kSearching; });
  hub = std::make_unique<Served>(port);
  hub->Start(folder.path());
  AwaitThat([&] { return Read(folder.File("n2/rank-2.gpr")) == "before meanwhile "; });
  Append(host.folder.File("rank-2.gpr"), "after");
  EXPECT_TRUE(host.mirror.End(milliseconds(10'000)).all_sent);
  EXPECT_EQ(Read(folder.File("n2/rank-2.gpr")), "before meanwhile after");
}

TEST(Mirror, SendsNothingToWhoDoesNotProveThatItKnowsTheSecret) {
  testing::TempDir folder;
  auto hub = std::make_unique<Served>();
  Host host(hub->Start(folder.path()), "another-secret-of-these-tests");
  Append(host.folder.File("rank-2.gpr"), "private");
  host.mirror.Begin(host.folder.path(), host.folder.path());
  AwaitThat([&] { return !host.mirror.state().why.empty(); });
  EXPECT_THAT(hub->endpoint.numbers().refused, ::testing::Each(0U)) << "it did not even try";
  hub.reset();
  const Mirror::State end = host.mirror.End(milliseconds(0));
  EXPECT_FALSE(end.all_sent);
  EXPECT_NE(end.why.find("has another token than this host"), std::string::npos) << end.why;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Mirror, KnowsAHubOfAnotherJob) {
  Served hub;
  hub.endpoint.Start();
  const Meeting meeting{
      .host = "127.0.0.1", .first_port = hub.endpoint.address().port, .ports = 1, .job = "another"};
  const absl::StatusOr<FoundHub> found = FindHub(meeting, Secret(kToken));
  EXPECT_NE(found.status().message().find("is the hub of another job"), std::string::npos) << found.status();
}

TEST(Mirror, IsNotFooledByAProofThatIsPassedOn) {
  Served hub;
  hub.endpoint.Start();
  absl::StatusOr<http::Listener> before = http::Listener::Open({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(before.ok());
  const uint16_t port = before->address().port;
  std::thread relay([&] { PassOn(before->fd(), hub.endpoint.address().port); });
  const absl::StatusOr<FoundHub> found =
      FindHub({.host = "127.0.0.1", .first_port = port, .ports = 1, .job = "job"}, Secret(kToken));
  relay.join();
  EXPECT_NE(found.status().message().find("has another token than this host"), std::string::npos)
      << found.status();
}

// Proves that it is the hub, and does not answer a post before it may.
class HeldUp : public http::Service {
 public:
  HeldUp(uint16_t port, std::string fingerprint) : port_(port), fingerprint_(std::move(fingerprint)) {}
  size_t MostBodyBytes(const httplib::Request&, http::Connection&) override { return kMostPostBytes; }
  void Answer(const httplib::Request& request, httplib::Response& response, http::Connection&) override {
    if (request.method == "GET") {
      response.status = kOk;
      response.set_header(kSignatureHeader,
                          Secret(kToken).Sign(kProof, ProofText(request.get_param_value("nonce"), "job",
                                                                port_, fingerprint_)));
      return response.set_content("{}", http::kJson);
    }
    posted = true;
    for (int i = 0; i < 3000 && !released; ++i) std::this_thread::sleep_for(milliseconds(1));
  }
  void NoteRefused() override {}

  std::atomic<bool> posted = false;
  std::atomic<bool> released = false;

 private:
  uint16_t port_;
  std::string fingerprint_;
};

TEST(Mirror, DoesNotWaitForAPostThatIsHeldUp) {
  absl::StatusOr<http::Listener> listener = http::Listener::Open({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  const uint16_t port = listener->address().port;
  const std::shared_ptr<const http::Encryption> encryption = MadeEncryption();
  HeldUp service(port, encryption->fingerprint());
  http::Connections connections(*std::move(listener), encryption);
  connections.Start(service);
  Host host(port);
  Append(host.folder.File("rank-2.gpr"), "records");
  host.mirror.Begin(host.folder.path(), host.folder.path());
  AwaitThat([&] { return service.posted.load(); });
  const Mirror::State end = host.mirror.End(milliseconds(0));
  EXPECT_FALSE(service.released) << "the post would have been answered later";
  EXPECT_FALSE(end.all_sent);
  EXPECT_NE(end.why.find("does not answer"), std::string::npos) << end.why;
  service.released = true;
}

// Has the secret, and a certificate that is not the one whose fingerprint it signs: as somebody does who
// stands between, ends the encryption, and passes everything on.
TEST(Mirror, IsNotFooledByWhoStandsBetween) {
  absl::StatusOr<http::Listener> listener = http::Listener::Open({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  const uint16_t port = listener->address().port;
  HeldUp service(port, MadeEncryption()->fingerprint());
  http::Connections connections(*std::move(listener), MadeEncryption());
  connections.Start(service);
  const absl::StatusOr<FoundHub> found =
      FindHub({.host = "127.0.0.1", .first_port = port, .ports = 1, .job = "job"}, Secret(kToken));
  EXPECT_NE(found.status().message().find("has another token than this host"), std::string::npos)
      << found.status();
}

// Between two posts, somebody takes the place of the hub at its address.
TEST(Mirror, PostsToTheCertificateThatWasProvedOnly) {
  testing::TempDir folder;
  auto hub = std::make_unique<Served>();
  const uint16_t port = hub->Start(folder.path());
  Host host(port);
  Append(host.folder.File("rank-2.gpr"), "records");
  host.mirror.Begin(host.folder.path(), host.folder.path());
  AwaitThat([&] { return Read(folder.File("n2/rank-2.gpr")) == "records"; });
  hub.reset();
  absl::StatusOr<http::Listener> listener = http::Listener::Open({.host = "127.0.0.1", .port = port});
  ASSERT_TRUE(listener.ok());
  HeldUp service(port, MadeEncryption()->fingerprint());
  http::Connections connections(*std::move(listener), MadeEncryption());
  connections.Start(service);
  Append(host.folder.File("rank-2.gpr"), " that are secret");
  AwaitThat([&] { return host.mirror.state().phase == Mirror::Phase::kSearching; });
  host.mirror.End(milliseconds(300));
  EXPECT_FALSE(service.posted);
}

TEST(Secret, SignsEachUseApart) {
  const Secret secret(kToken);
  const std::string signature = secret.Sign("post", "text");
  EXPECT_TRUE(secret.HasSigned("post", "text", signature));
  EXPECT_FALSE(secret.HasSigned("answer", "text", signature));
  EXPECT_FALSE(secret.HasSigned("post", "text ", signature));
  EXPECT_FALSE(secret.HasSigned("post", "text", ""));
  EXPECT_FALSE(Secret("another-secret-of-tests").HasSigned("post", "text", signature));
  // FIPS 180-2's "abc".
  EXPECT_EQ(DigestOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace gpuprobe::hub
