// What InferWire writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/batch.h"
#include "server/request/results.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/infer_decoding.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using inference::ModelInferRequest;
using ::testing::ElementsAre;
using ::testing::StartsWith;

TEST(InferReply, IsWhatTheGeneratedClassReads) {
  ModelInferRequest request = SmallInferRequest();
  request.add_outputs()->set_name("lse");
  request.add_outputs()->set_name("output");
  DecodedInfer decoded(request);
  Results results(decoded.request->results,
                  ValidateBatch(decoded.problem()).value());
  ASSERT_THAT(results.Allocate(), IsOk());
  std::memcpy(results.Outputs().output.data, "outp", 4);
  std::memcpy(results.Outputs().lse.data, "lse0", 4);
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(
      Flatten(decoded.wire.Encode(results.sent(), {}).bytes())));
  EXPECT_EQ(response.model_name(), "scaled_dot_product_attention");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.id(), "small");
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "lse");
  EXPECT_THAT(response.outputs(0).shape(), ElementsAre(1));
  EXPECT_EQ(response.outputs(1).datatype(), "FP32");
  EXPECT_THAT(response.raw_output_contents(), ElementsAre("lse0", "outp"));
}

TEST(InferReply, IsWhatTheGeneratedClassReadsOnAStream) {
  DecodedInfer decoded(SmallInferRequest(), /*on_stream=*/true);
  Results results(decoded.request->results,
                  ValidateBatch(decoded.problem()).value());
  ASSERT_THAT(results.Allocate(), IsOk());
  std::memcpy(results.Outputs().output.data, "outp", 4);
  const grpc::ByteBuffer reply =
      decoded.wire.Encode(results.sent(), {}).bytes();
  EXPECT_LE(static_cast<int64_t>(reply.Length()),
            results.Bytes() + decoded.wire.OtherBytes());
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(response.ParseFromString(Flatten(reply)));
  EXPECT_EQ(response.error_message(), "");
  EXPECT_TRUE(response.infer_response()
                  .parameters()
                  .at("triton_final_response")
                  .bool_param());
  EXPECT_THAT(response.infer_response().raw_output_contents(),
              ElementsAre("outp"));
}

TEST(EncodeInferStreamError, IsShortWhateverTheIdAndTheMessage) {
  const std::string text(1 << 20, 'x');
  const std::string reply = Flatten(
      EncodeInferStreamError(text, absl::InvalidArgumentError(text)).bytes());
  EXPECT_LT(reply.size(), 2048);
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(response.ParseFromString(reply));
  EXPECT_THAT(response.infer_response().id(), StartsWith("xxx"));
  EXPECT_THAT(response.error_message(), StartsWith("xxx"));
}

}  // namespace
}  // namespace attention::server
