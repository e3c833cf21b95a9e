// A second operation beside attention, over a real connection: it needs no
// change in scheduling or services.
#include "server/request/operation.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "server/scheduling/active_calls.h"
#include "server/services/request_stream.h"
#include "server/services/unary_call.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::testing::ElementsAre;

// Sequences that stay between calls.
struct Store {
  std::mutex mutex;
  std::map<std::string, std::string> sequences;
  std::optional<std::latch> gate;  // an append waits for it
};

// "NAME:TEXT" appends the text to a sequence; the reply is all of it.
class Append final : public Operation {
 public:
  Append(Store& store, bool quick) : store_(store), quick_(quick) {}

  const char* name() const override { return "append"; }
  absl::Status Decode(ReceivedMessage message, HoldBytes,
                      RequestFacts& facts) override {
    const grpc::ByteBuffer bytes(message.slices().data(),
                                 message.slices().size());
    const std::string text = Flatten(bytes);
    const size_t colon = text.find(':');
    if (colon == std::string::npos) {
      return absl::InvalidArgumentError("name: missing");
    }
    name_ = facts.id = text.substr(0, colon);
    text_ = text.substr(colon + 1);
    return absl::OkStatus();
  }
  absl::StatusOr<OperationNeeds> Plan(RequestFacts&) override {
    return OperationNeeds{.reply_bytes = static_cast<int64_t>(text_.size()),
                          .work = {},
                          .quick = quick_};
  }
  void Gather(WorkerPool*) override {}
  absl::Status Run(const std::stop_token& stop, const Pauses&,
                   RequestFacts& facts) override {
    facts.backend = "store";
    if (store_.gate.has_value()) store_.gate->wait();
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    const std::lock_guard lock(store_.mutex);
    text_ = store_.sequences[name_] += text_;
    return absl::OkStatus();
  }
  absl::StatusOr<ReplyBuffer> Encode(RequestFacts&) override {
    const grpc::Slice slice(text_);
    return ReplyBuffer(&slice, 1);
  }

 private:
  Store& store_;
  const bool quick_;
  std::string name_;
  std::string text_;
};

ReplyBuffer ErrorReply(const std::string& id, const absl::Status& status) {
  const grpc::Slice slice(absl::StrCat(id, "! ", status.message()));
  return {&slice, 1};
}

using Base = v1::AttentionService::WithRawCallbackMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_AttendStream<
        v1::AttentionService::Service>>;

// Any service: its two raw methods append.
class StoreService final : public Base {
 public:
  StoreService(const TaskServices& services, ActiveCalls& calls, Store& store,
               bool quick)
      : services_(services), calls_(calls), store_(store), quick_(quick) {}

  grpc::ServerUnaryReactor* Attend(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return UnaryCall::Begin(
        services_, calls_, Rpc::kOther,
        [this](const Caller*) {
          return std::make_unique<Append>(store_, quick_);
        },
        context, request, response);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AttendStream(
      grpc::CallbackServerContext* context) override {
    return RequestStream::Begin(services_, calls_,
                                {.max_in_flight = 4,
                                 .new_operation =
                                     [this](const Caller*) {
                                       return std::make_unique<Append>(store_,
                                                                       quick_);
                                     },
                                 .encode_error = ErrorReply,
                                 .in_order = true},
                                *context);
  }

 private:
  const TaskServices services_;
  ActiveCalls& calls_;
  Store& store_;
  const bool quick_;
};

class OperationTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials());
  }
  void TearDown() override { server_->Shutdown(); }

  // The toy's messages are no AttendRequests: both sides are bytes.
  grpc::Status Call(const std::string& request, std::string& reply,
                    std::chrono::system_clock::time_point deadline =
                        std::chrono::system_clock::time_point::max()) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    const grpc::Slice slice(request);
    grpc::ByteBuffer out;
    grpc::Status status;
    grpc::GenericStub generic(channel_);
    auto call = generic.PrepareUnaryCall(
        &context, "/attention.v1.AttentionService/Attend",
        grpc::ByteBuffer(&slice, 1), &queue_);
    call->StartCall();
    call->Finish(&out, &status, nullptr);
    Next();
    reply = Flatten(out);
    return status;
  }

  // All requests are sent before the first reply is read.
  std::vector<std::string> Stream(const std::vector<std::string>& requests) {
    grpc::ClientContext context;
    grpc::GenericStub generic(channel_);
    auto call = generic.PrepareCall(
        &context, "/attention.v1.AttentionService/AttendStream", &queue_);
    call->StartCall(nullptr);
    EXPECT_TRUE(Next());
    for (const std::string& request : requests) {
      const grpc::Slice slice(request);
      call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
      EXPECT_TRUE(Next());
    }
    call->WritesDone(nullptr);
    EXPECT_TRUE(Next());
    std::vector<std::string> replies;
    for (;;) {
      grpc::ByteBuffer reply;
      call->Read(&reply, nullptr);
      if (!Next()) break;
      replies.push_back(Flatten(reply));
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    EXPECT_TRUE(Next());
    EXPECT_TRUE(status.ok());
    return replies;
  }

  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  WorkerPool workers_{2};
  Ledger ledger_;
  Admission admission_{ledger_, 8, 1 << 20};
  ActiveCalls calls_;
  Store store_;
  RequestQueue waiting_{workers_};
  CostModel costs_;
  StoreService service_{
      {workers_, admission_, waiting_, costs_}, calls_, store_, GetParam()};
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::CompletionQueue queue_;
};

TEST_P(OperationTest, AnswersUnaryCalls) {
  std::string reply;
  EXPECT_TRUE(Call("a:one", reply).ok());
  EXPECT_EQ(reply, "one");
  EXPECT_TRUE(Call("a:, two", reply).ok());
  EXPECT_EQ(reply, "one, two");
}

TEST_P(OperationTest, GivesItsOwnErrors) {
  std::string reply;
  const grpc::Status status = Call("nothing", reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "name: missing");
}

TEST_P(OperationTest, IsRefusedWhereTheServerIsFullOrDrains) {
  std::string reply;
  EXPECT_EQ(Call("a:" + std::string(1 << 20, 'x'), reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  admission_.StartDraining();
  EXPECT_EQ(Call("a:one", reply).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(store_.sequences.empty());
}

TEST_P(OperationTest, AnswersStreams) {
  // Two sequences: replies come in order, what was queued runs in any.
  EXPECT_THAT(Stream({"a:1", "bad", "b:2"}),
              ElementsAre("1", "! name: missing", "2"));
}

TEST_P(OperationTest, EndsAtTheCallersDeadline) {
  store_.gate.emplace(1);
  std::string reply;
  EXPECT_EQ(
      Call("a:one", reply,
           std::chrono::system_clock::now() + std::chrono::milliseconds(1))
          .error_code(),
      grpc::StatusCode::DEADLINE_EXCEEDED);
  store_.gate->count_down();
}

TEST_P(OperationTest, IsWaitedForByADrain) {
  std::string reply;
  EXPECT_TRUE(Call("a:one", reply).ok());
  admission_.StartDraining();
  calls_.StartDrain();
  EXPECT_TRUE(
      calls_.WaitUntilNone(std::chrono::steady_clock::time_point::max()));
}

INSTANTIATE_TEST_SUITE_P(QuickAndQueued, OperationTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Quick" : "Queued";
                         });

}  // namespace
}  // namespace attention::server
