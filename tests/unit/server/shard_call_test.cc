// What a shard's call does with other servers and their answers.
#include "server/shards/shard_call.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/engine.h"
#include "server/resident/resident_store.h"
#include "server/shards/shard_service.h"
#include "tests/support/address_sanitizer.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

// A result of FP32 in which every element is `value`.
Result ResultOf(Shape shape, int64_t elements, float value) {
  Result result;
  result.shape = std::move(shape);
  result.bytes = elements * static_cast<int64_t>(sizeof(float));
  result.buffer = AlignedBuffer::Create(result.bytes).value();
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(result.buffer.data() + i * sizeof(float), &value,
                sizeof(value));
  }
  return result;
}

// Of two parts, with `rows` rows of `width` elements each.
std::vector<ShardAnswer> TwoAnswers(int64_t rows, int64_t width) {
  std::vector<ShardAnswer> answers(2);
  for (const float value : {0.0F, 1.0F}) {
    ShardAnswer& answer = answers[value == 0 ? 0 : 1];
    answer.results.push_back(ResultOf({rows, width}, rows * width, value));
    answer.results.push_back(ResultOf({rows}, rows, 0));
  }
  return answers;
}

struct LongAnswers {
  const char* name;
  int64_t rows;
  int64_t width;
};

class LongAnswersTest : public ::testing::TestWithParam<LongAnswers> {};

// Together they are more than 5 MiB, and less than 6.
TEST_P(LongAnswersTest, AreMergedWithPauses) {
  std::vector<ShardAnswer> answers =
      TwoAnswers(GetParam().rows, GetParam().width);
  int pauses = 0;
  const absl::Status merged =
      MergeAnswers(absl::MakeSpan(answers), [&pauses](int64_t bytes) {
        EXPECT_EQ(bytes, 0);
        ++pauses;
        return absl::OkStatus();
      });
  EXPECT_TRUE(merged.ok()) << merged;
  EXPECT_EQ(pauses, 5);
  for (const int64_t at :
       {int64_t{0}, GetParam().rows * GetParam().width - 1}) {
    float element = 0;
    std::memcpy(&element,
                answers[0].results[0].buffer.data() + at * sizeof(element),
                sizeof(element));
    EXPECT_EQ(element, 0.5F);
  }
  absl::Status stopped = absl::CancelledError("stopped");
  EXPECT_EQ(MergeAnswers(absl::MakeSpan(answers),
                         [&stopped](int64_t) { return stopped; }),
            stopped);
}

INSTANTIATE_TEST_SUITE_P(
    Of, LongAnswersTest,
    ::testing::Values(LongAnswers{"ManyRows", 150'000, 4},
                      LongAnswers{"OneWideRow", 1, 700'000}),
    [](const auto& row) { return std::string(row.param.name); });

// What has no memory, once.
enum class Fails : uint8_t { kNothing, kChannel, kCall };

// Of channels to servers in plain text.
class FailingCredentials final : public grpc::ChannelCredentials {
 public:
  std::atomic<Fails> fails = Fails::kNothing;

 private:
  // Asked before each call of a channel.
  class Calls final
      : public grpc::experimental::ClientInterceptorFactoryInterface {
   public:
    explicit Calls(std::atomic<Fails>& fails) : fails_(fails) {}
    grpc::experimental::Interceptor* CreateClientInterceptor(
        grpc::experimental::ClientRpcInfo* /*info*/) override {
      FailIf(fails_, Fails::kCall);
      return nullptr;
    }

   private:
    std::atomic<Fails>& fails_;
  };

  static void FailIf(std::atomic<Fails>& fails, Fails what) {
    if (fails.compare_exchange_strong(what, Fails::kNothing)) {
      throw std::bad_alloc();
    }
  }

  std::shared_ptr<grpc::Channel> CreateChannelImpl(
      const std::string& target,
      const grpc::ChannelArguments& arguments) override {
    FailIf(fails, Fails::kChannel);
    std::vector<
        std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
        calls;
    calls.push_back(std::make_unique<Calls>(fails));
    return grpc::experimental::CreateCustomChannelWithInterceptors(
        target, grpc::InsecureChannelCredentials(), arguments,
        std::move(calls));
  }
  grpc::SecureChannelCredentials* AsSecureCredentials() override {
    return nullptr;
  }
};

ServerOptions OptionsWithPeers() {
  ServerOptions options;
  options.memory_limit = 256 << 20;
  options.peers = {"127.0.0.1:*"};
  return options;
}

// A server that is also the other one that it asks.
class ShardCallTest : public ::testing::Test {
 protected:
  ShardCallTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    stub_ = v1::ShardService::NewStub(
        grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  }
  ~ShardCallTest() override { server_->Shutdown(); }

  // One part of this server, and one of each other.
  grpc::Status Attend(v1::AttendResponse& response) {
    return Attend({address_}, response);
  }
  grpc::Status Attend(const std::vector<std::string>& others,
                      v1::AttendResponse& response) {
    v1::AttendRequest part = SmallRequest();
    v1::AttendShardsRequest request;
    v1::Shard& shard = *request.mutable_shard();
    *shard.add_parts()->mutable_key_value() = part.key_value();
    for (const std::string& target : others) {
      v1::Shard& other = *shard.add_shards();
      other.set_target(target);
      *other.add_parts() = shard.parts(0);
    }
    part.clear_key_value();
    part.set_return_lse(true);
    *request.mutable_common() = std::move(part);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::minutes(1));
    return stub_->Attend(&context, request, &response);
  }

  const ServerOptions options_ = OptionsWithPeers();
  const std::unique_ptr<Engine> engine_ =
      Engine::Create({.threads = 1}).value();
  Ledger ledger_;
  Admission admission_{ledger_, 8, 1 << 20};
  CostModel costs_;
  ActiveCalls calls_;
  ModelRepository models_;
  const std::unique_ptr<ResidentStore> resident_ =
      ResidentStore::Open(options_).value();
  RequestQueue queue_{engine_->workers()};
  const std::shared_ptr<FailingCredentials> credentials_ =
      std::make_shared<FailingCredentials>();
  Peers peers_{options_, credentials_};
  ShardService service_{
      {options_, *engine_, calls_, models_, *resident_, peers_},
      {engine_->workers(), admission_, queue_, costs_}};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<v1::ShardService::Stub> stub_;
};

TEST_F(ShardCallTest, WithoutMemoryForAChannelItEndsAndTheNextOneHasAChannel) {
  credentials_->fails = Fails::kChannel;
  v1::AttendResponse response;
  EXPECT_EQ(Attend(response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  const grpc::Status status = Attend(response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.output().data(), Floats({4}));
}

TEST_F(ShardCallTest, WithoutMemoryToAskAnotherServerItEnds) {
  if (test::kAddressSanitizer) {
    GTEST_SKIP() << "gRPC does not free a call for which there is no memory";
  }
  credentials_->fails = Fails::kCall;
  v1::AttendResponse response;
  EXPECT_EQ(Attend(response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Attend(response).ok());
}

TEST_F(ShardCallTest, WhatTheCallsOfOthersTakeIsCounted) {
  std::vector<std::string> others;
  for (size_t port = 1; port <= kMostShardsOfServer; ++port) {
    others.push_back(absl::StrCat("127.0.0.1:", port));
  }
  v1::AttendResponse response;
  const grpc::Status status = Attend(others, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("memory_limit"), std::string::npos)
      << status.error_message();
}

}  // namespace
}  // namespace attention::server
