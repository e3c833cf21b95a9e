// What a client of the Open Inference Protocol can get wrong, and what it is
// told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using inference::ModelInferRequest;
using ::testing::HasSubstr;

// One server for all: every refusal must leave it as it was.
class InferWrongInputTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = StartServer(); }
  static void TearDownTestSuite() { server_.reset(); }

  void ExpectRefused(const std::function<void(ModelInferRequest&)>& spoil,
                     StatusCode code, const std::string& message) {
    ModelInferRequest request = GoodInfer();
    spoil(request);
    ExpectRefused(request, code, message);
  }
  void ExpectRefused(const ModelInferRequest& request, StatusCode code,
                     const std::string& message) {
    const auto response = Infer(client_, request);
    EXPECT_EQ(response.status().code(), code) << response.status();
    EXPECT_THAT(std::string(response.status().message()), HasSubstr(message));
  }

  static std::unique_ptr<server::Server> server_;
  WireClient client_{server_->address()};
};
std::unique_ptr<server::Server> InferWrongInputTest::server_;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

TEST_F(InferWrongInputTest, UnknownModel) {
  ExpectRefused([](auto& r) { r.set_model_name("bert"); },
                StatusCode::kNotFound,
                "Request for unknown model: 'bert' is not found");
}

TEST_F(InferWrongInputTest, VersionThatIsNotThere) {
  ExpectRefused([](auto& r) { r.set_model_version("2"); },
                StatusCode::kNotFound, "has no version 2 (expected 1)");
}

TEST_F(InferWrongInputTest, VersionThatIsNoNumber) {
  ExpectRefused([](auto& r) { r.set_model_version("latest"); }, kInvalid,
                "model_version: 'latest' (expected a number or nothing)");
}

TEST_F(InferWrongInputTest, UnknownParameterNamesTheKnownOnes) {
  ExpectRefused(
      [](auto& r) { (*r.mutable_parameters())["scael"].set_double_param(1); },
      kInvalid,
      "parameter 'scael' is unknown (known are scale, sigma, softcap");
}

TEST_F(InferWrongInputTest, TritonsOtherParameters) {
  ExpectRefused(
      [](auto& r) {
        (*r.mutable_parameters())["triton_x"].set_bool_param(true);
      },
      kInvalid, "parameter 'triton_x' is unknown");
}

TEST_F(InferWrongInputTest, ParameterOfAWrongType) {
  ExpectRefused(
      [](auto& r) { (*r.mutable_parameters())["scale"].set_bool_param(true); },
      kInvalid, "scale: true (expected a number)");
  ExpectRefused(
      [](auto& r) {
        (*r.mutable_parameters())["window_left"].set_double_param(0.5);
      },
      kInvalid, "window_left: 0.5 (expected a whole number of 64 bits)");
  ExpectRefused(
      [](auto& r) { (*r.mutable_parameters())["seed"].set_int64_param(-1); },
      kInvalid, "seed: -1 (expected a whole number from 0 to 2^64 - 1)");
  ExpectRefused(
      [](auto& r) { (*r.mutable_parameters())["training"].set_int64_param(2); },
      kInvalid, "training: 2 (expected true or false)");
  ExpectRefused([](auto& r) { (*r.mutable_parameters())["scale"]; }, kInvalid,
                "scale: no value (expected a number)");
}

TEST_F(InferWrongInputTest, UnknownWord) {
  ExpectRefused(
      [](auto& r) {
        (*r.mutable_parameters())["causal"].set_string_param("yes");
      },
      kInvalid, "causal: 'yes' (expected 'none', 'top_left', 'bottom_right')");
}

TEST_F(InferWrongInputTest, ParameterOfAnotherScoringFunction) {
  ExpectRefused(
      [](auto& r) { (*r.mutable_parameters())["sigma"].set_double_param(1); },
      kInvalid, "sigma: this scoring function has none");
}

TEST_F(InferWrongInputTest, UnknownInput) {
  ExpectRefused([](auto& r) { r.mutable_inputs(2)->set_name("values"); },
                kInvalid,
                "input 'values' is unknown to scaled_dot_product_attention "
                "(known are query, key, value, valid_lens, attend_mask, bias, "
                "alibi_slopes, sinks, query_offsets, query_starts, key_starts, "
                "key_scale, value_scale)");
}

TEST_F(InferWrongInputTest, InputThatIsMissing) {
  ExpectRefused(
      [](auto& r) {
        r.mutable_inputs()->RemoveLast();
        r.mutable_raw_input_contents()->RemoveLast();
      },
      kInvalid, "value: missing");
  ExpectRefused([](auto& r) { r.set_model_name("additive_attention"); },
                kInvalid, "w_q: missing");
}

TEST_F(InferWrongInputTest, InputGivenTwice) {
  ExpectRefused([](auto& r) { r.mutable_inputs(2)->set_name("key"); }, kInvalid,
                "key: given twice");
}

TEST_F(InferWrongInputTest, TooFewAndTooManyRawContents) {
  ExpectRefused([](auto& r) { r.mutable_raw_input_contents()->RemoveLast(); },
                kInvalid, "value: unable to find data for input tensor");
  ExpectRefused([](auto& r) { r.add_raw_input_contents("x"); }, kInvalid,
                "raw_input_contents: 4 entries (expected 3");
}

TEST_F(InferWrongInputTest, RawBesideTypedContents) {
  ExpectRefused(
      [](auto& r) {
        r.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
      },
      kInvalid, "query: has contents beside raw_input_contents");
}

TEST_F(InferWrongInputTest, BytesThatAreNotWhatTheShapeNeeds) {
  ExpectRefused([](auto& r) { r.set_raw_input_contents(1, "12345"); }, kInvalid,
                "key: ");
  ExpectRefused([](auto& r) { r.mutable_inputs(0)->set_shape(2, -1); },
                kInvalid, "query: ");
  ExpectRefused(
      [](auto& r) { r.mutable_inputs(0)->set_shape(2, int64_t{1} << 62); },
      kInvalid, "query: ");
}

TEST_F(InferWrongInputTest, UnknownDatatype) {
  ExpectRefused([](auto& r) { r.mutable_inputs(0)->set_datatype("FP4"); },
                kInvalid, "query: datatype 'FP4' is unknown");
  ExpectRefused([](auto& r) { r.mutable_inputs(0)->set_datatype("BYTES"); },
                kInvalid, "query: datatype 'BYTES' is unknown");
}

TEST_F(InferWrongInputTest, TypedContentsInAWrongField) {
  ModelInferRequest request = GoodInfer();
  UseTypedContents(request);
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(3);
  ExpectRefused(request, kInvalid, "query: contents are in field 2");
}

TEST_F(InferWrongInputTest, TooFewAndTooManyTypedContents) {
  ModelInferRequest request = GoodInfer();
  UseTypedContents(request);
  ModelInferRequest few = request;
  few.mutable_inputs(1)
      ->mutable_contents()
      ->mutable_fp32_contents()
      ->RemoveLast();
  ExpectRefused(few, kInvalid, "key: 159 elements (its shape needs 160)");
  request.mutable_inputs(1)->mutable_contents()->add_fp32_contents(1);
  ExpectRefused(request, kInvalid,
                "key: more elements than the 160 that its shape needs");
}

TEST_F(InferWrongInputTest, HalfPrecisionHasNoTypedContents) {
  ModelInferRequest request = GoodInfer();
  UseTypedContents(request);
  request.mutable_inputs(0)->set_datatype("FP16");
  ExpectRefused(request, kInvalid, "query: FP16 has no typed contents");
}

TEST_F(InferWrongInputTest, UnknownOrRepeatedOutput) {
  ExpectRefused([](auto& r) { r.add_outputs()->set_name("probabilities"); },
                kInvalid,
                "output 'probabilities' is unknown (known are output, weights, "
                "lse, top_k_indices, top_k_weights, key_weights, scores)");
  ExpectRefused([](auto& r) { r.add_outputs()->set_name("output"); }, kInvalid,
                "output: asked for twice");
}

TEST_F(InferWrongInputTest, ClassificationIsRefused) {
  ExpectRefused(
      [](auto& r) {
        (*r.mutable_outputs(0)->mutable_parameters())["classification"]
            .set_int64_param(3);
      },
      kInvalid, "output.classification: unknown");
}

TEST_F(InferWrongInputTest, IdThatIsTooLong) {
  ExpectRefused([](auto& r) { r.set_id(std::string(257, 'x')); }, kInvalid,
                "id: 257 bytes (expected at most 256)");
}

TEST_F(InferWrongInputTest, SharedMemoryThatIsSwitchedOff) {
  ExpectRefused(
      [](auto& r) {
        auto& parameters = *r.mutable_inputs(0)->mutable_parameters();
        parameters["shared_memory_region"].set_string_param("region");
        parameters["shared_memory_byte_size"].set_int64_param(8);
      },
      StatusCode::kUnavailable, "--allow-shared-memory");
}

TEST_F(InferWrongInputTest, ManySmallFieldsAreRefusedBeforeTheyAreParsed) {
  ModelInferRequest request = GoodInfer();
  for (int n = 0; n < 40000; ++n) request.add_inputs();
  ExpectRefused(request, kInvalid,
                "the fields other than tensor elements take more than 65536");
  request = GoodInfer();
  for (int n = 0; n < 100; ++n) request.add_raw_input_contents("x");
  ExpectRefused(request, kInvalid, "raw_input_contents: more than 64 tensors");
}

TEST_F(InferWrongInputTest, BytesThatAreNoMessage) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), std::string("\x3a\xff\xff\xff\x7f"),
        std::string("\x2a\x03\x2a\x7f"), std::string(64, '\x0b')}) {
    EXPECT_EQ(client_.Call(kModelInfer, bytes).status().code(), kInvalid);
  }
}

}  // namespace
}  // namespace attention::test
