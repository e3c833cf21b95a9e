// Encryption: who is served, and certificates that change while calls go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/requests.h"
#include "tests/service/gated_server.h"
#include "tests/service/running_server.h"
#include "tests/service/tls_files.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

// How one call of a new connection ends.
absl::Status CallOnce(const std::string& address,
                      client::ClientOptions options) {
  options.target = address;
  const auto client = client::Client::Create(options);
  if (!client.ok()) return client.status();
  return client->Attend(client::NumberRequest(1)).status();
}

class TlsTest : public testing::Test {
 protected:
  std::unique_ptr<server::Server> Start(bool mutual) {
    server::ServerOptions options = TestOptions();
    files_.Use(options, mutual);
    return StartServer(options);
  }

  TlsFiles files_;
};

TEST_F(TlsTest, ServesThoseWhoTrustTheAuthorityAndNoPlainText) {
  const auto server = Start(/*mutual=*/false);
  EXPECT_EQ(CallOnce(server->address(), files_.Client()), absl::OkStatus());
  EXPECT_EQ(CallOnce(server->address(), {.max_attempts = 1}).code(),
            StatusCode::kUnavailable);
  files_.Write("other.crt", CertificateAuthority("another").certificate());
  EXPECT_EQ(
      CallOnce(server->address(), files_.Client(false, "other.crt")).code(),
      StatusCode::kUnavailable);
}

TEST_F(TlsTest, TheServersNameIsChecked) {
  const auto server = Start(/*mutual=*/false);
  client::ClientOptions options = files_.Client();
  options.tls->server_name = "server.test";
  EXPECT_EQ(CallOnce(server->address(), options), absl::OkStatus());
  options.tls->server_name = "another.test";
  EXPECT_EQ(CallOnce(server->address(), options).code(),
            StatusCode::kUnavailable);
}

TEST_F(TlsTest, MutualServesThoseWhoShowACertificateOfTheAuthority) {
  const auto server = Start(/*mutual=*/true);
  EXPECT_EQ(CallOnce(server->address(), files_.Client()).code(),
            StatusCode::kUnavailable);
  files_.WriteCaller(files_.authority(), "caller");
  EXPECT_EQ(CallOnce(server->address(), files_.Client(/*shows=*/true)),
            absl::OkStatus());
  files_.WriteCaller(CertificateAuthority("another"), "caller");
  EXPECT_EQ(CallOnce(server->address(), files_.Client(/*shows=*/true)).code(),
            StatusCode::kUnavailable);
}

TEST_F(TlsTest, TheUnixSocketStaysPlainText) {
  server::ServerOptions options = TestOptions();
  files_.Use(options, /*mutual=*/true);
  options.grpc_unix_socket = files_.Path("s");
  const auto server = StartServer(options);
  EXPECT_EQ(CallOnce("unix:" + options.grpc_unix_socket, {}), absl::OkStatus());
}

TEST_F(TlsTest, ARunningRequestOutlivesADrain) {
  TileGate gate;
  gate.CloseAt(1);
  server::ServerOptions options = TestOptions();
  files_.Use(options);
  const auto server = StartServer(options, &gate);
  auto running = std::async(std::launch::async, [&] {
    return CallOnce(server->address(), files_.Client());
  });
  gate.WaitUntilHolding();
  auto drained =
      std::async(std::launch::async, [&server] { return server->Drain(); });
  gate.Open();
  EXPECT_EQ(running.get(), absl::OkStatus());
  EXPECT_TRUE(drained.get());
}

// Calls on connections of their own, old ones and new ones, until Stop().
class Load {
 public:
  Load(const std::string& address, const client::ClientOptions& options) {
    for (const bool reconnects : {false, false, true}) {
      threads_.emplace_back([this, address, options, reconnects] {
        Run(address, options, reconnects);
      });
    }
  }
  ~Load() { Stop(); }

  /// All that failed; afterwards nothing runs.
  std::vector<absl::Status> Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return failures_;
  }
  int64_t calls() const { return calls_; }

 private:
  void Run(const std::string& address, client::ClientOptions options,
           bool reconnects) {
    options.target = address;
    auto client = client::Client::Create(options);
    while (!stopping_) {
      const absl::Status status =
          reconnects ? CallOnce(address, options)
                     : client->Attend(client::NumberRequest(1)).status();
      ++calls_;
      if (status.ok()) continue;
      const std::lock_guard lock(mutex_);
      failures_.push_back(status);
      if (failures_.size() > 10) return;
    }
  }

  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> calls_{0};
  std::mutex mutex_;
  std::vector<absl::Status> failures_;
  std::vector<std::thread> threads_;
};

// Asks again and again, for as long as a busy machine may need. How the last
// call ended.
absl::Status EventuallyServed(const std::string& address,
                              const client::ClientOptions& options) {
  constexpr int kMostCalls = 1200;
  absl::Status status;
  for (int i = 0; i < kMostCalls; ++i) {
    status = CallOnce(address, options);
    if (status.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return status;
}

TEST_F(TlsTest, CertificatesChangeUnderLoadAndNoCallIsLost) {
  const auto server = Start(/*mutual=*/true);
  const CertificateAuthority next("next authority");
  files_.WriteCaller(files_.authority(), "caller");
  // The load trusts both; who connects with the next one's alone sees the new
  // certificate.
  files_.Write("both.crt",
               files_.authority().certificate() + next.certificate());
  files_.Write("next.crt", next.certificate());
  Load load(server->address(), files_.Client(/*shows=*/true, "both.crt"));
  const client::ClientOptions sees_new = files_.Client(true, "next.crt");
  EXPECT_FALSE(CallOnce(server->address(), sees_new).ok());
  files_.WriteServer(next);
  EXPECT_EQ(EventuallyServed(server->address(), sees_new), absl::OkStatus());
  // And back.
  files_.WriteServer(files_.authority());
  EXPECT_EQ(EventuallyServed(server->address(), files_.Client(true)),
            absl::OkStatus());
  EXPECT_THAT(load.Stop(), testing::IsEmpty());
  EXPECT_GT(load.calls(), 0);
}

TEST_F(TlsTest, AnotherAuthorityOfCallersTakesEffect) {
  const auto server = Start(/*mutual=*/true);
  const CertificateAuthority next("next authority");
  files_.Write("server_ca.crt", files_.authority().certificate());
  files_.WriteCaller(next, "caller");
  const client::ClientOptions options = files_.Client(true, "server_ca.crt");
  EXPECT_FALSE(CallOnce(server->address(), options).ok());
  files_.Write("authority.crt", next.certificate());
  EXPECT_EQ(EventuallyServed(server->address(), options), absl::OkStatus());
}

TEST_F(TlsTest, FilesThatDoNotFitLeaveWhatWas) {
  const RunningServer server =
      Launch({"--tls-certificate", files_.Path("server.crt"), "--tls-key",
              files_.Path("server.key")});
  const CertificateAuthority next("next authority");
  files_.Write("server.key", next.Sign("other").key);
  EXPECT_THAT(server.process->ReadLineWith("TLS goes on"),
              HasSubstr("is not the key of the certificate"));
  EXPECT_EQ(CallOnce(server.address, files_.Client()), absl::OkStatus());
  files_.Write("next.crt", next.certificate());
  files_.WriteServer(next, "renewed.test");
  EXPECT_THAT(server.process->ReadLineWith("new connections get"),
              HasSubstr("renewed.test, until "));
  EXPECT_EQ(EventuallyServed(server.address, files_.Client(false, "next.crt")),
            absl::OkStatus());
}

TEST_F(TlsTest, FilesThatAreNoneAreRefusedByName) {
  const auto refusal = [this](const std::string& certificate,
                              const std::string& key) {
    server::ServerOptions options = TestOptions();
    options.tls_certificate = files_.Path(certificate);
    options.tls_key = files_.Path(key);
    const absl::Status status = server::Server::Start(options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return static_cast<std::string>(status.message());
  };
  EXPECT_THAT(refusal("absent", "server.key"),
              AllOf(HasSubstr("--tls-certificate"), HasSubstr("absent"),
                    HasSubstr("No such file")));
  EXPECT_THAT(refusal("server.crt", ""),
              AllOf(HasSubstr("--tls-key"), HasSubstr("Is a directory")));
  EXPECT_THAT(
      refusal("server.key", "server.key"),
      AllOf(HasSubstr("--tls-certificate"), HasSubstr("holds no certificate")));
  EXPECT_THAT(refusal("server.crt", "server.crt"),
              AllOf(HasSubstr("--tls-key"), HasSubstr("holds no private key")));
  EXPECT_THAT(refusal("authority.crt", "server.key"),
              HasSubstr("is not the key of the certificate"));
}

TEST(ReachTest, PlainTextBeyondLoopbackIsRefusedUnlessSaidSoInWords) {
  server::ServerOptions options = TestOptions();
  for (const char* everywhere : {"0.0.0.0", "::"}) {
    options.grpc_address = everywhere;
    const absl::Status refused = server::Server::Start(options).status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("--grpc-address"), HasSubstr(everywhere),
                      HasSubstr("--tls-certificate"), HasSubstr("--insecure")));
  }
  options.insecure = true;
  EXPECT_TRUE(server::Server::Start(options).ok());
}

TEST(ReachTest, LoopbackNeedsNoWord) {
  server::ServerOptions options = TestOptions();
  for (const char* here : {"127.0.0.1", "127.1.2.3", "localhost"}) {
    options.grpc_address = here;
    EXPECT_TRUE(server::Server::Start(options).ok()) << here;
  }
}

}  // namespace
}  // namespace attention::test
