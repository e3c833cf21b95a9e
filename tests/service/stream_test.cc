// AttendStream: many requests over one call, answered as they finish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

class StreamTest : public testing::Test {
 protected:
  void Start(const server::ServerOptions& options = TestOptions()) {
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
    stream_ = client_->OpenStream(kAttendStream);
  }

  bool Write(const v1::AttendRequest& request) {
    return stream_->Write(request.SerializeAsString());
  }

  // The next reply; nothing where the stream has ended.
  std::optional<v1::AttendStreamResponse> Read() {
    const std::optional<std::string> bytes = stream_->Read();
    if (!bytes) return std::nullopt;
    v1::AttendStreamResponse reply;
    EXPECT_TRUE(reply.ParseFromString(*bytes));
    return reply;
  }

  // All replies up to the end of the stream, by id: each id must come once.
  std::map<std::string, v1::AttendStreamResponse> ReadAll() {
    std::map<std::string, v1::AttendStreamResponse> replies;
    while (const auto reply = Read()) {
      EXPECT_TRUE(replies.emplace(reply->id(), *reply).second)
          << "a second reply to " << reply->id();
    }
    return replies;
  }

  static void ExpectGood(const v1::AttendStreamResponse& reply) {
    ASSERT_TRUE(reply.has_result()) << reply.error().message();
    ExpectGoodReply(reply.result(), reply.id());
  }
  static void ExpectError(const v1::AttendStreamResponse& reply,
                          StatusCode code, const std::string& message) {
    ASSERT_TRUE(reply.has_error()) << reply.ShortDebugString();
    EXPECT_EQ(static_cast<StatusCode>(reply.error().code()), code);
    EXPECT_THAT(reply.error().message(), HasSubstr(message));
  }

  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
  std::unique_ptr<ByteStream> stream_;
};

TEST_F(StreamTest, AnswersRequestsOneAfterTheOther) {
  Start();
  for (const char* id : {"a", "b", "c"}) {
    ASSERT_TRUE(Write(GoodRequest(id)));
    const auto reply = Read();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->id(), id);
    ExpectGood(*reply);
  }
  stream_->WritesDone();
  EXPECT_FALSE(Read());
  EXPECT_EQ(stream_->Finish(), absl::OkStatus());
}

TEST_F(StreamTest, EndsWellWithoutAnyRequest) {
  Start();
  stream_->WritesDone();
  EXPECT_FALSE(Read());
  EXPECT_EQ(stream_->Finish(), absl::OkStatus());
}

TEST_F(StreamTest, RepliesComeAsTheyFinish) {
  gate_.CloseAt(1);
  server::ServerOptions options = TestOptions();
  options.worker_threads = 2;
  Start(options);
  ASSERT_TRUE(Write(GoodRequest("slow")));
  gate_.WaitUntilHolding();
  // Nothing is computed of this one, so no tile holds it up.
  v1::AttendRequest bad = GoodRequest("refused");
  bad.clear_query();
  ASSERT_TRUE(Write(bad));
  const auto first = Read();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->id(), "refused");
  gate_.Open();
  const auto second = Read();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->id(), "slow");
  ExpectGood(*second);
}

TEST_F(StreamTest, BadRequestsDoNotEndTheStream) {
  Start();
  v1::AttendRequest no_key = GoodRequest("no key");
  no_key.mutable_key_value()->clear_key();
  v1::AttendRequest huge = GoodRequest("huge");
  *huge.mutable_key_value()->mutable_key() =
      MakeTensor(v1::DATA_TYPE_FP32, {2, 2, 0, 8}, {});
  *huge.mutable_key_value()->mutable_value() =
      MakeTensor(v1::DATA_TYPE_FP32, {2, 2, 0, int64_t{1} << 40}, {});
  ASSERT_TRUE(Write(GoodRequest("first")));
  ASSERT_TRUE(Write(no_key));
  ASSERT_TRUE(Write(GoodRequest("second")));
  ASSERT_TRUE(Write(huge));
  ASSERT_TRUE(Write(GoodRequest("third")));
  stream_->WritesDone();
  const auto replies = ReadAll();
  EXPECT_EQ(stream_->Finish(), absl::OkStatus());
  ASSERT_EQ(replies.size(), 5u);
  for (const char* id : {"first", "second", "third"}) {
    ExpectGood(replies.at(id));
  }
  ExpectError(replies.at("no key"), StatusCode::kInvalidArgument,
              "key: missing");
  ExpectError(replies.at("huge"), StatusCode::kResourceExhausted, "output: ");
}

TEST_F(StreamTest, AMessageThatIsNoRequestIsAnsweredWithoutAnId) {
  Start();
  ASSERT_TRUE(stream_->Write("hello, is this attention?"));
  const auto reply = Read();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->id(), "");
  ExpectError(*reply, StatusCode::kInvalidArgument, "");
  ASSERT_TRUE(Write(GoodRequest("after")));
  const auto after = Read();
  ASSERT_TRUE(after);
  ExpectGood(*after);
}

TEST_F(StreamTest, ARequestWithoutAnIdIsRefused) {
  Start();
  ASSERT_TRUE(Write(GoodRequest("")));
  const auto reply = Read();
  ASSERT_TRUE(reply);
  ExpectError(*reply, StatusCode::kInvalidArgument, "id: missing");
}

TEST_F(StreamTest, EachOfManyRequestsIsAnsweredOnce) {
  server::ServerOptions options = TestOptions();
  options.max_stream_requests_in_flight = 3;
  // The stream is not read beyond its bound: admission, which gives a caller
  // half of the places, never sees a fourth.
  options.max_requests_in_flight = 6;
  Start(options);
  constexpr int kRequests = 300;
  std::thread writer([this] {
    for (int i = 0; i < kRequests; ++i) {
      EXPECT_TRUE(Write(GoodRequest(absl::StrCat(i))));
    }
    stream_->WritesDone();
  });
  const auto replies = ReadAll();
  writer.join();
  EXPECT_EQ(stream_->Finish(), absl::OkStatus());
  EXPECT_EQ(replies.size(), static_cast<size_t>(kRequests));
  for (const auto& [id, reply] : replies) ExpectGood(reply);
}

TEST_F(StreamTest, LargeRepliesWaitForAClientThatWritesEverythingFirst) {
  server::ServerOptions options = TestOptions();
  options.max_stream_requests_in_flight = 4;
  options.max_requests_in_flight = 8;
  Start(options);
  // 300 bytes each, which the connection takes without the server reading them;
  // the replies are 2 MiB each, which it does not.
  constexpr int kRequests = 40;
  v1::AttendRequest request;
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {8, 1}, 1);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = MakeTensor(v1::DATA_TYPE_FP32, {0, 1}, {});
  *key_value.mutable_value() = MakeTensor(v1::DATA_TYPE_FP32, {0, 1 << 16}, {});
  for (int i = 0; i < kRequests; ++i) {
    request.set_id(absl::StrCat(i));
    ASSERT_TRUE(Write(request));
  }
  stream_->WritesDone();
  int replies = 0;
  while (const auto reply = Read()) {
    ASSERT_TRUE(reply->has_result()) << reply->error().message();
    EXPECT_EQ(reply->result().output().data().size(), 8u * 4 * (1 << 16));
    ++replies;
  }
  EXPECT_EQ(stream_->Finish(), absl::OkStatus());
  EXPECT_EQ(replies, kRequests);
}

TEST_F(StreamTest, ACancelInTheMiddleLeavesTheServerServing) {
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 8;
  Start(options);
  for (int i = 0; i < 20; ++i) {
    v1::AttendRequest request = LargeRequest();
    request.set_id(absl::StrCat(i));
    if (!Write(request)) break;
    if (i == 3) stream_->Cancel();
  }
  EXPECT_EQ(stream_->Finish().code(), StatusCode::kCancelled);
  ExpectGoodReply(AttendOnceAdmitted(*client_, GoodRequest()));
}

TEST_F(StreamTest, AMessageBeyondTheLimitEndsTheStreamAndNotTheServer) {
  server::ServerOptions options = TestOptions();
  options.max_request_bytes = 16 << 10;
  Start(options);
  Write(LargeRequest());
  while (Read()) {
  }
  EXPECT_EQ(stream_->Finish().code(), StatusCode::kResourceExhausted);
  ExpectGoodReply(client_->Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
