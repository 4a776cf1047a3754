// Asks a served run for one of its documents (docs/http-api.md).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::http {

// "http://..." or "https://...": not a directory.
bool IsUrl(const std::string& text);

// `url`: of the server, such as "http://n1:9460"; `path`: "/api/status". The token that it may ask for is in
// the variable GPUPROBE_HTTP_TOKEN. Unavailable if nobody answers; PermissionDenied, NotFound or Internal
// with what was answered. One clear line each.
absl::StatusOr<std::string> Fetch(const std::string& url, const std::string& path);

}  // namespace gpuprobe::http
