#include "collector/http/service.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::http {

void Refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(absl::StrCat(nlohmann::json{{"error", why}}.dump(), "\n"), kJson);
}

}  // namespace gpuprobe::http
