// Memory that runs out while a call over gRPC begins, or notes what came of its
// requests. gRPC's own allocations are left alone.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "attention/v1/attention.grpc.pb.h"
#include "server/models/model_repository.h"
#include "server/options/options.h"
#include "server/services/request_stream.h"
#include "server/services/unary_call.h"
#include "server/shards/shard_call.h"
#include "server/wire/attend_wire.h"
#include "tests/unit/server/grpc_allocation_fixture.h"

namespace attention::server {
namespace {

// Whose reply is so large that it is watched. The next allocation after it
// fails, or one after that.
class Large final : public Nothing {
 public:
  Large(int64_t fails, std::latch& begun) : fails_(fails), begun_(begun) {}
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts&) override {
    v1::AttendResponse response;
    response.set_id(std::string(16 << 10, 'i'));
    const grpc::Slice slice(response.SerializeAsString());
    ReplyBuffer reply(&slice, 1);
    begun_.wait();
    FailAllocation(fails_);
    return reply;
  }

 private:
  const int64_t fails_;
  std::latch& begun_;
};

TEST_F(GrpcAllocationTest, AUnaryCallIsAnswered) {
  const auto ask = [this](Failing& failing) {
    methods_.attend = [&](auto* context, const auto* request, auto* response) {
      failing.Begin(Stage::kBegin);
      return UnaryCall::Begin(
          Services(), calls_, Rpc::kAttend,
          [&](const Caller*) {
            return std::make_unique<Hooked>(failing, nullptr);
          },
          context, request, response);
    };
    v1::AttendResponse response;
    return Attend(response);
  };
  ExpectAnswers(ask, Stage::kBegin, grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcAllocationTest, AReplyThatNobodyCanWatchIsSent) {
  // Nothing, for the log is made with the first call; the copy of the peer's
  // name; its place among those that are watched.
  for (const int64_t fails : {-1, 0, 1}) {
    std::latch begun(1);
    methods_.attend = [&](auto* context, const auto* request, auto* response) {
      const absl::Cleanup begins = [&begun] { begun.count_down(); };
      return UnaryCall::Begin(
          Services(), calls_, Rpc::kAttend,
          [&](const Caller*) { return std::make_unique<Large>(fails, begun); },
          context, request, response);
    };
    v1::AttendResponse response;
    const grpc::Status status = Attend(response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_FALSE(response.id().empty());
    EXPECT_TRUE(
        calls_.WaitUntilNone(std::chrono::steady_clock::now() + kMostTime));
  }
}

TEST_F(GrpcAllocationTest, ACallOfShardsIsAnswered) {
  const ServerOptions options;
  const ModelRepository models;
  Peers peers(options, nullptr);
  const auto ask = [&](Failing& failing) {
    shard_methods_.attend = [&](auto* context, const auto* request,
                                auto* response) {
      const auto call = std::make_shared<ShardCall>(
          Services(), calls_, ShardCall::Origin{}, peers, *context, *response);
      call->Joined();
      failing.Begin(Stage::kBegin);
      call->Go(
          const_cast<grpc::ByteBuffer&>(*request),
          [&] { return std::make_shared<AttendWire>(false, models); },
          [&](const auto&, const auto&) {
            return std::make_unique<Hooked>(failing, nullptr);
          });
      return call.get();
    };
    grpc::ClientContext context;
    SetDeadline(context);
    v1::AttendShardsRequest request;
    *request.mutable_common() = SmallRequest();
    request.mutable_shard()->add_parts();
    v1::AttendResponse response;
    return v1::ShardService::NewStub(channel_)->Attend(&context, request,
                                                       &response);
  };
  ExpectAnswers(ask, Stage::kBegin, grpc::StatusCode::INVALID_ARGUMENT);
}

class GrpcStreamAllocationTest : public GrpcAllocationTest {
 protected:
  // Asks `requests` times on one stream. All are answered where it ends well;
  // the first is held until the last has come, the second waits for the first,
  // but where replies are in order: there all run at once.
  grpc::Status AskOnAStream(Failing& failing, int requests,
                            bool in_order = false) {
    std::latch last(requests);
    const auto step_of = [&](const grpc::ByteBuffer&) {
      last.count_down();
      failing.Begin(Stage::kArrive);
      if (in_order) return SequenceStep();
      return SequenceStep{{"a layer whose name takes memory of its own"}, true};
    };
    const auto new_operation = [&](const Caller*) {
      if (failing.stage == Stage::kReply) failing.End();
      return std::make_unique<Hooked>(failing, &last);
    };
    const auto encode_error = [&](const std::string&, const absl::Status&) {
      const grpc::Slice nothing;
      ReplyBuffer reply(&nothing, 1);
      failing.Begin(Stage::kReply);
      return reply;
    };
    methods_.stream = [&](grpc::CallbackServerContext* context) {
      StreamRules rules{.rpc = Rpc::kAttendStream,
                        .max_in_flight = 8,
                        .new_operation = new_operation,
                        .step_of = step_of,
                        .encode_error = encode_error,
                        .in_order = in_order};
      failing.Begin(Stage::kBegin);
      const absl::Cleanup end = [&] { failing.End(); };
      return RequestStream::Begin(Services(), calls_, std::move(rules),
                                  *context);
    };
    grpc::ClientContext context;
    SetDeadline(context);
    const auto stub = v1::AttentionService::NewStub(channel_);
    const auto stream = stub->AttendStream(&context);
    for (int i = 0; i < requests; ++i) stream->Write(SmallRequest());
    stream->WritesDone();
    int replies = 0;
    v1::AttendStreamResponse reply;
    while (stream->Read(&reply)) ++replies;
    grpc::Status status = stream->Finish();
    EXPECT_TRUE(!status.ok() || replies == requests) << replies;
    return status;
  }
};

TEST_F(GrpcStreamAllocationTest, AStreamBeginsOrIsRefused) {
  const auto ask = [&](Failing& failing) { return AskOnAStream(failing, 1); };
  ExpectAnswers(ask, Stage::kBegin, grpc::StatusCode::OK);
}

TEST_F(GrpcStreamAllocationTest, ARequestBeginsOrIsRefused) {
  const auto ask = [&](Failing& failing) { return AskOnAStream(failing, 1); };
  ExpectAnswers(ask, Stage::kArrive, grpc::StatusCode::OK);
}

TEST_F(GrpcStreamAllocationTest, ARequestEndsOrItsStreamDoes) {
  for (const bool in_order : {false, true}) {
    SCOPED_TRACE(in_order);
    const auto ask = [&](Failing& failing) {
      return AskOnAStream(failing, 3, in_order);
    };
    ExpectAnswers(ask, Stage::kReply, grpc::StatusCode::OK);
  }
}

}  // namespace
}  // namespace attention::server
