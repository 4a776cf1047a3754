// What answers the requests that a server's connections read. Safe from many threads.
#pragma once

#include <cstddef>
#include <string>

#include "collector/http/access.h"
#include "collector/http/connection.h"

namespace gpuprobe::http {

inline constexpr char kJson[] = "application/json";

// Answers with a status and {"error": why}.
void Refuse(httplib::Response& response, int status, const std::string& why);

Verdict JudgeRequest(const Access& access, const httplib::Request& request, bool with_cookies = true);

// Whether this request may read; else it has been answered, by a refusal or a redirection.
bool LetIn(const Access& access, const httplib::Request& request, httplib::Response& response);

class Service {
 public:
  Service() = default;
  virtual ~Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // How long a body this request may have, which is read before Answer is called; 0: none is read, and the
  // connection is closed after the answer. Judges by the headers, and whose connection it is.
  virtual size_t MostBodyBytes(const httplib::Request& /*request*/, Connection& /*connection*/) { return 0; }
  // Every request goes through here, and is answered here. `connection`: the one that it came from.
  virtual void Answer(const httplib::Request& request, httplib::Response& response,
                      Connection& connection) = 0;
  // A connection was turned away.
  virtual void NoteRefused() = 0;
};

}  // namespace gpuprobe::http
