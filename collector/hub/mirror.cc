#include "collector/hub/mirror.h"

#include <fcntl.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/http/background.h"
#include "collector/http/encryption.h"
#include "collector/http/library.h"
#include "collector/hub/hub.h"
#include "collector/hub/protocol.h"
#include "collector/store/directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::hub {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{200};       // hosts begin at about the same time
constexpr milliseconds kLongestPause{10'000};  // while there is no hub
constexpr milliseconds kSearchAtEnd{2000};
constexpr milliseconds kConnectPatience{3000};
constexpr milliseconds kRefusalPatience{1000};
constexpr milliseconds kAnswerPatience{10'000};
// The live file is written every second, and says that the host records: half a minute without it is silence.
constexpr int64_t kLiveFileEveryNs = 5'000'000'000;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kNonceBytes = 16;
constexpr size_t kKeyBytes = 32;

// A client that talks to one certificate only: that of this fingerprint, or the first that it sees.
class PinnedClient {
 public:
  explicit PinnedClient(const FoundHub& hub) : fingerprint_(hub.fingerprint), client_(hub.url) {
    client_.set_connection_timeout(kConnectPatience);
    client_.set_read_timeout(kAnswerPatience);
    client_.set_write_timeout(kAnswerPatience);
    client_.set_keep_alive(true);
    client_.set_tcp_nodelay(true);
    // No authority knows it: its fingerprint is what counts.
    client_.enable_server_certificate_verification(false);
    SSL_CTX* const context = client_.ssl_context();
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(context, Check, this);
  }
  PinnedClient(const PinnedClient&) = delete;
  PinnedClient& operator=(const PinnedClient&) = delete;

  httplib::Client& client() { return client_; }
  // Of the server that has answered.
  const std::string& fingerprint() const { return fingerprint_; }

  static std::shared_ptr<httplib::Client> Make(const FoundHub& hub) {
    auto pinned = std::make_shared<PinnedClient>(hub);
    httplib::Client* const client = &pinned->client_;
    return {std::move(pinned), client};
  }

 private:
  static int Check(X509_STORE_CTX* seen, void* self) {
    std::string& known = static_cast<PinnedClient*>(self)->fingerprint_;
    const std::string fingerprint = http::FingerprintOf(X509_STORE_CTX_get0_cert(seen));
    if (known.empty()) known = fingerprint;
    return !fingerprint.empty() && known == fingerprint ? 1 : 0;
  }

  std::string fingerprint_;
  httplib::Client client_;
};

// Of a hub of several users.
std::string NoUser(const std::string& hub, const Secret& ours) {
  return absl::StrCat(
      hub,
      ours.munge() != nullptr ? " knows its users by tokens, this host by munge"
                              : absl::StrCat(" knows no user by the token in ", ours.origin()),
      ": ask whoever runs it for your token, and set ", Secret::kVariable, " to it on every host");
}

// Of two hosts that prove in different ways who they are.
std::string OtherWay(const std::string& hub, const Secret& ours) {
  return ours.munge() != nullptr
             ? absl::StrCat(hub, " knows its hosts by a token, this host by munge: set ", Secret::kVariable,
                            " to the same secret on both, or run munge there, too")
             : absl::StrCat(hub, " knows its hosts by munge, this host by the token in ", ours.origin(),
                            ": run munge here, too, or set ", Secret::kVariable,
                            " to the same secret on both");
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  (void)absl::SimpleHexAtoi(RandomHex(sizeof(number)), &number);
  return number;
}

}  // namespace

std::string Meeting::Text() const {
  return absl::StrCat(absl::StrContains(host, ":") ? absl::StrCat("[", host, "]") : host, ":", first_port);
}

absl::StatusOr<FoundHub> FindHub(const Meeting& meeting, const Secret& secret) {
  absl::Status why;
  for (uint16_t i = 0; i < meeting.ports; ++i) {
    Meeting at = meeting;
    at.first_port = static_cast<uint16_t>(meeting.first_port + i);
    FoundHub hub{.url = absl::StrCat("https://", at.Text()), .fingerprint = "", .secret = secret};
    httplib::Headers headers;
    if (secret.munge() != nullptr) {
      const std::string key = RandomHex(kKeyBytes);
      const absl::StatusOr<std::string> credential = secret.munge()->Seal(key);
      if (!credential.ok()) return credential.status();
      headers.emplace(kCredentialHeader, *credential);
      hub.secret = Secret(key, secret.origin());
    }
    headers.emplace(kKeyHeader, hub.secret.Name());
    PinnedClient pinned(hub);
    const std::string nonce = RandomHex(kNonceBytes);
    const auto asked = std::chrono::steady_clock::now();
    const httplib::Result result =
        pinned.client().Get(kPath, httplib::Params{{"job", meeting.job}, {"nonce", nonce}}, headers);
    if (!result) {
      why.Update(absl::UnavailableError(absl::StrCat(at.Text(), " does not answer")));
      // A port that is closed says so at once; of a host that is away, every port is.
      if (std::chrono::steady_clock::now() - asked > kRefusalPatience) break;
      continue;
    }
    if (result->status == kConflict) {
      why = absl::NotFoundError(absl::StrCat(at.Text(), " is the hub of another job"));
      continue;
    }
    hub.fingerprint = pinned.fingerprint();
    const bool proved =
        result->status == kOk &&
        hub.secret.HasSigned(kProof, ProofText(nonce, meeting.job, at.first_port, hub.fingerprint),
                             result->get_header_value(kSignatureHeader));
    if (proved) return hub;
    const std::string way = result->get_header_value(kWayHeader);
    if (way == Secret::kUserWay) {
      why = absl::PermissionDeniedError(NoUser(at.Text(), secret));
      continue;
    }
    if (way != secret.way() && (way == Secret::kMungeWay || way == Secret::kTokenWay)) {
      why = absl::PermissionDeniedError(OtherWay(at.Text(), secret));
      continue;
    }
    if (result->has_header(kMungeErrorHeader)) {
      why = absl::PermissionDeniedError(
          Munge::Explain(at.Text(), static_cast<int>(result->get_header_value<uint64_t>(kMungeErrorHeader))));
      continue;
    }
    why = result->status == kOk
              ? absl::PermissionDeniedError(
                    absl::StrCat(at.Text(), " has another token than this host: both need the same one in ",
                                 Secret::kVariable, " or ~/.config/gpuprobe/hub-token"))
              : absl::FailedPreconditionError(absl::StrCat(at.Text(), " is no hub"));
  }
  return why;
}

Mirror::Mirror(Meeting meeting, Secret secret, std::string host)
    : meeting_(std::move(meeting)),
      secret_(std::move(secret)),
      host_(std::move(host)),
      instance_(RandomNumber()),
      key_(secret_),
      again_(kEvery) {}

Mirror::~Mirror() { End(milliseconds(0)); }

void Mirror::Begin(const std::string& directory, const std::string& logs) {
  if (begun()) return;
  directory_ = directory;
  logs_ = logs;
  // By it the hub knows files that it can read itself.
  if (const absl::StatusOr<store::Directory> own = store::Directory::Make(directory); own.ok())
    own->WriteFile(kInstanceFile, absl::StrFormat("%016x\n", instance_)).IgnoreError();
  thread_ = std::thread([this] { Run(); });
}

Mirror::State Mirror::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Mirror::State Mirror::End(milliseconds patience) {
  if (!begun()) return state();
  {
    const std::lock_guard lock(mutex_);
    ended_at_ = Clock::now();
    end_ = ended_at_ + patience;
    // A post that the network holds up is not waited for.
    if (patience.count() == 0 && hub_ != nullptr) hub_->stop();
  }
  changed_.notify_all();
  thread_.join();
  return state();
}

void Mirror::SetHub(std::shared_ptr<httplib::Client> hub) {
  const std::lock_guard lock(mutex_);
  hub_ = std::move(hub);
}

void Mirror::Note(Phase phase, const std::string& why, bool all_sent) {
  const std::lock_guard lock(mutex_);
  state_ = {
      .phase = phase, .hub_host = hub_host_, .directory = hub_directory_, .why = why, .all_sent = all_sent};
}

void Mirror::Run() {
  http::RunInBackground();
  milliseconds pause = kFirstPause;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool ends = end_.has_value();
    lock.unlock();
    const bool well = Send(ends);
    lock.lock();
    if (ends && (well || shared_)) return;
    if (end_.has_value() && Clock::now() >= *end_) return;
    // Who is away when the job ends does not come back.
    if (ends && state_.phase == Phase::kSearching && Clock::now() >= ended_at_ + kSearchAtEnd) return;
    changed_.wait_for(lock, PauseAfter(well, ends, pause), [&] { return end_.has_value() && !ends; });
    pause = well ? kFirstPause : std::min(2 * pause, kLongestPause);
  }
}

milliseconds Mirror::PauseAfter(bool well, bool ends, milliseconds pause) const {
  if (ends) return std::max(kFirstPause, come_again_);
  return std::max(well ? again_ : pause, come_again_);
}

void Mirror::SetProcesses(std::vector<v1::CapturedProcess> processes) {
  const std::lock_guard lock(mutex_);
  processes_ = std::move(processes);
}

std::vector<v1::CaptureOrder> Mirror::TakeOrders() {
  const std::lock_guard lock(mutex_);
  return std::exchange(orders_, {});
}

std::vector<v1::DetailRaise> Mirror::TakeRaises() {
  const std::lock_guard lock(mutex_);
  return std::exchange(raises_, {});
}

// An answer has all orders that wait, and all raises of some time.
void Mirror::TakeOrdersOf(const v1::HubAnswer& answer) {
  const std::lock_guard lock(mutex_);
  if (!answer.orders().empty()) orders_.assign(answer.orders().begin(), answer.orders().end());
  if (!answer.raises().empty()) raises_.assign(answer.raises().begin(), answer.raises().end());
}

void Mirror::NoteFailed(Phase phase) {
  if (!shared_) Note(phase, std::string(why_not_.message()), false);
}

std::vector<std::string> Mirror::Files() const {
  std::vector<std::string> files;
  const auto add = [&files](const std::string& directory, bool (*belongs)(const std::string& name)) {
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      if (belongs(it->path().filename().string())) files.push_back(it->path().string());
    }
  };
  add(directory_, IsReplaced);
  add(logs_, IsGrowing);
  return files;
}

v1::HubPost Mirror::NextPost(bool ended, bool& more) {
  v1::HubPost post;
  post.set_job(meeting_.job);
  post.set_host(host_);
  post.set_instance(instance_);
  post.set_sequence(++sequence_);
  {
    const std::lock_guard lock(mutex_);
    post.mutable_processes()->Assign(processes_.begin(), processes_.end());
  }
  post.set_now_ns(static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                        std::chrono::nanoseconds(1)));
  more = !shared_ && !knows_sizes_;  // the answer has the sizes
  if (!shared_ && !more) AddFiles(post, ended, more);
  post.set_ended(ended && !more);
  post.set_behind(more);
  return post;
}

void Mirror::AddFiles(v1::HubPost& post, bool ended, bool& more) {
  size_t left = kMostPartBytes;
  for (const std::string& path : Files()) {
    const std::string name = fs::path(path).filename().string();
    const bool whole = IsReplaced(name);
    if (ended && name == store::kLiveFile) continue;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    const auto closing = absl::MakeCleanup([fd] { close(fd); });
    struct stat st {};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) continue;
    post.add_names(name);
    const auto size = static_cast<uint64_t>(st.st_size);
    const int64_t written = st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec;
    const auto have = have_.find(name);
    uint64_t offset = whole || have == have_.end() ? 0 : have->second;
    if (whole && size > kMostPartBytes) continue;
    const int64_t rest_ns = name == store::kLiveFile ? kLiveFileEveryNs : 1;
    if (whole && have != have_.end() && std::abs(written - sent_[name]) < rest_ns) continue;
    if (whole && size > left) {
      more = true;
      continue;
    }
    while (offset < size) {
      if (left == 0) {
        more = true;
        break;
      }
      std::string data(std::min<uint64_t>({size - offset, left, whole ? size : kPieceBytes}), '\0');
      const ssize_t n = pread(fd, data.data(), data.size(), static_cast<off_t>(offset));
      if (n <= 0) break;
      data.resize(static_cast<size_t>(n));
      left -= data.size();
      v1::FilePart& part = *post.add_parts();
      part.set_name(name);
      part.set_offset(offset);
      part.set_whole(whole);
      offset += data.size();
      part.set_data(std::move(data));
      if (whole) {
        sent_[name] = written;
        break;
      }
    }
  }
  // The hub may be gone after it, so it comes when nothing is lacking.
  more |= ended && post.parts_size() > 0;
}

absl::StatusOr<v1::HubAnswer> Mirror::Post(const v1::HubPost& post) {
  const std::string body = post.SerializeAsString();
  const std::string digest = DigestOf(body);
  const httplib::Headers headers = {
      {kDigestHeader, digest}, {kSignatureHeader, key_.Sign(kPost, digest)}, {kKeyHeader, key_.Name()}};
  const httplib::Result result = hub_->Post(kPath, headers, body, kProtobuf);
  if (!result) return absl::UnavailableError(absl::StrCat(meeting_.Text(), " does not answer"));
  v1::HubAnswer answer;
  // Refusals are signed, too.
  const bool signed_well = key_.HasSigned(kAnswer, absl::StrCat(digest, "\n", DigestOf(result->body)),
                                          result->get_header_value(kSignatureHeader));
  if (!signed_well || !answer.ParseFromString(result->body))
    return absl::UnavailableError(
        absl::StrCat(meeting_.Text(), " answers with HTTP status ", result->status, ", not as a hub"));
  if (result->status == kTooMany)
    come_again_ = std::chrono::seconds(result->get_header_value<uint64_t>("Retry-After", 1));
  return answer;
}

bool Mirror::Send(bool ended) {
  come_again_ = milliseconds(0);
  if (hub_ == nullptr) {
    const absl::StatusOr<FoundHub> found = FindHub(meeting_, secret_);
    if (!found.ok()) {
      if (why_not_.ok() || !absl::IsUnavailable(found.status())) why_not_ = found.status();
      NoteFailed(Phase::kSearching);
      return false;
    }
    if (absl::IsUnavailable(why_not_)) why_not_ = absl::OkStatus();
    SetHub(PinnedClient::Make(*found));
    key_ = found->secret;
    knows_sizes_ = false;
    sent_.clear();
  }
  const auto done = absl::MakeCleanup([this] {
    if (hub_ != nullptr) hub_->stop();  // no connection is held between posts
  });
  for (bool more = true; more;) {
    const v1::HubPost post = NextPost(ended, more);
    const absl::StatusOr<v1::HubAnswer> answer = Post(post);
    if (!answer.ok()) {
      SetHub(nullptr);
      if (why_not_.ok()) why_not_ = answer.status();
      NoteFailed(Phase::kSearching);
      return false;
    }
    hub_host_ = answer->host();
    if (!answer->directory().empty()) hub_directory_ = answer->directory();
    again_ = answer->again_ms() == 0 ? kEvery
                                     : std::clamp(milliseconds(answer->again_ms()), kOftenest, kSeldomest);
    TakeOrdersOf(*answer);
    shared_ |= answer->shared();
    if (shared_) {
      Note(Phase::kShared, "", true);
      return true;
    }
    // A post that was not read has none.
    if (come_again_ == milliseconds(0)) have_.clear();
    for (const v1::FileSize& file : answer->have()) have_[file.name()] = file.bytes();
    knows_sizes_ |= come_again_ == milliseconds(0);
    if (!answer->refused().empty()) {
      why_not_ = absl::FailedPreconditionError(absl::StrCat("the hub says: ", answer->refused()));
      NoteFailed(Phase::kSending);
      return false;
    }
    const std::lock_guard lock(mutex_);
    if (more && end_.has_value() && Clock::now() >= *end_) {
      state_ = {.phase = Phase::kSending,
                .hub_host = hub_host_,
                .directory = hub_directory_,
                .why = "the time was up",
                .all_sent = false};
      return false;
    }
  }
  why_not_ = absl::OkStatus();
  Note(Phase::kSending, "", ended);
  return true;
}

}  // namespace gpuprobe::hub
