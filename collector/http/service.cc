#include "collector/http/service.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::http {

void Refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(absl::StrCat(nlohmann::json{{"error", why}}.dump(), "\n"), kJson);
}

Verdict JudgeRequest(const Access& access, const httplib::Request& request, bool with_cookies) {
  const std::string host = request.get_header_value("Host");
  const std::string authorization = request.get_header_value("Authorization");
  const std::string cookies = with_cookies ? request.get_header_value("Cookie") : "";
  const std::string token = request.get_param_value("token");
  return access.Judge({.host = host, .authorization = authorization, .cookies = cookies, .token = token});
}

bool LetIn(const Access& access, const httplib::Request& request, httplib::Response& response) {
  switch (JudgeRequest(access, request)) {
    case Verdict::kWelcome:
      return true;
    case Verdict::kWelcomeWithCookie:
      response.set_header("Set-Cookie", access.Cookie());
      if (request.path != "/") return true;
      response.set_header("Location", "/");
      response.status = 303;
      return false;
    case Verdict::kWrongHost:
      Refuse(response, 403, "this server answers to localhost, 127.0.0.1 and [::1] only");
      return false;
    default:
      response.set_header("WWW-Authenticate", "Bearer realm=\"gpuprobe\"");
      Refuse(response, 401, "this server asks for its token: Authorization: Bearer TOKEN, or /?token=TOKEN");
      return false;
  }
}

}  // namespace gpuprobe::http
