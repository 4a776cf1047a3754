#include "collector/hub/munge.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::hub {
namespace {

// munge.h of munge 0.5: the ABI of libmunge.so.2.
constexpr char kLibrary[] = "libmunge.so.2";
constexpr int kOptionTtl = 4;
constexpr int kOptionSocket = 8;
constexpr int kOptionUidRestriction = 9;
// What we seal is for us: programs of the same user seal other things.
constexpr std::string_view kPurpose = "gpuprobe hub\n";

}  // namespace

struct Munge::Functions {
  void* (*create)() = nullptr;
  void (*destroy)(void*) = nullptr;
  int (*set)(void*, int option, ...) = nullptr;
  int (*encode)(char** credential, void*, const void* data, int size) = nullptr;
  int (*decode)(const char* credential, void*, void** data, int* size, uid_t*, gid_t*) = nullptr;
  const char* (*message)(int) = nullptr;

  static std::shared_ptr<const Functions> Load() {
    // Never closed: it is small, and has no threads.
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    auto loaded = std::make_shared<Functions>();
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      all = all && function != nullptr;
    };
    find(loaded->create, "munge_ctx_create");
    find(loaded->destroy, "munge_ctx_destroy");
    find(loaded->set, "munge_ctx_set");
    find(loaded->encode, "munge_encode");
    find(loaded->decode, "munge_decode");
    find(loaded->message, "munge_strerror");
    return all ? loaded : nullptr;
  }
  // A context is not safe from two threads, so each call has its own.
  std::shared_ptr<void> MakeContext(const std::string& socket) const {
    std::shared_ptr<void> context(create(), [this](void* made) {
      if (made != nullptr) destroy(made);
    });
    if (context != nullptr && !socket.empty()) set(context.get(), kOptionSocket, socket.c_str());
    return context;
  }
};

Munge::Munge(std::shared_ptr<const Functions> functions, std::string socket)
    : functions_(std::move(functions)), socket_(std::move(socket)), uid_(static_cast<uid_t>(-1)) {}

absl::StatusOr<std::shared_ptr<const Munge>> Munge::Open(const std::string& socket) {
  std::shared_ptr<const Functions> functions = Functions::Load();
  if (functions == nullptr) return absl::NotFoundError("munge is not installed");
  std::shared_ptr<Munge> munge(new Munge(functions, socket));
  char* credential = nullptr;
  const std::shared_ptr<void> context = functions->MakeContext(socket);
  if (context == nullptr) return absl::NotFoundError("no memory for munge");
  int error = functions->encode(&credential, context.get(), nullptr, 0);
  const auto freeing = absl::MakeCleanup([&] { free(credential); });
  void* data = nullptr;
  int size = 0;
  gid_t gid = 0;
  if (error == kNone) error = functions->decode(credential, context.get(), &data, &size, &munge->uid_, &gid);
  free(data);
  if (error != kNone) return absl::NotFoundError(absl::StrCat("munge: ", functions->message(error)));
  return munge;
}

absl::StatusOr<std::string> Munge::Seal(std::string_view text, int ttl_s) const {
  const std::shared_ptr<void> context = functions_->MakeContext(socket_);
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for munge");
  functions_->set(context.get(), kOptionUidRestriction, uid_);
  if (ttl_s > 0) functions_->set(context.get(), kOptionTtl, ttl_s);
  std::string sealed(kPurpose);
  sealed += text;
  char* credential = nullptr;
  const int error =
      functions_->encode(&credential, context.get(), sealed.data(), static_cast<int>(sealed.size()));
  const auto freeing = absl::MakeCleanup([&] { free(credential); });
  if (error != kNone)
    return absl::UnavailableError(
        absl::StrCat("munge on this host makes no credential: ", functions_->message(error)));
  return std::string(credential);
}

Munge::Opened Munge::Unseal(const std::string& credential) const {
  const std::shared_ptr<void> context = functions_->MakeContext(socket_);
  if (context == nullptr) return {.error = kNoDaemon, .text = ""};
  void* data = nullptr;
  int size = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  const int error = functions_->decode(credential.c_str(), context.get(), &data, &size, &uid, &gid);
  // Some errors come with what was sealed.
  const auto freeing = absl::MakeCleanup([&] { free(data); });
  if (error != kNone) return {.error = static_cast<Error>(error), .text = ""};
  if (uid != uid_) return {.error = kOtherUser, .text = ""};
  std::string text(static_cast<const char*>(data), static_cast<size_t>(size));
  if (!text.starts_with(kPurpose)) return {.error = kOtherPurpose, .text = ""};
  return {.error = kNone, .text = text.substr(kPurpose.size())};
}

std::string Munge::Explain(const std::string& hub, int error) {
  switch (error) {
    case kExpired:
      return absl::StrCat("munge's credential had expired at ", hub,
                          ": the clocks of the two hosts are minutes apart; set them (NTP)");
    case kRewound:
      return absl::StrCat("munge's credential is from the future at ", hub,
                          ": the clocks of the two hosts are minutes apart; set them (NTP)");
    case kReplayed:
      return absl::StrCat("munge's credential was used at ", hub,
                          " before: somebody sent it there a second time");
    case kBadRealm:
    case kInvalid:
      return absl::StrCat(
          "munge at ", hub,
          " has another key than this host's: both need the same /etc/munge/munge.key, or set "
          "GPUPROBE_HUB_TOKEN to the same secret on both");
    case kUnauthorized:
    case kOtherUser:
      return absl::StrCat(hub, " is the hub of another user, as munge says");
    case kNoDaemon:
      return absl::StrCat("munge at ", hub, " does not answer: start munged there");
    default:
      return absl::StrCat("munge at ", hub, " refuses this host's credential (error ", error,
                          " of libmunge)");
  }
}

}  // namespace gpuprobe::hub
