// inference.ModelInfer: the same answers as our own API gives, however a client
// puts the question.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/tiny_problem.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;

class InferTest : public testing::Test {
 protected:
  void ExpectSame(const v1::AttendRequest& request) {
    ExpectSameAnswer(Infer(client_, ToInfer(request)), client_.Attend(request));
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

v1::AttendRequest AdditiveRequest() {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_additive()->mutable_w_q() =
      Floats({2, 3}, {0.5, -1, 0.25, 1, 0.5, -0.75});
  *request.mutable_additive()->mutable_w_k() =
      Floats({2, 3}, {-0.5, 0.25, 1, 0.75, 1, -0.25});
  *request.mutable_additive()->mutable_w_v() = Floats({3}, {1.5, -2, 0.5});
  return request;
}

TEST_F(InferTest, ScaledDotProduct) {
  ExpectSame(TinyRequest());
  v1::AttendRequest request = TinyRequest();
  request.mutable_scaled_dot_product()->set_scale(-0.75);
  ExpectSame(request);
}

TEST_F(InferTest, Additive) { ExpectSame(AdditiveRequest()); }

TEST_F(InferTest, Gaussian) {
  v1::AttendRequest request = TinyRequest();
  request.mutable_gaussian()->set_sigma(0.5);
  ExpectSame(request);
}

TEST_F(InferTest, Bilinear) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_bilinear()->mutable_m() = Floats({2, 2}, {1, -2, 0.5, 3});
  request.mutable_bilinear()->set_scale(0.25);
  ExpectSame(request);
}

TEST_F(InferTest, RanksTwoToFour) {
  ExpectSame(TinyRequest(2, 1, 1, 1));
  ExpectSame(TinyRequest(3, 2, 1, 1));
  ExpectSame(TinyRequest(4, 2, 4, 2));
}

TEST_F(InferTest, HalfPrecision) {
  ExpectSame(TinyRequest(v1::DATA_TYPE_FP16));
  ExpectSame(TinyRequest(v1::DATA_TYPE_BF16));
}

TEST_F(InferTest, KeysOfInt8AndFp8) {
  for (const auto type : {v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8}) {
    ExpectSame(TinyQuantizedRequest(type));
  }
  const v1::AttendRequest request = TinyQuantizedRequest(v1::DATA_TYPE_INT8);
  ModelInferRequest infer = ToInfer(request);
  UseTypedContents(infer);
  ExpectSameAnswer(Infer(client_, infer), client_.Attend(request));
}

// Numbers that are no two alike, 1 MiB of them.
v1::AttendRequest RequestOfSines(double first) {
  std::vector<double> numbers(256 << 10);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = std::sin(first + static_cast<double>(i));
  }
  const v1::Tensor tensor = Floats({64, 64, 64}, numbers);
  v1::AttendRequest request;
  *request.mutable_query() = tensor;
  *request.mutable_key_value()->mutable_key() = tensor;
  *request.mutable_key_value()->mutable_value() = tensor;
  return request;
}

TEST_F(InferTest, LargeTensors) { ExpectSame(RequestOfSines(0)); }

TEST_F(InferTest, LargeTensorsBesideOthersAreTheSameAsAlone) {
  constexpr size_t kRequests = 6;
  const absl::Status not_asked = absl::UnknownError("not asked yet");
  std::vector<absl::StatusOr<v1::AttendResponse>> alone(kRequests, not_asked);
  std::vector<absl::StatusOr<inference::ModelInferResponse>> together(
      kRequests, not_asked);
  const auto request = [](size_t n) {
    return RequestOfSines(static_cast<double>(n));
  };
  for (size_t n = 0; n < kRequests; ++n) alone[n] = client_.Attend(request(n));
  std::vector<std::thread> callers(kRequests);
  for (size_t n = 0; n < kRequests; ++n) {
    callers[n] = std::thread([&, n] {
      WireClient client(server_->address());
      together[n] = Infer(client, ToInfer(request(n)));
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t n = 0; n < kRequests; ++n) {
    ExpectSameAnswer(together[n], alone[n]);
  }
}

TEST_F(InferTest, MasksPositionsAndWindow) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() = MakeTensor(v1::DATA_TYPE_INT64, {1}, {2});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 0, 1, 1, 1, 1});
  *request.mutable_bias() = Floats({1, 3}, {0.5, -1, 2});
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  request.set_query_offset(1);
  request.set_key_offset(-1);
  request.set_window_left(2);
  request.set_window_right(1);
  ExpectSame(request);
}

TEST_F(InferTest, SoftcapDropoutAndEmptyRows) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT32, {1, 2}, {0, 3});
  request.set_softcap(3);
  request.set_training(true);
  request.set_dropout_p(0.5);
  request.set_seed(0xFFFFFFFFFFFFFFFF);
  request.set_weights_after_dropout(true);
  request.set_empty_rows(v1::EMPTY_ROWS_UNIFORM);
  ExpectSame(request);
}

TEST_F(InferTest, MoreResults) {
  v1::AttendRequest request = TinyRequest();
  request.set_top_k(2);
  request.set_return_key_weights(true);
  for (const v1::Scores scores :
       {v1::SCORES_SCALED, v1::SCORES_CAPPED, v1::SCORES_MASKED}) {
    request.set_scores(scores);
    ExpectSame(request);
  }
  const auto response = client_.Attend(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->top_k_indices().datatype(), v1::DATA_TYPE_INT64);
  EXPECT_THAT(response->key_weights().shape(), testing::ElementsAre(3));
}

TEST_F(InferTest, OneOfTheTwoOfTopK) {
  ModelInferRequest request = ToInfer(TinyRequest());
  (*request.mutable_parameters())["top_k"].set_string_param("2");
  request.clear_outputs();
  request.add_outputs()->set_name("top_k_indices");
  const auto response = Infer(client_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).datatype(), "INT64");
  EXPECT_EQ(response->raw_output_contents(0).size(), 2U * 2 * 8);
}

// Typed contents of no elements are no contents.
TEST_F(InferTest, ATensorWithoutElementsNeedsNone) {
  v1::AttendRequest request;
  *request.mutable_query() = Floats({1, 2}, {1, 2});
  *request.mutable_key_value()->mutable_key() = Floats({0, 2}, {});
  *request.mutable_key_value()->mutable_value() = Floats({0, 3}, {});
  ModelInferRequest infer = ToInfer(request);
  UseTypedContents(infer);
  for (const int input : {1, 2}) infer.mutable_inputs(input)->clear_contents();
  ExpectSameAnswer(Infer(client_, infer), client_.Attend(request));
}

TEST_F(InferTest, TypedContentsAreTheSameAsRawOnes) {
  v1::AttendRequest request = AdditiveRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT32, {1, 2}, {2, 3});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_UINT8, {2, 3}, {1, 0, 1, 1, 1, 1});
  ModelInferRequest infer = ToInfer(request);
  UseTypedContents(infer);
  ExpectSameAnswer(Infer(client_, infer), client_.Attend(request));
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT64, {1, 2}, {2, 3});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 0, 1, 1, 1, 1});
  infer = ToInfer(request);
  UseTypedContents(infer);
  ExpectSameAnswer(Infer(client_, infer), client_.Attend(request));
}

TEST_F(InferTest, NumbersMayBeIntegersOrStrings) {
  v1::AttendRequest request = TinyRequest();
  request.mutable_scaled_dot_product()->set_scale(2);
  request.set_window_left(1);
  request.set_training(true);
  request.set_dropout_p(0.5);
  request.set_seed(12345678901234567890ULL);
  const auto expected = client_.Attend(request);
  ModelInferRequest infer = ToInfer(request);
  auto& parameters = *infer.mutable_parameters();
  parameters["scale"].set_int64_param(2);
  parameters["window_left"].set_double_param(1);
  parameters["training"].set_int64_param(1);
  ExpectSameAnswer(Infer(client_, infer), expected);
  parameters["scale"].set_string_param("2.0");
  parameters["window_left"].set_string_param("1");
  parameters["training"].set_string_param("true");
  parameters["dropout_p"].set_string_param("5e-1");
  parameters["seed"].set_string_param("12345678901234567890");
  ExpectSameAnswer(Infer(client_, infer), expected);
}

TEST_F(InferTest, EchoesModelVersionAndId) {
  ModelInferRequest request = GoodInfer("some id");
  request.set_model_version("1");
  const auto response = Infer(client_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->model_name(), kDotProduct);
  EXPECT_EQ(response->model_version(), "1");
  EXPECT_EQ(response->id(), "some id");
}

TEST_F(InferTest, NoOutputsMeansTheOutputAlone) {
  ModelInferRequest request = ToInfer(TinyRequest());
  request.clear_outputs();
  const auto response = Infer(client_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs_size(), 1);
  EXPECT_EQ(response->outputs(0).name(), "output");
  EXPECT_EQ(response->raw_output_contents_size(), 1);
}

TEST_F(InferTest, OutputsComeInTheOrderOfTheRequest) {
  const auto expected = Infer(client_, ToInfer(TinyRequest()));
  ASSERT_TRUE(expected.ok()) << expected.status();
  ModelInferRequest request = ToInfer(TinyRequest());
  request.clear_outputs();
  request.add_outputs()->set_name("lse");
  request.add_outputs()->set_name("weights");
  const auto response = Infer(client_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->raw_output_contents_size(), 2);
  EXPECT_EQ(response->outputs(0).name(), "lse");
  EXPECT_TRUE(response->raw_output_contents(0) ==
              expected->raw_output_contents(2));
  EXPECT_EQ(response->outputs(1).name(), "weights");
  EXPECT_TRUE(response->raw_output_contents(1) ==
              expected->raw_output_contents(1));
}

TEST_F(InferTest, ReservedParametersChangeNothing) {
  const auto expected = Infer(client_, GoodInfer());
  ASSERT_TRUE(expected.ok()) << expected.status();
  ModelInferRequest request = GoodInfer();
  auto& parameters = *request.mutable_parameters();
  parameters["sequence_id"].set_int64_param(7);
  parameters["sequence_start"].set_bool_param(true);
  parameters["sequence_end"].set_bool_param(true);
  parameters["priority"].set_uint64_param(1);
  parameters["timeout"].set_int64_param(1000);
  parameters["headers"].set_string_param("x");
  parameters["binary_data_output"].set_bool_param(true);
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  for (auto& input : *request.mutable_inputs()) {
    (*input.mutable_parameters())["binary_data_size"].set_int64_param(4);
  }
  const auto response = Infer(client_, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->raw_output_contents(0), expected->raw_output_contents(0));
}

TEST_F(InferTest, EmptyTensors) {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_key_value()->mutable_key() = Floats({0, 2}, {});
  *request.mutable_key_value()->mutable_value() = Floats({0, 2}, {});
  ExpectSame(request);
  ModelInferRequest infer = ToInfer(request);
  // An empty tensor still has its entry.
  EXPECT_EQ(infer.raw_input_contents_size(), 3);
}

// What a load generator sends that knows the metadata alone: any bytes.
TEST_F(InferTest, AnyBytesAreAnswered) {
  std::string bytes(size_t{4} * 2 * 64 * 16, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24);
  }
  for (const char* type : {"FP32", "FP16", "BF16"}) {
    ModelInferRequest request;
    request.set_model_name(kDotProduct);
    for (const char* name : {"query", "key", "value"}) {
      auto& input = *request.add_inputs();
      input.set_name(name);
      input.set_datatype(type);
      for (const int64_t extent : {1, 2, 64, 16}) input.add_shape(extent);
      request.add_raw_input_contents(bytes.substr(
          0, input.datatype() == "FP32" ? bytes.size() : bytes.size() / 2));
    }
    const auto response = Infer(client_, request);
    EXPECT_TRUE(response.ok()) << type << ": " << response.status();
  }
}

TEST_F(InferTest, TakesTheOptionsOfHeadsAndBatchEntries) {
  v1::AttendRequest request = TinyRequest(4, 2, 2, 1);
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  *request.mutable_alibi_slopes() =
      MakeTensor(v1::DATA_TYPE_FP32, {2}, {0.25, 0.5});
  *request.mutable_sinks() =
      MakeTensor(v1::DATA_TYPE_FP32, {2, 2}, {0.5, 1, -1, 0});
  *request.mutable_query_offsets() =
      MakeTensor(v1::DATA_TYPE_INT32, {2}, {0, 1});
  ExpectSameAnswer(Infer(client_, ToInfer(request)), client_.Attend(request));
}

}  // namespace
}  // namespace attention::test
