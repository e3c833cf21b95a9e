#include "tests/service/http_caller.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace attention::test {

HttpCaller::HttpCaller(const std::string& address, SSL_CTX* tls)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      ssl_(nullptr, &::SSL_free) {
  const size_t colon = address.rfind(':');
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(colon + 1), &port);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const timeval patience{60, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
               sizeof(patience));
  // Without a connection, nothing is sent and nothing comes.
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to),
                sizeof(to)) != 0) {
    socket_ = server::FileDescriptor();
  }
  if (tls == nullptr) return;
  // OpenSSL writes without MSG_NOSIGNAL.
  std::signal(SIGPIPE, SIG_IGN);
  ssl_.reset(::SSL_new(tls));
  ::SSL_set_fd(ssl_.get(), socket_.get());
  if (::SSL_connect(ssl_.get()) != 1) socket_ = server::FileDescriptor();
  ::ERR_clear_error();
}

bool HttpCaller::told_of_end() const {
  return (::SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
}

bool HttpCaller::Send(absl::string_view text) {
  while (!text.empty()) {
    if (!socket_.ok()) return false;
    const ssize_t sent =
        ssl_ != nullptr
            ? ::SSL_write(ssl_.get(), text.data(),
                          static_cast<int>(text.size()))
            : ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void HttpCaller::EndSending() { ::shutdown(socket_.get(), SHUT_WR); }

ssize_t HttpCaller::Receive(char* bytes, size_t size) {
  if (ssl_ == nullptr) return ::recv(socket_.get(), bytes, size, 0);
  if (!socket_.ok()) return 0;
  ::ERR_clear_error();
  errno = 0;
  const int got = ::SSL_read(ssl_.get(), bytes, static_cast<int>(size));
  // An end without TLS's word for it is one all the same.
  const bool ended = got <= 0 && errno != EAGAIN && errno != EWOULDBLOCK;
  return ended ? 0 : got;
}

std::string HttpCaller::Read(const std::string& end) {
  std::array<char, 16 << 10> chunk{};
  while (end.empty() || read_.find(end) == std::string::npos) {
    const ssize_t got = Receive(chunk.data(), chunk.size());
    if (got <= 0) {
      closed_ = got == 0 || errno == ECONNRESET;
      return std::exchange(read_, "");
    }
    read_.append(chunk.data(), static_cast<size_t>(got));
  }
  const size_t size = read_.find(end) + end.size();
  std::string text = read_.substr(0, size);
  read_.erase(0, size);
  return text;
}

std::string HttpAnswer(const std::string& address, const std::string& path,
                       const std::string& method, SSL_CTX* tls) {
  HttpCaller caller(address, tls);
  caller.Send(absl::StrCat(method, " ", path,
                           " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: "
                           "close\r\n\r\n"));
  return caller.Read();
}

std::string HttpPost(const std::string& address, const std::string& path,
                     const std::string& body, const std::string& headers,
                     SSL_CTX* tls) {
  HttpCaller caller(address, tls);
  caller.Send(absl::StrCat("POST ", path,
                           " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: "
                           "close\r\nContent-Length: ",
                           body.size(), "\r\n", headers, "\r\n", body));
  return caller.Read();
}

int HttpStatus(const std::string& answer) {
  int status = 0;
  if (answer.size() < 12 ||
      !absl::SimpleAtoi(answer.substr(sizeof("HTTP/1.1 ") - 1, 3), &status)) {
    return 0;
  }
  return status;
}

std::string HttpBody(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace attention::test
