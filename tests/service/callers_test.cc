// Who calls: by token or certificate, and what a caller's name is used for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "attention/v1/attention.pb.h"
#include "inference/grpc_service.pb.h"
#include "tests/client/requests.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/tls_files.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class CallersTest : public testing::Test {
 protected:
  void WriteCallers(const std::string& entries) {
    files_.Write("callers.json", CallersText(entries));
  }
  server::ServerOptions Options() const {
    server::ServerOptions options = TestOptions();
    options.callers_file = files_.Path("callers.json");
    return options;
  }
  static StatusCode Attend(const server::Server& server,
                           const std::string& authorization) {
    WireClient client(server.address(), authorization);
    return client.Attend(GoodRequest()).status().code();
  }

  TlsFiles files_;
};

TEST_F(CallersTest, ATokenThatIsKnownIsServedAndNoOther) {
  WriteCallers(CallerEntry("ranker", "secret"));
  const auto server = StartServer(Options());
  EXPECT_EQ(Attend(*server, "Bearer secret"), StatusCode::kOk);
  EXPECT_EQ(Attend(*server, "bearer secret"), StatusCode::kOk);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer secre",
                            "Bearer secret2", "secret", "Basic secret"}) {
    EXPECT_EQ(Attend(*server, wrong), StatusCode::kUnauthenticated) << wrong;
  }
}

TEST_F(CallersTest, EveryMethodWantsACallerButWhatSaysThatTheServerLives) {
  WriteCallers("");
  const auto server = StartServer(Options());
  WireClient client(server->address());
  for (const auto* service :
       {v1::AttendRequest::descriptor()->file()->service(0),
        inference::ServerLiveRequest::descriptor()->file()->service(0)}) {
    for (int i = 0; i < service->method_count(); ++i) {
      const auto& method = *service->method(i);
      const std::string path = "/" + service->full_name() + "/" + method.name();
      const absl::Status status = method.client_streaming()
                                      ? client.OpenStream(path)->Finish()
                                      : client.Call(path, "").status();
      const bool open =
          method.name() == "ServerLive" || method.name() == "ServerReady";
      EXPECT_EQ(status.code(),
                open ? StatusCode::kOk : StatusCode::kUnauthenticated)
          << path;
    }
  }
  EXPECT_TRUE(client.Call(kHealthCheck, "").ok());
}

TEST_F(CallersTest, AStreamIsItsCallers) {
  WriteCallers(CallerEntry("ranker", "secret"));
  const auto server = StartServer(Options());
  WireClient client(server->address(), "Bearer secret");
  const auto stream = client.OpenStream(kAttendStream);
  ASSERT_TRUE(stream->Write(GoodRequest("a").SerializeAsString()));
  EXPECT_TRUE(stream->Read());
}

// Until the file has been read again, and said what it says now.
TEST_F(CallersTest, AnOpenStreamHasItsCallersLimitsOfToday) {
  WriteCallers(CallerEntry("ranker", "secret"));
  const auto server = StartServer(Options());
  WireClient client(server->address(), "Bearer secret");
  const auto stream = client.OpenStream(kAttendStream);
  WriteCallers(CallerEntry("ranker", "secret", R"(, "max_dimension": 1)"));
  v1::AttendStreamResponse reply;
  do {
    ASSERT_TRUE(stream->Write(GoodRequest().SerializeAsString()));
    const std::optional<std::string> bytes = stream->Read();
    ASSERT_TRUE(bytes) << stream->Finish();
    ASSERT_TRUE(reply.ParseFromString(*bytes));
  } while (!reply.has_error());
  EXPECT_EQ(reply.error().code(),
            static_cast<int>(StatusCode::kResourceExhausted));
}

TEST_F(CallersTest, ACertificatesNamesAreKnown) {
  WriteCallers(R"({"name": "a", "certificates": ["spiffe://test/a"]},
                  {"name": "b", "certificates": ["b.test"]})");
  server::ServerOptions options = Options();
  files_.Use(options, /*mutual=*/true);
  const auto server = StartServer(options);
  const auto ask = [&](const std::string& token = "") {
    client::ClientOptions with = files_.Client(/*shows=*/true);
    with.target = server->address();
    with.token = token;
    return client::Client::Create(with)
        ->Attend(client::NumberRequest(1))
        .status()
        .code();
  };
  files_.WriteCaller(files_.authority(), "x", {"URI:spiffe://test/a"});
  EXPECT_EQ(ask(), StatusCode::kOk);
  EXPECT_EQ(ask("unknown"), StatusCode::kUnauthenticated);
  files_.WriteCaller(files_.authority(), "b.test");
  EXPECT_EQ(ask(), StatusCode::kOk);
  files_.WriteCaller(files_.authority(), "c.test");
  EXPECT_EQ(ask(), StatusCode::kUnauthenticated);
  // The common name does not count beside alternative names.
  files_.WriteCaller(files_.authority(), "b.test", {"DNS:c.test"});
  EXPECT_EQ(ask(), StatusCode::kUnauthenticated);
}

TEST_F(CallersTest, TheFileIsReadAgainAndAWrongOneIsNot) {
  WriteCallers(CallerEntry("ranker", "secret"));
  const RunningServer server = Launch(
      {"--callers-file", files_.Path("callers.json"), "--log-level", "debug"});
  const auto attend = [&](const std::string& token) {
    WireClient client(server.address, "Bearer " + token);
    return client.Attend(GoodRequest()).status().code();
  };
  EXPECT_EQ(attend("secret"), StatusCode::kOk);
  EXPECT_THAT(server.process->ReadLineWith("attend id="),
              HasSubstr(" caller=ranker "));
  files_.Write("callers.json", "{");
  EXPECT_THAT(server.process->ReadLineWith("callers stay as they were"),
              HasSubstr("--callers-file"));
  EXPECT_EQ(attend("secret"), StatusCode::kOk);
  WriteCallers(CallerEntry("other", "next"));
  server.process->ReadLineWith("1 callers are known now");
  EXPECT_EQ(attend("next"), StatusCode::kOk);
  EXPECT_EQ(attend("secret"), StatusCode::kUnauthenticated);
  EXPECT_THAT(server.process->ReadLineWith("unknown callers"),
              HasSubstr("the token is not known"));
}

TEST_F(CallersTest, AFolderInThePlaceOfTheFileChangesNothing) {
  WriteCallers(CallerEntry("ranker", "secret"));
  const auto link_to = [this](const std::string& target) {
    std::filesystem::create_symlink(target, files_.Path("next"));
    std::filesystem::rename(files_.Path("next"), files_.Path("link"));
  };
  link_to("callers.json");
  const RunningServer server = Launch({"--callers-file", files_.Path("link")});
  link_to(".");
  EXPECT_THAT(server.process->ReadLineWith("callers stay as they were"),
              HasSubstr("link' cannot be read"));
  WireClient client(server.address, "Bearer secret");
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST_F(CallersTest, AFolderAtTheStartEndsItByName) {
  server::ServerOptions options = TestOptions();
  options.callers_file = files_.Path("");
  ExpectRefusal(server::Server::Start(options).status(),
                StatusCode::kInvalidArgument,
                {"--callers-file", options.callers_file, "cannot be read"});
}

TEST_F(CallersTest, AFileThatIsWrongAtTheStartEndsIt) {
  files_.Write("callers.json", "{}");
  const absl::Status status = server::Server::Start(Options()).status();
  ExpectRefusal(status, StatusCode::kInvalidArgument,
                {"--callers-file", "callers.json", "callers: expected"});
}

TEST_F(CallersTest, ACallersConnectionsShareItsRequests) {
  WriteCallers(CallerEntry("small", "s", R"(, "max_requests_in_flight": 1)") +
               "," + CallerEntry("other", "o"));
  TileGate gate;
  gate.CloseAt(1);
  const auto server = StartServer(Options(), &gate);
  WireClient first(server->address(), "Bearer s");
  WireClient second(server->address(), "Bearer s");
  WireClient other(server->address(), "Bearer o");
  const auto running = first.Start(kAttend, GoodRequest().SerializeAsString());
  gate.WaitUntilHolding();
  ExpectRefusal(second.Attend(GoodRequest()).status(),
                StatusCode::kResourceExhausted,
                {"the caller's share is full", "its max_requests_in_flight"});
  const auto others = other.Start(kAttend, GoodRequest().SerializeAsString());
  gate.Open();
  EXPECT_TRUE(others->Wait().ok());
  EXPECT_TRUE(running->Wait().ok());
}

TEST_F(CallersTest, ACallerHasItsOwnBytesAndTime) {
  WriteCallers(CallerEntry("small", "s", R"(, "max_bytes_in_flight": 1000)") +
               "," +
               CallerEntry("short", "t", R"(, "max_compute_seconds": 0.001)"));
  const auto server = StartServer(Options());
  WireClient small(server->address(), "Bearer s");
  ExpectRefusal(small.Attend(GoodRequest()).status(),
                StatusCode::kResourceExhausted,
                {"the request needs", "max_bytes_in_flight of this caller"});
  WireClient brief(server->address(), "Bearer t");
  ExpectRefusal(
      brief.Call(kAttend, LargeRequest().SerializeAsString()).status(),
      StatusCode::kResourceExhausted, {"computing was stopped after 1 ms"});
}

}  // namespace
}  // namespace attention::test
