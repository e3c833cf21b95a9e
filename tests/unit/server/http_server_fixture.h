#ifndef ATTENTION_TESTS_UNIT_SERVER_HTTP_SERVER_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_SERVER_HTTP_SERVER_FIXTURE_H_

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/http/port/http_server.h"
#include "tests/service/http_caller.h"
#include "tests/support/certificates.h"

namespace attention::server {

inline constexpr char kRequest[] = "GET /a HTTP/1.1\r\nHost: test\r\n\r\n";
/// More than all buffers between a server and a caller take.
inline constexpr size_t kLarge = 64 << 20;

inline constexpr int64_t kMostBody = 1 << 20;

/// Tells what was asked; "/large" gets kLarge bytes, "/body" its body.
inline HttpReply Echo(const HttpRequest& request) {
  if (request.path == "/body") {
    return {.body = static_cast<std::string>(request.body.view())};
  }
  if (request.path == "/large") return {.body = std::string(kLarge, 'x')};
  return {.body = absl::StrCat(request.method, " ", request.path, "\n")};
}

/// How a caller speaks, and to which port.
enum class Speech : uint8_t { kPlain, kTls, kPlainWhereTlsIsTaken };

inline std::string NameOfSpeech(const testing::TestParamInfo<Speech>& speech) {
  if (speech.param == Speech::kPlain) return "Plain";
  return speech.param == Speech::kTls ? "Tls" : "PlainWhereTlsIsTaken";
}

/// A test of an HTTP server; the parameter is how callers speak to it.
class HttpServerTest : public testing::TestWithParam<Speech> {
 protected:
  HttpServerTest() : callers_tls_(::SSL_CTX_new(::TLS_client_method())) {
    if (GetParam() == Speech::kPlain) return;
    const test::CertificateAuthority authority("test authority");
    const test::CertificateAndKey server = authority.Sign("server.test");
    absl::StatusOr<TlsContext> made =
        MakeTlsContext({server.certificate, server.key, "", ""});
    EXPECT_TRUE(made.ok()) << made.status();
    servers_tls_ = [context = *std::move(made)] { return context; };
  }
  ~HttpServerTest() override { ::SSL_CTX_free(callers_tls_); }

  // What the callers speak; null: plain text.
  SSL_CTX* tls() const {
    return GetParam() == Speech::kTls ? callers_tls_ : nullptr;
  }
  void Start(const HttpLimits& limits = {}) {
    auto listener = ListenOnTcp("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = HostAndPort("127.0.0.1", listener->port);
    HttpHandlers handlers;
    handlers.access = access_;
    handlers.is_probe = [](const HttpRequest& request) {
      return request.path == "/probe";
    };
    handlers.most_body_bytes = [bodies = limits.bodies](const HttpRequest&) {
      return bodies == nullptr ? kMostBody
                               : std::min(kMostBody, bodies->limit_of_one());
    };
    handlers.answer = [this](const std::shared_ptr<HttpExchange>& exchange) {
      Answer(exchange);
    };
    auto server =
        HttpServer::Start(*std::move(listener), limits, handlers, servers_tls_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // "/held" is answered by nobody, and its exchange is kept; that of "/dropped"
  // is not. "/without-memory" throws.
  void Answer(const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path == "/dropped") return;
    if (exchange->request().path == "/without-memory") throw std::bad_alloc();
    if (exchange->request().path == "/held") {
      const std::lock_guard lock(mutex_);
      held_ = exchange;
      return held_changed_.notify_all();
    }
    exchange->Reply(Echo(exchange->request()));
  }
  std::shared_ptr<HttpExchange> WaitUntilHeld() {
    std::unique_lock lock(mutex_);
    held_changed_.wait_for(lock, std::chrono::minutes(1),
                           [this] { return held_ != nullptr; });
    return std::exchange(held_, nullptr);
  }
  // Within a minute.
  bool ConnectionsBecome(int64_t count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (server_->connections() != count) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  SSL_CTX* const callers_tls_;
  std::function<TlsContext()> servers_tls_;
  std::shared_ptr<const HttpAccess> access_;  // null: everybody
  std::string address_;
  std::mutex mutex_;
  std::condition_variable held_changed_;
  std::shared_ptr<HttpExchange> held_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_HTTP_SERVER_FIXTURE_H_
