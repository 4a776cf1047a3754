// Talks to a ClickHouse server over HTTP.
//
// Used from one thread. Nothing waits longer than a minute: a server that is slow, away or says no is an
// error that says which of these it was.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuprobe::clickhouse {

// The oldest release that has all that we use.
inline constexpr int kLeastMajor = 22;
inline constexpr int kLeastMinor = 8;

struct Server {
  std::string url;  // "http://ch:8123": without user and path
  std::string user;
  std::string password;
  // The user is in the variable CLICKHOUSE_USER, the password in CLICKHOUSE_PASSWORD, which is taken out of
  // the environment. InvalidArgument, in one line, for what is no URL, or has a password in it.
  static absl::StatusOr<Server> Parse(const std::string& url);
};

class Client {
 public:
  explicit Client(const Server& server);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // "26.9.2.1". FailedPrecondition if it is too old.
  absl::StatusOr<std::string> Version();
  // Runs a statement, and returns what it prints. Errors: Unavailable if no answer came, or one that asks to
  // come again; PermissionDenied; NotFound for a database, table or column; InvalidArgument for data that
  // are no rows of the table; else Internal. All with the server's words.
  absl::StatusOr<std::string> Ask(const std::string& sql);
  // Inserts rows, which are zstd-compressed RowBinary. A second insert with the same token does nothing.
  absl::Status Insert(const std::string& sql, const std::string& token, std::string_view rows);
  // Ends a request that waits; the only function that another thread may call.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::clickhouse
