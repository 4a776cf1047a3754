// What both ends of a hub's HTTP agree on besides the messages in hub.proto. It is HTTPS with a certificate
// that the hub makes when it starts.
//
// Where munge runs, the secret is one that the host makes and munge brings to the hub, sealed, with the GET.
// Otherwise the GET names the secret, as posts do, so that a hub of several users knows whose it is.
//
//   GET /v1/hub?job=JOB&nonce=HEX      200: the hub of that job; its header has the nonce, its port and its
//   certificate's fingerprint signed
//   POST /v1/hub                       a HubPost, whose digest is signed in the headers; a HubAnswer,
//   likewise, also with the statuses of refusals
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpuprobe::hub {

inline constexpr uint16_t kPort = 9461;
inline constexpr uint16_t kPorts = 16;  // from kPort on: jobs that have their hubs on the same host
inline constexpr char kPath[] = "/v1/hub";
inline constexpr char kDigestHeader[] = "X-Gpuprobe-Digest";
inline constexpr char kSignatureHeader[] = "X-Gpuprobe-Signature";
inline constexpr char kWayHeader[] = "X-Gpuprobe-Way";  // of the hub: how it knows a host's user
// With munge, a host that asks for the proof sends a new key, sealed. Posts name their key (Secret::Name).
inline constexpr char kCredentialHeader[] = "X-Gpuprobe-Credential";
inline constexpr char kKeyHeader[] = "X-Gpuprobe-Key";
inline constexpr char kMungeErrorHeader[] = "X-Gpuprobe-Munge-Error";
inline constexpr char kProtobuf[] = "application/x-protobuf";

// From post to post of a host; the hub may ask for others (HubAnswer.again_ms).
inline constexpr std::chrono::milliseconds kEvery{1000};
inline constexpr std::chrono::milliseconds kOftenest{100};
inline constexpr std::chrono::milliseconds kSeldomest{5000};

// HTTP statuses.
inline constexpr int kOk = 200;
inline constexpr int kBadRequest = 400;
inline constexpr int kForbidden = 403;
inline constexpr int kNotFound = 404;
inline constexpr int kConflict = 409;
inline constexpr int kTooLarge = 413;          // more than a host may have here
inline constexpr int kTooMany = 429;           // come again, at the time in Retry-After
inline constexpr int kInsufficientRoom = 507;  // the hub's disk is full, or the host's share of it

// Purposes of signatures.
inline constexpr char kProof[] = "proof";
inline constexpr char kPost[] = "post";
inline constexpr char kAnswer[] = "answer";

// What a hub signs: with the port that it listens on and its certificate, so that who listens elsewhere, or
// between it and the host, cannot pass a proof on.
std::string ProofText(const std::string& nonce, const std::string& job, uint16_t port,
                      const std::string& fingerprint);

inline constexpr size_t kMostPostBytes = size_t{8} << 20;
// Of the files in one post.
inline constexpr size_t kMostPartBytes = size_t{4} << 20;

// Which files of a run directory are sent: those that grow, in parts, and those that are replaced, whole.
bool IsGrowing(const std::string& name);
bool IsReplaced(const std::string& name);

}  // namespace gpuprobe::hub
