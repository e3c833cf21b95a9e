#include "server/wire/infer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/element.h"
#include "server/request/results.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Request = inference::ModelInferRequest;

inference::ModelInferRequest::InferInputTensor& AddInput(
    Request& request, const char* name, const char* type,
    const std::vector<int64_t>& shape) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(type);
  for (const int64_t extent : shape) input.add_shape(extent);
  return input;
}

void AddRaw(Request& request, const char* name, const char* type,
            const std::vector<int64_t>& shape, const std::string& bytes) {
  AddInput(request, name, type, shape);
  request.add_raw_input_contents(bytes);
}

// One query of width 2 over two keys, values of width 1.
Request Small(const char* model = "scaled_dot_product_attention") {
  Request request;
  request.set_model_name(model);
  request.set_id("small");
  AddRaw(request, "query", "FP32", {1, 2}, Floats({1, 2}));
  AddRaw(request, "key", "FP32", {2, 2}, Floats({1, 0, 1, 0}));
  AddRaw(request, "value", "FP32", {2, 1}, Floats({3, 5}));
  return request;
}

struct Decoded {
  explicit Decoded(const Request& message, bool on_stream = false,
                   HoldBytes hold = server::HoldUncounted)
      : models(repository),
        wire(models, /*regions=*/{}, on_stream),
        request(wire.Decode(OneSlice(message.SerializeAsString()), hold)) {}

  const AttentionProblem& problem() const { return request->problem; }

  ModelRepository repository;
  ModelTable models;
  InferWire wire;
  absl::StatusOr<AttentionRequest> request;
};

TEST(InferWire, ReadsRawInputs) {
  const Decoded decoded(Small());
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_THAT(decoded.problem().query.shape, ElementsAre(1, 2));
  EXPECT_EQ(LoadElement(DataType::kFloat32, decoded.problem().query.data), 1);
  EXPECT_THAT(decoded.problem().key_value[0].key.shape, ElementsAre(2, 2));
  EXPECT_THAT(decoded.problem().key_value[0].value.shape, ElementsAre(2, 1));
  EXPECT_EQ(decoded.wire.id(), "small");
}

TEST(InferWire, ReadsInputsInAnyOrder) {
  Request request;
  request.set_model_name("bilinear_attention");
  AddRaw(request, "value", "FP32", {2, 1}, Floats({3, 5}));
  AddRaw(request, "m", "FP32", {2, 2}, Floats({1, 2, 3, 4}));
  AddRaw(request, "key", "FP32", {2, 2}, Floats({1, 0, 1, 0}));
  AddRaw(request, "valid_lens", "INT32", {1}, std::string("\2\0\0\0", 4));
  AddRaw(request, "query", "FP32", {1, 2}, Floats({7, 2}));
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_EQ(LoadElement(DataType::kFloat32, decoded.problem().query.data), 7);
  EXPECT_THAT(std::get<Bilinear>(decoded.problem().scoring).m.shape,
              ElementsAre(2, 2));
  EXPECT_EQ(decoded.problem().masks.valid_lens->type, DataType::kInt32);
}

TEST(InferWire, ReadsTypedContents) {
  Request request;
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
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const AttentionProblem& problem = decoded.problem();
  EXPECT_EQ(LoadElement(DataType::kFloat32, problem.query.data), 1.5);
  EXPECT_EQ(problem.masks.attend_mask->data[0], std::byte{1});
  EXPECT_EQ(problem.masks.attend_mask->data[1], std::byte{0});
}

// 8 MiB of contents, one with elements that are read one by one, one with
// elements that are copied.
std::vector<Request> WithLongContents() {
  constexpr int kBytes = 8 << 20;
  std::vector<Request> requests(2);
  for (Request& request : requests) {
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
  for (const Request& request : WithLongContents()) {
    int pauses = 0;
    const Decoded decoded(request, /*on_stream=*/false, [&](int64_t bytes) {
      if (bytes == 0) ++pauses;
      return absl::OkStatus();
    });
    EXPECT_EQ(pauses, 8) << request.inputs(0).name();
  }
}

TEST(InferWire, EndsWithWhatAPauseInTypedContentsReturns) {
  for (const Request& request : WithLongContents()) {
    const auto stop = [](int64_t bytes) {
      return bytes == 0 ? absl::CancelledError("stopped") : absl::OkStatus();
    };
    EXPECT_THAT(Decoded(request, /*on_stream=*/false, stop).request,
                StatusIs(absl::StatusCode::kCancelled, "stopped"));
  }
}

TEST(InferWire, ReadsKeysOfOneByteWithScales) {
  Request request;
  request.set_model_name("scaled_dot_product_attention");
  AddRaw(request, "query", "FP32", {1, 2}, Floats({7, 2}));
  AddRaw(request, "key", "FP8", {2, 2}, std::string("\x38\xB8\x01\x7E", 4));
  AddRaw(request, "value", "FP8", {2, 1}, std::string("\x38\x40", 2));
  AddRaw(request, "key_scale", "FP32", {2}, Floats({0.5, 2}));
  AddRaw(request, "value_scale", "FP32", {2}, Floats({1, 3}));
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const KeyValueBlock& block = decoded.problem().key_value[0];
  EXPECT_EQ(block.key.type, DataType::kFloat8);
  EXPECT_EQ(LoadElement(block.key.type, block.key.data + 1), -1);
  EXPECT_THAT(block.key_scale->shape, ElementsAre(2));
  EXPECT_EQ(LoadElement(DataType::kFloat32, block.value_scale->data + 4), 3);
}

TEST(InferWire, ReadsTypedContentsOfInt8) {
  const auto typed = [](int32_t last) {
    Request request;
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
  const Decoded decoded(typed(5));
  ASSERT_THAT(decoded.request, IsOk());
  const TensorView& key = decoded.problem().key_value[0].key;
  EXPECT_EQ(LoadElement(key.type, key.data), -128);
  EXPECT_EQ(LoadElement(key.type, key.data + 2), -1);
  for (const int32_t beyond : {128, -129}) {
    EXPECT_THAT(Decoded(typed(beyond)).request,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is no INT8 (expected -128 to 127)")));
  }
}

TEST(InferWire, ReadsParametersAndPassesReservedOnesOver) {
  Request request = Small("gaussian_attention");
  auto& parameters = *request.mutable_parameters();
  parameters["sigma"].set_string_param("2.5");
  parameters["causal"].set_string_param("top_left");
  parameters["seed"].set_int64_param(7);
  parameters["priority"].set_uint64_param(1);
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_EQ(std::get<Gaussian>(decoded.problem().scoring).sigma, 2.5);
  EXPECT_EQ(decoded.problem().masks.causal, Causal::kTopLeft);
  EXPECT_EQ(decoded.problem().dropout.seed, 7U);
}

TEST(InferWire, WantsTheOutputAloneWhereNoneIsNamed) {
  const Decoded decoded(Small());
  ASSERT_EQ(decoded.request->results.size(), 1U);
  EXPECT_EQ(decoded.request->results[0].result, ResultField::kOutput);
  EXPECT_FALSE(decoded.problem().wanted.weights);
}

TEST(InferWire, WantsTheOutputsThatAreNamedInTheirOrder) {
  Request request = Small();
  request.add_outputs()->set_name("lse");
  request.add_outputs()->set_name("weights");
  const Decoded decoded(request);
  ASSERT_EQ(decoded.request->results.size(), 2U);
  EXPECT_EQ(decoded.request->results[0].result, ResultField::kLse);
  EXPECT_EQ(decoded.request->results[1].result, ResultField::kWeights);
  EXPECT_TRUE(decoded.problem().wanted.weights);
  EXPECT_TRUE(decoded.problem().wanted.lse);
}

TEST(InferWire, ReadsMoreResults) {
  Request request = Small();
  (*request.mutable_parameters())["top_k"].set_int64_param(1);
  (*request.mutable_parameters())["scores"].set_string_param("capped");
  for (const char* name : {"scores", "top_k_weights", "key_weights"}) {
    request.add_outputs()->set_name(name);
  }
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  const WantedOutputs& wanted = decoded.problem().wanted;
  EXPECT_EQ(wanted.top_k, 1);
  EXPECT_TRUE(wanted.key_weights);
  EXPECT_EQ(wanted.scores, ScoreStage::kCapped);
}

// Parameters say how, outputs which.
TEST(InferWire, WantsNothingThatIsNoOutput) {
  Request request = Small();
  (*request.mutable_parameters())["top_k"].set_int64_param(1);
  (*request.mutable_parameters())["scores"].set_string_param("capped");
  const Decoded decoded(request);
  ASSERT_THAT(decoded.request, IsOk());
  EXPECT_TRUE(decoded.problem().wanted.OfOneSweep());
}

struct WrongCase {
  const char* name;
  std::function<void(Request&)> spoil;
  const char* message;
};

class InferWireRefuses : public ::testing::TestWithParam<WrongCase> {};

TEST_P(InferWireRefuses, AndNamesTheField) {
  Request request = Small();
  GetParam().spoil(request);
  EXPECT_THAT(Decoded(request).request,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, InferWireRefuses,
    ::testing::Values(
        WrongCase{
            "UnknownInput",
            [](Request& r) { AddRaw(r, "mask", "BOOL", {1}, "1"); },
            "input 'mask' is unknown to scaled_dot_product_attention "
            "(known are query, key, value, valid_lens, attend_mask, bias"},
        WrongCase{"InputTwice",
                  [](Request& r) {
                    AddRaw(r, "query", "FP32", {1, 1}, Floats({1}));
                  },
                  "query: given twice"},
        WrongCase{"Missing",
                  [](Request& r) {
                    r.mutable_inputs()->RemoveLast();
                    r.mutable_raw_input_contents()->RemoveLast();
                  },
                  "value: missing"},
        WrongCase{"Datatype",
                  [](Request& r) { r.mutable_inputs(0)->set_datatype("F32"); },
                  "query: datatype 'F32' is unknown (expected FP32, FP16 or "
                  "BF16)"},
        WrongCase{
            "TooFewRaw",
            [](Request& r) { r.mutable_raw_input_contents()->RemoveLast(); },
            "value: unable to find data for input tensor"},
        WrongCase{"TooManyRaw",
                  [](Request& r) { r.add_raw_input_contents("x"); },
                  "raw_input_contents: 4 entries (expected 3"},
        WrongCase{"RawAndContents",
                  [](Request& r) {
                    r.mutable_inputs(1)->mutable_contents()->add_fp32_contents(
                        1);
                  },
                  "key: has contents beside raw_input_contents"},
        WrongCase{"Bytes",
                  [](Request& r) { r.mutable_inputs(0)->set_shape(1, 3); },
                  "query: "},
        WrongCase{"Parameter",
                  [](Request& r) {
                    (*r.mutable_parameters())["scal"].set_double_param(1);
                  },
                  "parameter 'scal' is unknown (known are scale, sigma"},
        WrongCase{"ParameterOfAnother",
                  [](Request& r) {
                    (*r.mutable_parameters())["sigma"].set_double_param(1);
                  },
                  "sigma: this scoring function has none"},
        WrongCase{"Output",
                  [](Request& r) { r.add_outputs()->set_name("outputs"); },
                  "output 'outputs' is unknown (known are output, weights, "
                  "lse, top_k_indices, top_k_weights, key_weights, scores)"},
        WrongCase{
            "TopKOfNoNumber",
            [](Request& r) { r.add_outputs()->set_name("top_k_weights"); },
            "top_k: missing beside top_k_weights (expected 1 to"},
        WrongCase{"ScoresOfNoStage",
                  [](Request& r) { r.add_outputs()->set_name("scores"); },
                  "scores: which ones is not said (expected 'scaled', "
                  "'capped' or 'masked')"},
        WrongCase{"ScoresOfAnotherStage",
                  [](Request& r) {
                    (*r.mutable_parameters())["scores"].set_string_param("raw");
                  },
                  "scores: 'raw' (expected 'none', 'scaled', 'capped', "
                  "'masked')"},
        WrongCase{"OutputTwice",
                  [](Request& r) {
                    r.add_outputs()->set_name("lse");
                    r.add_outputs()->set_name("lse");
                  },
                  "lse: asked for twice"},
        WrongCase{"InputParameter",
                  [](Request& r) {
                    (*r.mutable_inputs(0)->mutable_parameters())["shm"]
                        .set_bool_param(true);
                  },
                  "query.shm: unknown (known are shared_memory_region"},
        WrongCase{"SizeWithoutRegion",
                  [](Request& r) {
                    (*r.mutable_inputs(0)
                          ->mutable_parameters())["shared_memory_byte_size"]
                        .set_int64_param(8);
                  },
                  "query.shared_memory_region: missing"},
        WrongCase{"LongId", [](Request& r) { r.set_id(std::string(257, 'x')); },
                  "id: 257 bytes"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(InferWire, SaysThatSharedMemoryIsOff) {
  Request request = Small();
  (*request.add_outputs()->mutable_parameters())["shared_memory_region"]
      .set_string_param("r");
  request.mutable_outputs(0)->set_name("output");
  EXPECT_THAT(Decoded(request).request,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shared")));
}

TEST(InferWire, DoesNotFindAnUnknownModel) {
  Request request = Small("softmax_attention");
  EXPECT_THAT(Decoded(request).request,
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("'softmax_attention' is not found")));
}

TEST(InferReply, IsWhatTheGeneratedClassReads) {
  Request request = Small();
  request.add_outputs()->set_name("lse");
  request.add_outputs()->set_name("output");
  Decoded decoded(request);
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
  Decoded decoded(Small(), /*on_stream=*/true);
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
