#ifndef ATTENTION_TESTS_UNIT_SERVER_GRPC_ALLOCATION_FIXTURE_H_
#define ATTENTION_TESTS_UNIT_SERVER_GRPC_ALLOCATION_FIXTURE_H_

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "server/services/request_stream.h"
#include "tests/unit/server/allocation_test_services.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/failing_allocations.h"

namespace attention::server {

inline constexpr std::chrono::minutes kMostTime{1};

/// Where one of a call's allocations fails.
enum class Stage : uint8_t { kBegin, kArrive, kReply };

/// The allocation that fails is that of `number` in its stage.
struct Failing {
  void Begin(Stage now) {
    if (now == stage && !begun.exchange(true)) FailAllocation(number);
  }
  void End() {
    if (EndFailing() == Came::kToItsEnd) came = Came::kToItsEnd;
  }

  Stage stage;
  int64_t number;
  std::atomic<bool> begun = false;
  std::atomic<Came> came = Came::kToItsEndWithout;
};

/// Fails, so that its reply is put together by the call; once `wait` is over,
/// where it is not null.
class Hooked final : public Nothing {
 public:
  Hooked(Failing& failing, std::latch* wait) : failing_(failing), wait_(wait) {}

  // It has begun.
  Work DecodingWork(int64_t /*message_bytes*/) const override {
    failing_.End();
    return {};
  }
  absl::Status Run(const std::stop_token&, const Pauses&,
                   RequestFacts&) override {
    // The reply before it has been noted, by this worker.
    if (failing_.stage == Stage::kReply) failing_.End();
    if (wait_ != nullptr) wait_->wait();
    return absl::InvalidArgumentError("wrong");
  }

 private:
  Failing& failing_;
  std::latch* const wait_;
};

using UnaryMethod = std::function<grpc::ServerUnaryReactor*(
    grpc::CallbackServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer*)>;
using StreamMethod =
    std::function<RequestStream::Reactor*(grpc::CallbackServerContext*)>;

/// Methods that a test gives. What is called is a copy: the next one may come
/// while it returns.
class GivenMethods final
    : public v1::AttentionService::WithRawCallbackMethod_Attend<
          v1::AttentionService::WithRawCallbackMethod_AttendStream<
              v1::AttentionService::Service>> {
 public:
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return UnaryMethod(attend)(context, request, response);
  }
  RequestStream::Reactor* AttendStream(
      grpc::CallbackServerContext* context) override {
    return StreamMethod(stream)(context);
  }

  UnaryMethod attend;
  StreamMethod stream;
};

class GivenShardMethods final
    : public v1::ShardService::WithRawCallbackMethod_Attend<
          v1::ShardService::Service> {
 public:
  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return UnaryMethod(attend)(context, request, response);
  }

  UnaryMethod attend;
};

/// A server, and a caller of the methods that a test gives.
class GrpcAllocationTest : public AllocationTestServices {
 protected:
  GrpcAllocationTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&methods_);
    builder.RegisterService(&shard_methods_);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials());
  }
  ~GrpcAllocationTest() override { server_->Shutdown(); }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kMostTime);
  }

  grpc::Status Attend(v1::AttendResponse& response) {
    grpc::ClientContext context;
    SetDeadline(context);
    return v1::AttentionService::NewStub(channel_)->Attend(
        &context, SmallRequest(), &response);
  }

  /// Calls until no allocation fails. What is answered has left.
  void ExpectAnswers(const std::function<grpc::Status(Failing&)>& ask,
                     Stage stage, grpc::StatusCode good) {
    ForEachAllocation([&](int64_t number) {
      Failing failing{stage, number};
      const grpc::Status status = ask(failing);
      if (failing.came == Came::kToItsEnd) {
        EXPECT_EQ(status.error_code(), good) << status.error_message();
      } else {
        EXPECT_TRUE(status.error_code() == good ||
                    status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
            << status.error_code() << " " << status.error_message();
      }
      EXPECT_TRUE(
          calls_.WaitUntilNone(std::chrono::steady_clock::now() + kMostTime));
      return failing.came.load();
    });
  }

  GivenMethods methods_;
  GivenShardMethods shard_methods_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_GRPC_ALLOCATION_FIXTURE_H_
