#include "server/wire/infer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/element.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/infer_decoding.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using inference::ModelInferRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InferWire, ReadsRawInputs) {
  const DecodedInfer decoded(SmallInferRequest());
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_THAT(decoded.problem().query.shape, ElementsAre(1, 2));
  EXPECT_EQ(LoadElement(DataType::kFloat32, decoded.problem().query.data), 1);
  EXPECT_THAT(decoded.problem().key_value[0].key.shape, ElementsAre(2, 2));
  EXPECT_THAT(decoded.problem().key_value[0].value.shape, ElementsAre(2, 1));
  EXPECT_EQ(decoded.wire.id(), "small");
}

TEST(InferWire, ReadsInputsInAnyOrder) {
  ModelInferRequest request;
  request.set_model_name("bilinear_attention");
  AddRawInput(request, "value", "FP32", {2, 1}, Floats({3, 5}));
  AddRawInput(request, "m", "FP32", {2, 2}, Floats({1, 2, 3, 4}));
  AddRawInput(request, "key", "FP32", {2, 2}, Floats({1, 0, 1, 0}));
  AddRawInput(request, "valid_lens", "INT32", {1}, std::string("\2\0\0\0", 4));
  AddRawInput(request, "query", "FP32", {1, 2}, Floats({7, 2}));
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_EQ(LoadElement(DataType::kFloat32, decoded.problem().query.data), 7);
  EXPECT_THAT(std::get<Bilinear>(decoded.problem().scoring).m.shape,
              ElementsAre(2, 2));
  EXPECT_EQ(decoded.problem().masks.valid_lens->type, DataType::kInt32);
}

TEST(InferWire, ReadsTypedContents) {
  ModelInferRequest request;
  request.set_model_name("scaled_dot_product_attention");
  const auto add = [&](const char* name, const std::vector<int64_t>& shape,
                       const std::vector<float>& values) {
    auto& input = AddInput(request, name, "FP32", shape);
    for (const float value : values) {
      input.mutable_contents()->add_fp32_contents(value);
    }
  };
  add("query", {1, 2}, {1.5, 2});
  add("key", {2, 2}, {1, 0, 1, 0});
  add("value", {2, 1}, {3, 5});
  auto& mask = AddInput(request, "attend_mask", "BOOL", {1, 2});
  mask.mutable_contents()->add_bool_contents(true);
  mask.mutable_contents()->add_bool_contents(false);
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_EQ(LoadElement(DataType::kFloat32, problem.query.data), 1.5);
  EXPECT_EQ(problem.masks.attend_mask->data[0], std::byte{1});
  EXPECT_EQ(problem.masks.attend_mask->data[1], std::byte{0});
}

// 8 MiB of contents, one with elements that are read one by one, one with
// elements that are copied.
std::vector<ModelInferRequest> WithLongContents() {
  constexpr int kBytes = 8 << 20;
  std::vector<ModelInferRequest> requests(2);
  for (ModelInferRequest& request : requests) {
    request.set_model_name("scaled_dot_product_attention");
  }
  AddInput(requests[0], "attend_mask", "BOOL", {1, kBytes})
      .mutable_contents()
      ->mutable_bool_contents()
      ->Resize(kBytes, true);
  AddInput(requests[1], "query", "FP32", {1, kBytes / 4})
      .mutable_contents()
      ->mutable_fp32_contents()
      ->Resize(kBytes / 4, 1);
  return requests;
}

TEST(InferWire, ReadsLongTypedContentsWithPauses) {
  for (const ModelInferRequest& request : WithLongContents()) {
    int pauses = 0;
    const DecodedInfer decoded(request, /*on_stream=*/false,
                               [&](int64_t bytes) {
                                 if (bytes == 0) ++pauses;
                                 return absl::OkStatus();
                               });
    EXPECT_EQ(pauses, 8) << request.inputs(0).name();
  }
}

TEST(InferWire, EndsWithWhatAPauseInTypedContentsReturns) {
  for (const ModelInferRequest& request : WithLongContents()) {
    const auto stop = [](int64_t bytes) {
      return bytes == 0 ? absl::CancelledError("stopped") : absl::OkStatus();
    };
    EXPECT_THAT(DecodedInfer(request, /*on_stream=*/false, stop).request,
                StatusIs(absl::StatusCode::kCancelled, "stopped"));
  }
}

TEST(InferWire, ReadsKeysOfOneByteWithScales) {
  ModelInferRequest request;
  request.set_model_name("scaled_dot_product_attention");
  AddRawInput(request, "query", "FP32", {1, 2}, Floats({7, 2}));
  AddRawInput(request, "key", "FP8", {2, 2},
              std::string("\x38\xB8\x01\x7E", 4));
  AddRawInput(request, "value", "FP8", {2, 1}, std::string("\x38\x40", 2));
  AddRawInput(request, "key_scale", "FP32", {2}, Floats({0.5, 2}));
  AddRawInput(request, "value_scale", "FP32", {2}, Floats({1, 3}));
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const KeyValueBlock& block = decoded.problem().key_value[0];
  EXPECT_EQ(block.key.type, DataType::kFloat8);
  EXPECT_EQ(LoadElement(block.key.type, block.key.data + 1), -1);
  EXPECT_THAT(block.key_scale->shape, ElementsAre(2));
  EXPECT_EQ(LoadElement(DataType::kFloat32, block.value_scale->data + 4), 3);
}

TEST(InferWire, ReadsTypedContentsOfInt8) {
  const auto typed = [](int32_t last) {
    ModelInferRequest request;
    request.set_model_name("scaled_dot_product_attention");
    auto& key = AddInput(request, "key", "INT8", {2, 2});
    for (const int32_t element : {-128, 127, -1, last}) {
      key.mutable_contents()->add_int_contents(element);
    }
    for (const auto& [name, width] : {std::pair("query", 2), {"value", 1}}) {
      auto& input = AddInput(request, name, "FP32", {2, width});
      for (int n = 0; n < 2 * width; ++n) {
        input.mutable_contents()->add_fp32_contents(1);
      }
    }
    return request;
  };
  const DecodedInfer decoded(typed(5));
  ASSERT_THAT(decoded.request, IsOk());
  const TensorView& key = decoded.problem().key_value[0].key;
  EXPECT_EQ(LoadElement(key.type, key.data), -128);
  EXPECT_EQ(LoadElement(key.type, key.data + 2), -1);
  for (const int32_t beyond : {128, -129}) {
    EXPECT_THAT(DecodedInfer(typed(beyond)).request,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is no INT8 (expected -128 to 127)")));
  }
}

TEST(InferWire, ReadsParametersAndPassesReservedOnesOver) {
  ModelInferRequest request = SmallInferRequest("gaussian_attention");
  auto& parameters = *request.mutable_parameters();
  parameters["sigma"].set_string_param("2.5");
  parameters["causal"].set_string_param("top_left");
  parameters["seed"].set_int64_param(7);
  parameters["priority"].set_uint64_param(1);
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_EQ(std::get<Gaussian>(decoded.problem().scoring).sigma, 2.5);
  EXPECT_EQ(decoded.problem().masks.causal, Causal::kTopLeft);
  EXPECT_EQ(decoded.problem().dropout.seed, 7U);
}

TEST(InferWire, WantsTheOutputAloneWhereNoneIsNamed) {
  const DecodedInfer decoded(SmallInferRequest());
  ASSERT_EQ(decoded.request->results.size(), 1U);
  EXPECT_EQ(decoded.request->results[0].result, ResultField::kOutput);
  EXPECT_FALSE(decoded.problem().wanted.weights);
}

TEST(InferWire, WantsTheOutputsThatAreNamedInTheirOrder) {
  ModelInferRequest request = SmallInferRequest();
  request.add_outputs()->set_name("lse");
  request.add_outputs()->set_name("weights");
  const DecodedInfer decoded(request);
  ASSERT_EQ(decoded.request->results.size(), 2U);
  EXPECT_EQ(decoded.request->results[0].result, ResultField::kLse);
  EXPECT_EQ(decoded.request->results[1].result, ResultField::kWeights);
  EXPECT_TRUE(decoded.problem().wanted.weights);
  EXPECT_TRUE(decoded.problem().wanted.lse);
}

TEST(InferWire, ReadsMoreResults) {
  ModelInferRequest request = SmallInferRequest();
  (*request.mutable_parameters())["top_k"].set_int64_param(1);
  (*request.mutable_parameters())["scores"].set_string_param("capped");
  for (const char* name : {"scores", "top_k_weights", "key_weights"}) {
    request.add_outputs()->set_name(name);
  }
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const WantedOutputs& wanted = decoded.problem().wanted;
  EXPECT_EQ(wanted.top_k, 1);
  EXPECT_TRUE(wanted.key_weights);
  EXPECT_EQ(wanted.scores, ScoreStage::kCapped);
}

// Parameters say how, outputs which.
TEST(InferWire, WantsNothingThatIsNoOutput) {
  ModelInferRequest request = SmallInferRequest();
  (*request.mutable_parameters())["top_k"].set_int64_param(1);
  (*request.mutable_parameters())["scores"].set_string_param("capped");
  const DecodedInfer decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_TRUE(decoded.problem().wanted.OfOneSweep());
}

}  // namespace
}  // namespace attention::server
