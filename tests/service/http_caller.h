#ifndef ATTENTION_TESTS_SERVICE_HTTP_CALLER_H_
#define ATTENTION_TESTS_SERVICE_HTTP_CALLER_H_

#include <openssl/types.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "server/base/file_descriptor.h"

namespace attention::test {

/// A connection to an HTTP server that does what it is told, and no more.
class HttpCaller {
 public:
  /// `address` is "127.0.0.1:8002". Over TLS where there is `tls`; where the
  /// handshake fails, nothing is sent and nothing comes.
  explicit HttpCaller(const std::string& address, SSL_CTX* tls = nullptr);

  /// False where the server takes no more, as far as is known by then.
  bool Send(absl::string_view text);
  /// Sends nothing more, over TLS without a word for it.
  void EndSending();
  /// Up to where the server closes the connection, or to the first `end`; what
  /// came within a minute where neither does.
  std::string Read(const std::string& end = "");
  /// Whether Read() met the end of the connection.
  bool closed() const { return closed_; }
  /// Over TLS: whether the server has said that it sends nothing more.
  bool told_of_end() const;

 private:
  // As recv() says it.
  ssize_t Receive(char* bytes, size_t size);

  server::FileDescriptor socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
  std::string read_;  // ahead
  bool closed_ = false;
};

/// What a server answers to one request: "HTTP/1.1 200 OK ...".
std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& method = "GET",
                       SSL_CTX* tls = nullptr);

/// The same for a POST with this body; each of `headers` ends with "\r\n".
std::string HttpPost(const std::string& address, const std::string& path,
                     const std::string& body, const std::string& headers = "",
                     SSL_CTX* tls = nullptr);

/// The status of it; 0 where there was none.
int HttpStatus(const std::string& answer);
/// What follows the headers.
std::string HttpBody(const std::string& answer);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_HTTP_CALLER_H_
