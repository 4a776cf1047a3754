#include "collector/cli/http_option.h"

#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "collector/cli/checks.h"
#include "collector/http/access.h"

namespace gpuprobe::cli {

void HttpOption::AddTo(CLI::App& app, const char* name, const std::string& what) {
  const std::string standard = http::Address().Text();
  CLI::Option* option =
      app.add_option_function<std::string>(
             name,
             [this, name](const std::string& given) {
               const absl::StatusOr<http::Address> parsed = http::ParseAddress(given);
               if (!parsed.ok()) throw CLI::ValidationError(name, std::string(parsed.status().message()));
               address = *parsed;
             },
             absl::StrCat(what, " on this address [", standard,
                          "]; port 0: any that is free. Addresses other than loopback need a token"))
          ->expected(0, 1)
          ->default_str(standard)
          ->option_text("[ADDR]");
  app.add_option("--http-token", token_file,
                 absl::StrCat("file whose first line is the token that readers must give; default: the "
                              "variable ",
                              http::kTokenVariable))
      ->check(NotEmpty())
      ->option_text("FILE")
      ->needs(option);
}

absl::StatusOr<std::optional<http::Server::Options>> HttpOption::Resolve() const {
  const char* variable = std::getenv(http::kTokenVariable);
  std::string token = variable == nullptr ? "" : variable;
  unsetenv(http::kTokenVariable);
  if (!address.has_value()) return std::nullopt;
  if (!token_file.empty()) {
    absl::StatusOr<std::string> read = http::ReadToken(token_file);
    if (!read.ok()) return read.status();
    token = *std::move(read);
  } else if (!token.empty()) {
    if (absl::Status s = http::CheckToken(token); !s.ok())
      return absl::InvalidArgumentError(absl::StrCat(http::kTokenVariable, ": ", s.message()));
  }
  return http::Server::Options{.address = *address, .token = std::move(token)};
}

absl::StatusOr<std::unique_ptr<http::Server>> HttpOption::Listen() const {
  const absl::StatusOr<std::optional<http::Server::Options>> options = Resolve();
  if (!options.ok()) return options.status();
  if (!options->has_value()) return std::unique_ptr<http::Server>();
  return http::Server::Listen(**options);
}

}  // namespace gpuprobe::cli
