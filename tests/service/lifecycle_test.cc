// Starting, being asked how one is, draining and ending.
#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr char kService[] = "attention.v1.AttentionService";

// grpc.health.v1: HealthCheckRequest { string service = 1 }, and the serialized
// HealthCheckResponse { ServingStatus status = 1 }.
std::string HealthRequest(const std::string& service) {
  if (service.empty()) return "";
  return std::string("\x0a") + static_cast<char>(service.size()) + service;
}
const char* const kServing = "\x08\x01";
const char* const kNotServing = "\x08\x02";
const char* const kServiceUnknown = "\x08\x03";

// An open Watch, whose first message is read by the caller.
std::unique_ptr<ByteStream> Watch(WireClient& client,
                                  const std::string& service) {
  auto watch = client.OpenStream(kHealthWatch);
  EXPECT_TRUE(watch->Write(HealthRequest(service)));
  watch->WritesDone();
  return watch;
}

TEST(HealthTest, CheckSaysThatServerAndServiceAreServing) {
  const auto server = StartServer();
  WireClient client(server->address());
  for (const char* service : {"", kService}) {
    const auto reply = client.Call(kHealthCheck, HealthRequest(service));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(*reply, kServing) << service;
  }
}

TEST(HealthTest, CheckOfAnUnknownServiceIsNotFound) {
  const auto server = StartServer();
  WireClient client(server->address());
  EXPECT_EQ(client.Call(kHealthCheck, HealthRequest("nobody")).status().code(),
            StatusCode::kNotFound);
}

TEST(HealthTest, WatchSaysWhatChanges) {
  const auto server = StartServer();
  WireClient client(server->address());
  const auto all = Watch(client, "");
  const auto service = Watch(client, kService);
  const auto unknown = Watch(client, "nobody");
  EXPECT_EQ(all->Read(), kServing);
  EXPECT_EQ(service->Read(), kServing);
  EXPECT_EQ(unknown->Read(), kServiceUnknown);
  const auto drained =
      std::async(std::launch::async, [&server] { server->Drain(); });
  EXPECT_EQ(all->Read(), kNotServing);
  EXPECT_EQ(service->Read(), kNotServing);
  drained.wait();
}

TEST(ReflectionTest, ListsTheServices) {
  const auto server = StartServer();
  WireClient client(server->address());
  const auto stream = client.OpenStream(kReflection);
  // ServerReflectionRequest { string list_services = 7 }
  ASSERT_TRUE(stream->Write(std::string("\x3a\x01*")));
  const std::optional<std::string> reply = stream->Read();
  ASSERT_TRUE(reply);
  EXPECT_THAT(*reply, HasSubstr(kService));
  EXPECT_THAT(*reply, HasSubstr("grpc.health.v1.Health"));
}

TEST(ReflectionTest, DescribesTheService) {
  const auto server = StartServer();
  WireClient client(server->address());
  const auto stream = client.OpenStream(kReflection);
  // ServerReflectionRequest { string file_containing_symbol = 4 }
  ASSERT_TRUE(stream->Write(std::string("\x22") +
                            static_cast<char>(sizeof(kService) - 1) +
                            kService));
  const std::optional<std::string> reply = stream->Read();
  ASSERT_TRUE(reply);
  EXPECT_THAT(*reply, HasSubstr("attend_mask"));
}

TEST(ReflectionTest, SaysWhatItDoesNotKnow) {
  const auto server = StartServer();
  WireClient client(server->address());
  const auto stream = client.OpenStream(kReflection);
  // ServerReflectionRequest { string file_by_filename = 3 }
  ASSERT_TRUE(stream->Write(std::string("\x1a\x06nobody")));
  std::optional<std::string> reply = stream->Read();
  ASSERT_TRUE(reply);
  EXPECT_THAT(*reply, HasSubstr("nobody is not known here"));
  ASSERT_TRUE(stream->Write(""));
  reply = stream->Read();
  ASSERT_TRUE(reply);
  EXPECT_THAT(*reply, HasSubstr("message_request: not set"));
  ASSERT_TRUE(stream->Write("\xff"));
  EXPECT_EQ(stream->Read(), std::nullopt);
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ServerInfoTest, SaysVersionBackendsAndLimits) {
  server::ServerOptions options = TestOptions();
  options.worker_threads = 3;
  options.max_request_bytes = 1 << 20;
  options.max_response_bytes = 2 << 20;
  options.max_requests_in_flight = 7;
  options.memory_limit = 128 << 20;
  options.max_stream_requests_in_flight = 5;
  const auto server = StartServer(options);
  WireClient client(server->address());
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\..*"));
  EXPECT_EQ(info->worker_threads(), 3);
  EXPECT_EQ(info->limits().max_request_bytes(), 1u << 20);
  EXPECT_EQ(info->limits().max_response_bytes(), 2u << 20);
  EXPECT_EQ(info->limits().max_requests_in_flight(), 7u);
  EXPECT_EQ(info->limits().max_bytes_in_flight(), 64u << 20);
  EXPECT_EQ(info->limits().max_stream_requests_in_flight(), 5u);
  ASSERT_GE(info->backends_size(), 1);
  const v1::Backend& last = info->backends(info->backends_size() - 1);
  EXPECT_EQ(last.name(), "reference");
  EXPECT_NE(last.instruction_set(), "");
}

TEST(StartTest, ATakenPortIsAClearErrorAndTheFirstServerGoesOn) {
  const auto first = StartServer();
  server::ServerOptions options = TestOptions();
  options.grpc_port = first->port();
  const auto second = server::Server::Start(options);
  ASSERT_FALSE(second.ok());
  ExpectRefusal(second.status(), StatusCode::kUnavailable,
                {"cannot listen on " + first->address(), "in use"});
  WireClient client(first->address());
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST(StartTest, OptionsThatMakeNoSenseAreRefusedByName) {
  server::ServerOptions options = TestOptions();
  options.grpc_port = 70000;
  ExpectRefusal(server::Server::Start(options).status(),
                StatusCode::kInvalidArgument, {"--grpc-port: 70000"});
  options = TestOptions();
  options.backend = "abacus";
  ExpectRefusal(server::Server::Start(options).status(),
                StatusCode::kInvalidArgument, {"--backend", "abacus"});
  options = TestOptions();
  options.grpc_address = "not an address";
  ExpectRefusal(server::Server::Start(options).status(),
                StatusCode::kInvalidArgument, {"", "not an address"});
}

// Root may write where modes say no, but not into /sys.
TEST(StartTest, AFolderForSequencesThatCannotBeWrittenIsRefusedByName) {
  server::ServerOptions options = TestOptions();
  for (const char* folder : {"/sys", "/nonexistent"}) {
    options.resident_folder = folder;
    const absl::Status refused = server::Server::Start(options).status();
    EXPECT_THAT(
        std::string(refused.message()),
        HasSubstr(absl::StrCat("--resident-folder: '", folder, "' (expected")));
  }
}

TEST(StartTest, TheSummarySaysWhereAndOnWhat) {
  const auto server = StartServer();
  EXPECT_THAT(server->Summary(), HasSubstr(server->address()));
  EXPECT_THAT(server->Summary(), HasSubstr("reference"));
  EXPECT_EQ(server->Summary().find('\n'), std::string::npos);
}

// A server that holds the first tile of a request.
class DrainTest : public testing::Test {
 protected:
  DrainTest() { gate_.CloseAt(1); }
  ~DrainTest() override { gate_.Open(); }

  void Start(std::chrono::milliseconds drain_time,
             server::ServerOptions options = TestOptions()) {
    options.drain_time = drain_time;
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
    watch_ = Watch(*client_, "");
    EXPECT_EQ(watch_->Read(), kServing);
  }

  // Returns as soon as the server says that it is not ready any more.
  std::future<bool> StartDraining() {
    auto drained =
        std::async(std::launch::async, [this] { return server_->Drain(); });
    EXPECT_EQ(watch_->Read(), kNotServing);
    return drained;
  }

  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
  std::unique_ptr<ByteStream> watch_;
};

// Longer than a test may take: a drain that needs its time does not pass.
constexpr std::chrono::milliseconds kForever{3'600'000};

TEST_F(DrainTest, ARunningRequestFinishesAndNewOnesAreUnavailable) {
  // With room for one, a request that comes between the turn of readiness and
  // the end of admission is refused for that, and is not held.
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 1;
  Start(kForever, options);
  const auto running =
      client_->Start(kAttend, GoodRequest().SerializeAsString());
  gate_.WaitUntilHolding();
  // Readiness turns while the request still runs.
  std::future<bool> drained = StartDraining();
  StatusCode refused = StatusCode::kResourceExhausted;
  for (int tries = 0;
       tries < 10'000 && refused == StatusCode::kResourceExhausted; ++tries) {
    refused = client_->Attend(GoodRequest()).status().code();
  }
  EXPECT_EQ(refused, StatusCode::kUnavailable);
  gate_.Open();
  const auto bytes = running->Wait();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ExpectGoodReply(response);
  EXPECT_TRUE(drained.get()) << "nothing had to be cancelled";
}

TEST_F(DrainTest, ARunningRequestOfAStreamFinishes) {
  Start(kForever);
  const auto stream = client_->OpenStream(kAttendStream);
  ASSERT_TRUE(stream->Write(GoodRequest("last").SerializeAsString()));
  gate_.WaitUntilHolding();
  std::future<bool> drained = StartDraining();
  gate_.Open();
  const auto bytes = stream->Read();
  ASSERT_TRUE(bytes);
  v1::AttendStreamResponse reply;
  ASSERT_TRUE(reply.ParseFromString(*bytes));
  ASSERT_TRUE(reply.has_result()) << reply.error().message();
  ExpectGoodReply(reply.result(), "last");
  EXPECT_FALSE(stream->Read());
  EXPECT_EQ(stream->Finish().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(drained.get());
}

TEST_F(DrainTest, AnOpenWatchAndAnIdleStreamDoNotHoldItUp) {
  Start(kForever);
  const auto idle = client_->OpenStream(kAttendStream);
  gate_.Open();
  ASSERT_TRUE(idle->Write(GoodRequest("before").SerializeAsString()));
  ASSERT_TRUE(idle->Read());
  std::future<bool> drained = StartDraining();
  EXPECT_TRUE(drained.get());
  EXPECT_FALSE(idle->Read());
  EXPECT_EQ(idle->Finish().code(), StatusCode::kUnavailable);
}

TEST_F(DrainTest, WhatStillRunsAtItsEndIsCancelled) {
  gate_.AfterOpening([this] {
    // Paces the tiles: the server is cancelling this request meanwhile.
    (void)client_->Call(kHealthCheck, "");
  });
  Start(std::chrono::milliseconds(0));
  const auto running =
      client_->Start(kAttend, LargeRequest().SerializeAsString());
  gate_.WaitUntilHolding();
  std::future<bool> drained = StartDraining();
  gate_.Open();
  EXPECT_EQ(running->Wait().status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(drained.get()) << "a request had to be cancelled";
  EXPECT_LT(gate_.tiles(), 250);  // of more than 1000
}

TEST_F(DrainTest, ASecondDrainSaysTheSame) {
  Start(kForever);
  gate_.Open();
  EXPECT_TRUE(server_->Drain());
  EXPECT_TRUE(server_->Drain());
}

// What ends gRPC may wait for 10 s.
TEST_F(DrainTest, TheEndOfTheLastServerDoesNotEndGrpc) {
  Start(kForever);
  gate_.Open();
  watch_.reset();
  client_.reset();
  server_.reset();
  EXPECT_EQ(grpc_is_initialized(), 1);
}

TEST_F(DrainTest, AfterItThePortIsFree) {
  Start(kForever);
  gate_.Open();
  server_->Drain();
  server::ServerOptions options = TestOptions();
  options.grpc_port = server_->port();
  EXPECT_TRUE(server::Server::Start(options).ok());
}

}  // namespace
}  // namespace attention::test
