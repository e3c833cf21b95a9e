// inference.ModelStreamInfer: replies in the order of the requests, errors
// among them.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;
using ::testing::HasSubstr;

class InferStreamTest : public testing::Test {
 protected:
  void Open() {
    server_ = StartServer(TestOptions(), &gate_);
    stub_ = inference::GRPCInferenceService::NewStub(grpc::CreateChannel(
        server_->address(), grpc::InsecureChannelCredentials()));
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stream_ = stub_->ModelStreamInfer(&context_);
  }
  ~InferStreamTest() override { context_.TryCancel(); }

  void Write(const std::string& id, bool wrong = false) {
    ModelInferRequest request = GoodInfer(id);
    if (wrong) request.mutable_inputs(0)->set_name("queries");
    ASSERT_TRUE(stream_->Write(request));
  }
  ModelStreamInferResponse Read() {
    ModelStreamInferResponse response;
    EXPECT_TRUE(stream_->Read(&response)) << "the stream is over";
    return response;
  }

  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>>
      stream_;
};

TEST_F(InferStreamTest, RepliesComeInTheOrderOfTheRequests) {
  // A large request, then many that are done long before it.
  Open();
  ModelInferRequest large = ToInfer(LargeRequest());
  large.set_id("large");
  ASSERT_TRUE(stream_->Write(large));
  for (int n = 0; n < 20; ++n) Write(absl::StrCat(n));
  ModelStreamInferResponse first = Read();
  EXPECT_EQ(first.error_message(), "");
  EXPECT_EQ(first.infer_response().id(), "large");
  for (int n = 0; n < 20; ++n) {
    const ModelStreamInferResponse response = Read();
    EXPECT_EQ(response.infer_response().id(), absl::StrCat(n));
    EXPECT_EQ(response.infer_response().raw_output_contents_size(), 1);
    EXPECT_TRUE(response.infer_response()
                    .parameters()
                    .at("triton_final_response")
                    .bool_param());
  }
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(InferStreamTest, AnErrorIsAReplyAndTheStreamGoesOn) {
  Open();
  Write("a");
  Write("b", /*wrong=*/true);
  Write("c");
  EXPECT_EQ(Read().infer_response().id(), "a");
  const ModelStreamInferResponse error = Read();
  EXPECT_THAT(error.error_message(), HasSubstr("input 'queries' is unknown"));
  EXPECT_EQ(error.infer_response().id(), "b");
  EXPECT_EQ(Read().infer_response().id(), "c");
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(InferStreamTest, WithTritonGrpcErrorTheFirstOneEndsTheStream) {
  context_.AddMetadata("triton_grpc_error", "true");
  Open();
  Write("a");
  Write("b", /*wrong=*/true);
  EXPECT_EQ(Read().infer_response().id(), "a");
  ModelStreamInferResponse response;
  EXPECT_FALSE(stream_->Read(&response));
  const grpc::Status status = stream_->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("input 'queries' is unknown"));
}

TEST_F(InferStreamTest, RequestsNeedNoId) {
  Open();
  Write("");
  Write("");
  EXPECT_EQ(Read().error_message(), "");
  EXPECT_EQ(Read().error_message(), "");
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

}  // namespace
}  // namespace attention::test
