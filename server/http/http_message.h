#ifndef ATTENTION_SERVER_HTTP_HTTP_MESSAGE_H_
#define ATTENTION_SERVER_HTTP_HTTP_MESSAGE_H_

#include <string>

namespace attention::server {

/// What came over HTTP; HEAD is told as GET.
struct HttpRequest {
  std::string method;  // "GET", "POST"
  std::string path;    // "/metrics", without what follows a '?'
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_HTTP_HTTP_MESSAGE_H_
