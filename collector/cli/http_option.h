// --http of the subcommands that record, and --serve of `report`: where the page is served, and the token
// that it asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "collector/http/server.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

struct HttpOption {
  std::optional<http::Address> address;  // nullopt: nothing is served
  std::string token_file;

  // `name`: "--http" or "--serve"; `what`: the first words of its help.
  void AddTo(CLI::App& app, const char* name, const std::string& what);
  // Where and for whom; nullopt if the option was not given. Takes the token's variable out of the
  // environment, which programs that are started later inherit.
  absl::StatusOr<std::optional<http::Server::Options>> Resolve() const;
  // Listens; null if the option was not given. Takes the token's variable out of the environment, which
  // programs that are started later inherit.
  absl::StatusOr<std::unique_ptr<http::Server>> Listen() const;
};

}  // namespace gpuprobe::cli
