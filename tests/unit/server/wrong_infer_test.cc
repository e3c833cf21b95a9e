// Requests that InferWire refuses.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/infer_decoding.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using inference::ModelInferRequest;
using ::testing::HasSubstr;

struct WrongInferRequest {
  const char* name;
  std::function<void(ModelInferRequest&)> spoil;
  const char* message;
};

class InferWireRefuses : public ::testing::TestWithParam<WrongInferRequest> {};

TEST_P(InferWireRefuses, AndNamesTheField) {
  ModelInferRequest request = SmallInferRequest();
  GetParam().spoil(request);
  EXPECT_THAT(DecodedInfer(request).request,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, InferWireRefuses,
    ::testing::Values(
        WrongInferRequest{
            "UnknownInput",
            [](ModelInferRequest& r) {
              AddRawInput(r, "mask", "BOOL", {1}, "1");
            },
            "input 'mask' is unknown to scaled_dot_product_attention "
            "(known are query, key, value, valid_lens, attend_mask, bias"},
        WrongInferRequest{
            "UnknownField",
            [](ModelInferRequest& r) {
              r.GetReflection()->MutableUnknownFields(&r)->AddVarint(20, 1);
            },
            "field 20 of ModelInferRequest is unknown to this server"},
        WrongInferRequest{
            "UnknownFieldOfContents",
            [](ModelInferRequest& r) {
              r.clear_raw_input_contents();
              auto& contents = *r.mutable_inputs(0)->mutable_contents();
              contents.add_fp32_contents(1);
              contents.add_fp32_contents(2);
              contents.GetReflection()
                  ->MutableUnknownFields(&contents)
                  ->AddVarint(20, 1);
            },
            "query: field 20 of InferTensorContents is unknown to this "
            "server"},
        WrongInferRequest{"ContentsOfAnotherWireType",
                          [](ModelInferRequest& r) {
                            r.clear_raw_input_contents();
                            auto& contents =
                                *r.mutable_inputs(0)->mutable_contents();
                            contents.add_fp32_contents(1);
                            contents.add_fp32_contents(2);
                            contents.GetReflection()
                                ->MutableUnknownFields(&contents)
                                ->AddVarint(contents.kFp32ContentsFieldNumber,
                                            1);
                          },
                          "query: wire type 0 is not that of FP32 contents"},
        WrongInferRequest{
            "InputTwice",
            [](ModelInferRequest& r) {
              AddRawInput(r, "query", "FP32", {1, 1}, Floats({1}));
            },
            "query: given twice"},
        WrongInferRequest{"Missing",
                          [](ModelInferRequest& r) {
                            r.mutable_inputs()->RemoveLast();
                            r.mutable_raw_input_contents()->RemoveLast();
                          },
                          "value: missing"},
        WrongInferRequest{
            "Datatype",
            [](ModelInferRequest& r) {
              r.mutable_inputs(0)->set_datatype("F32");
            },
            "query: datatype 'F32' is unknown (expected FP32, FP16 or "
            "BF16)"},
        WrongInferRequest{"TooFewRaw",
                          [](ModelInferRequest& r) {
                            r.mutable_raw_input_contents()->RemoveLast();
                          },
                          "value: unable to find data for input tensor"},
        WrongInferRequest{
            "TooManyRaw",
            [](ModelInferRequest& r) { r.add_raw_input_contents("x"); },
            "raw_input_contents: 4 entries (expected 3"},
        WrongInferRequest{
            "RawAndContents",
            [](ModelInferRequest& r) {
              r.mutable_inputs(1)->mutable_contents()->add_fp32_contents(1);
            },
            "key: has contents beside raw_input_contents"},
        WrongInferRequest{
            "Bytes",
            [](ModelInferRequest& r) { r.mutable_inputs(0)->set_shape(1, 3); },
            "query: "},
        WrongInferRequest{
            "Parameter",
            [](ModelInferRequest& r) {
              (*r.mutable_parameters())["scal"].set_double_param(1);
            },
            "parameter 'scal' is unknown (known are scale, sigma"},
        WrongInferRequest{"ParameterOfAnother",
                          [](ModelInferRequest& r) {
                            (*r.mutable_parameters())["sigma"].set_double_param(
                                1);
                          },
                          "sigma: this scoring function has none"},
        WrongInferRequest{
            "Output",
            [](ModelInferRequest& r) { r.add_outputs()->set_name("outputs"); },
            "output 'outputs' is unknown (known are output, weights, "
            "lse, top_k_indices, top_k_weights, key_weights, scores)"},
        WrongInferRequest{"TopKOfNoNumber",
                          [](ModelInferRequest& r) {
                            r.add_outputs()->set_name("top_k_weights");
                          },
                          "top_k: missing beside top_k_weights (expected 1 to"},
        WrongInferRequest{
            "ScoresOfNoStage",
            [](ModelInferRequest& r) { r.add_outputs()->set_name("scores"); },
            "scores: which ones is not said (expected 'scaled', "
            "'capped' or 'masked')"},
        WrongInferRequest{
            "ScoresOfAnotherStage",
            [](ModelInferRequest& r) {
              (*r.mutable_parameters())["scores"].set_string_param("raw");
            },
            "scores: 'raw' (expected 'none', 'scaled', 'capped', "
            "'masked')"},
        WrongInferRequest{"OutputTwice",
                          [](ModelInferRequest& r) {
                            r.add_outputs()->set_name("lse");
                            r.add_outputs()->set_name("lse");
                          },
                          "lse: asked for twice"},
        WrongInferRequest{"InputParameter",
                          [](ModelInferRequest& r) {
                            (*r.mutable_inputs(0)->mutable_parameters())["shm"]
                                .set_bool_param(true);
                          },
                          "query.shm: unknown (known are shared_memory_region"},
        WrongInferRequest{
            "SizeWithoutRegion",
            [](ModelInferRequest& r) {
              (*r.mutable_inputs(0)
                    ->mutable_parameters())["shared_memory_byte_size"]
                  .set_int64_param(8);
            },
            "query.shared_memory_region: missing"},
        WrongInferRequest{
            "LongId",
            [](ModelInferRequest& r) { r.set_id(std::string(257, 'x')); },
            "id: 257 bytes"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(InferWire, SaysThatSharedMemoryIsOff) {
  ModelInferRequest request = SmallInferRequest();
  (*request.add_outputs()->mutable_parameters())["shared_memory_region"]
      .set_string_param("r");
  request.mutable_outputs(0)->set_name("output");
  EXPECT_THAT(DecodedInfer(request).request,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shared")));
}

TEST(InferWire, DoesNotFindAnUnknownModel) {
  ModelInferRequest request = SmallInferRequest("softmax_attention");
  EXPECT_THAT(DecodedInfer(request).request,
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("'softmax_attention' is not found")));
}

}  // namespace
}  // namespace attention::server
