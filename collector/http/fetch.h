// Asks a served run for one of its documents (docs/http-api.md).
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuprobe::http {

// "http://..." or "https://...": not a directory.
bool IsUrl(const std::string& text);

// `url`: of the server, such as "http://n1:9460", or of a job of a hub, "http://n3:9460/jobs/ID"; `path`:
// "/api/status", below that. The token that it may ask for is in
// the variable GPUPROBE_HTTP_TOKEN. Unavailable if nobody answers; PermissionDenied, NotFound or Internal
// with what was answered; ResourceExhausted beyond 512 MiB. One clear line each.
absl::StatusOr<std::string> Fetch(const std::string& url, const std::string& path);
// The same piece by piece, to `take`, which may refuse. An answer that is cut short is Unavailable.
absl::Status FetchInPieces(const std::string& url, const std::string& path,
                           absl::FunctionRef<bool(std::string_view)> take);

}  // namespace gpuprobe::http
