// TLS on the HTTP port: who is served, and certificates that change.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/tls_files.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

constexpr char kBody[] =
    R"({"inputs": [
      {"name": "query", "datatype": "FP32", "shape": [1, 1, 1], "data": [1]},
      {"name": "key", "datatype": "FP32", "shape": [1, 1, 1], "data": [1]},
      {"name": "value", "datatype": "FP32", "shape": [1, 1, 1], "data": [1]}
    ]})";
constexpr char kRegions[] = "/v2/systemsharedmemory/status";

using Context = std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)>;

class HttpsTest : public testing::Test {
 protected:
  void Start(bool mutual) {
    files_.Use(options_, mutual);
    server_ = StartServer(options_);
  }
  const std::string& address() const { return server_->http_address(); }

  // A caller that trusts the authority in `ca`; with the caller's certificate
  // where it `shows` one.
  Context Caller(bool shows = false, const std::string& ca = "authority.crt") {
    Context tls(::SSL_CTX_new(::TLS_client_method()), &::SSL_CTX_free);
    ::SSL_CTX_set_verify(tls.get(), SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_load_verify_locations(tls.get(), files_.Path(ca).c_str(),
                                    nullptr);
    if (shows) {
      ::SSL_CTX_use_certificate_file(
          tls.get(), files_.Path("caller.crt").c_str(), SSL_FILETYPE_PEM);
      ::SSL_CTX_use_PrivateKey_file(
          tls.get(), files_.Path("caller.key").c_str(), SSL_FILETYPE_PEM);
    }
    return tls;
  }
  int Get(const std::string& path, const Context& tls) const {
    return HttpStatus(HttpAnswer(address(), path, "GET", tls.get()));
  }
  int Infer(const Context& tls, const std::string& headers = "") const {
    return HttpStatus(
        HttpPost(address(), kInferPath, kBody, headers, tls.get()));
  }
  // The same, until it is served, for as long as a busy machine may need.
  int EventuallyInfer(const Context& tls) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    int status = Infer(tls);
    while (status != 200 && std::chrono::steady_clock::now() < end) {
      status = Infer(tls);
    }
    return status;
  }

  TlsFiles files_;
  server::ServerOptions options_ = TestOptions();
  std::unique_ptr<server::Server> server_;
};

TEST_F(HttpsTest, EverythingIsServedOverTls) {
  Start(/*mutual=*/false);
  for (const char* path : {"/v2", "/v2/health/ready", "/metrics"}) {
    EXPECT_EQ(Get(path, Caller()), 200) << path;
  }
  EXPECT_EQ(Infer(Caller()), 200);
}

TEST_F(HttpsTest, PlainTextGetsHealthAndMetricsAndTheWayToTheRest) {
  Start(/*mutual=*/true);
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/metrics"}) {
    EXPECT_EQ(HttpStatus(HttpAnswer(address(), path)), 200) << path;
  }
  const std::string infer = HttpPost(address(), kInferPath, kBody);
  EXPECT_EQ(HttpStatus(infer), 403);
  EXPECT_THAT(infer, HasSubstr("https://"));
  EXPECT_EQ(HttpStatus(HttpAnswer(address(), "/v2")), 403);
}

TEST_F(HttpsTest, BeyondLoopbackItIsServedWithoutAWord) {
  options_.http_address = "0.0.0.0";
  Start(/*mutual=*/false);
  const std::string here =
      absl::StrCat("127.0.0.1:", address().substr(address().rfind(':') + 1));
  const Context caller = Caller();
  EXPECT_EQ(HttpStatus(HttpPost(here, kInferPath, kBody, "", caller.get())),
            200);
  EXPECT_EQ(HttpStatus(HttpPost(here, kInferPath, kBody)), 403);
}

TEST_F(HttpsTest, TheServerShowsTheCertificateOfTheFiles) {
  Start(/*mutual=*/false);
  files_.Write("other.crt", CertificateAuthority("another").certificate());
  EXPECT_EQ(Infer(Caller(false, "other.crt")), 0);
}

TEST_F(HttpsTest, ACallerDoesNotTakeACertificateThatHasExpired) {
  const CertificateAndKey expired =
      files_.authority().SignExpired("server.test", {"IP:127.0.0.1"});
  files_.Write("server.crt", expired.certificate);
  files_.Write("server.key", expired.key);
  Start(/*mutual=*/false);
  EXPECT_EQ(Infer(Caller()), 0);
  // Until it is replaced.
  files_.WriteServer(files_.authority());
  EXPECT_EQ(EventuallyInfer(Caller()), 200);
}

TEST_F(HttpsTest, MutualServesThoseWhoShowACertificateOfTheAuthority) {
  Start(/*mutual=*/true);
  EXPECT_EQ(Infer(Caller()), 0);
  EXPECT_EQ(Get("/metrics", Caller()), 0);
  files_.WriteCaller(files_.authority(), "caller");
  EXPECT_EQ(Infer(Caller(/*shows=*/true)), 200);
  files_.WriteCaller(CertificateAuthority("another"), "caller");
  EXPECT_EQ(Infer(Caller(/*shows=*/true)), 0);
  const CertificateAndKey expired = files_.authority().SignExpired("caller");
  files_.Write("caller.crt", expired.certificate);
  files_.Write("caller.key", expired.key);
  EXPECT_EQ(Infer(Caller(/*shows=*/true)), 0);
}

TEST_F(HttpsTest, ACallerThatOffersHttp2AloneIsRefused) {
  Start(/*mutual=*/false);
  const Context caller = Caller();
  constexpr unsigned char kHttp2[] = "\x02h2";
  ::SSL_CTX_set_alpn_protos(caller.get(), kHttp2, sizeof(kHttp2) - 1);
  EXPECT_EQ(Infer(caller), 0);
  constexpr unsigned char kBoth[] = "\x02h2\x08http/1.1";
  ::SSL_CTX_set_alpn_protos(caller.get(), kBoth, sizeof(kBoth) - 1);
  EXPECT_EQ(Infer(caller), 200);
}

TEST_F(HttpsTest, VersionsBefore12AreRefused) {
  Start(/*mutual=*/false);
  const Context caller = Caller();
  ::SSL_CTX_set_cipher_list(caller.get(), "ALL:@SECLEVEL=0");
  SSL_CTX_set_min_proto_version(caller.get(), TLS1_VERSION);
  SSL_CTX_set_max_proto_version(caller.get(), TLS1_1_VERSION);
  EXPECT_EQ(Infer(caller), 0);
  SSL_CTX_set_max_proto_version(caller.get(), TLS1_2_VERSION);
  EXPECT_EQ(Infer(caller), 200);
}

TEST_F(HttpsTest, ACertificatesNamesAreKnownAsOverGrpc) {
  files_.Write("callers.json",
               CallersText(
                   R"({"name": "a", "certificates": ["spiffe://test/a"]},
                      {"name": "b", "certificates": ["b.test"],
                       "may": ["shared_memory"]},
                      {"name": "c", "certificates": ["127.1.2.3"]},)" +
                   CallerEntry("t", "secret")));
  options_.callers_file = files_.Path("callers.json");
  options_.allow_shared_memory = true;
  Start(/*mutual=*/true);
  const auto shows = [this](const std::string& common_name,
                            const std::vector<std::string>& others = {}) {
    files_.WriteCaller(files_.authority(), common_name, others);
    return Caller(/*shows=*/true);
  };
  Context a = shows("x", {"URI:spiffe://test/a"});
  EXPECT_EQ(Infer(a), 200);
  // A call with a token goes by the token.
  EXPECT_EQ(Infer(a, "Authorization: Bearer unknown\r\n"), 401);
  EXPECT_EQ(Infer(a, "Authorization: Bearer secret\r\n"), 200);
  // What is no inference is asked of the gRPC service, for the same caller.
  EXPECT_EQ(Get("/v2", a), 200);
  EXPECT_EQ(Get(kRegions, a), 403);
  EXPECT_EQ(Get(kRegions, shows("b.test")), 200);
  EXPECT_EQ(Infer(shows("x", {"email:x@test", "IP:127.1.2.3"})), 200);
  EXPECT_EQ(Infer(shows("c.test")), 401);
  // The common name does not count beside alternative names.
  EXPECT_EQ(Infer(shows("b.test", {"DNS:c.test"})), 401);
  EXPECT_EQ(Get(kRegions, shows("b.test", {"DNS:c.test"})), 401);
}

TEST_F(HttpsTest, CertificatesChangeUnderLoadAndNoRequestIsLost) {
  Start(/*mutual=*/true);
  const CertificateAuthority next("next authority");
  files_.WriteCaller(files_.authority(), "caller");
  files_.Write("both.crt",
               files_.authority().certificate() + next.certificate());
  files_.Write("next.crt", next.certificate());
  const Context load = Caller(/*shows=*/true, "both.crt");
  std::atomic<bool> stopping{false};
  std::atomic<int64_t> served{0};
  std::atomic<int64_t> failed{0};
  const auto count = [&](int status) { ++(status == 200 ? served : failed); };
  std::thread reconnects([&] {
    while (!stopping) count(Infer(load));
  });
  std::thread stays([&] {
    HttpCaller caller(address(), load.get());
    while (!stopping) {
      caller.Send("GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      count(HttpStatus(caller.Read("{\"live\":true}\n")));
    }
  });
  const Context sees_new = Caller(/*shows=*/true, "next.crt");
  EXPECT_EQ(Infer(sees_new), 0);
  files_.WriteServer(next);
  EXPECT_EQ(EventuallyInfer(sees_new), 200);
  files_.WriteServer(files_.authority());
  EXPECT_EQ(EventuallyInfer(Caller(/*shows=*/true)), 200);
  stopping = true;
  reconnects.join();
  stays.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GT(served, 0);
}

}  // namespace
}  // namespace attention::test
