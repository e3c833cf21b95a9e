// The JSON of an inference over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/batch.h"
#include "server/http/protocol/infer_json.h"
#include "server/http/protocol/infer_json_data.h"
#include "server/http/protocol/json_infer_wire.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/request/results.h"
#include "server/scheduling/retry_after.h"
#include "tests/unit/server/attend_requests.h"
#include "tests/unit/server/json_infer_fixture.h"

namespace attention::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> Elements(const std::string& text) {
  const absl::StatusOr<AlignedBuffer> read = ReadElements(text);
  EXPECT_TRUE(read.ok()) << read.status();
  if (!read.ok()) return {};
  std::vector<T> elements(read->bytes().size() / sizeof(T));
  if (!elements.empty()) {
    std::memcpy(elements.data(), read->bytes().data(), read->bytes().size());
  }
  return elements;
}

TEST(InferJsonTest, LongDataIsReadWithPauses) {
  std::string data = "[1";
  for (int i = 1; i < 2 << 20; ++i) data += ",1";
  const std::string text = Input("UINT8", "[2097152]", data + "]");
  int pauses = 0;
  const auto read = ReadElements(text, [&pauses](int64_t bytes) {
    if (bytes == 0) ++pauses;
    return absl::OkStatus();
  });
  EXPECT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(pauses, 4);  // in 4 MiB and a byte
  const auto stopped = ReadElements(text, [](int64_t bytes) {
    return bytes == 0 ? absl::CancelledError("stopped") : absl::OkStatus();
  });
  EXPECT_EQ(stopped.status().code(), absl::StatusCode::kCancelled);
}

TEST(InferJsonTest, LongTextIsTakenApartWithPauses) {
  for (const std::string& text :
       {Input("UINT8", "[1]",
              absl::StrCat("[", std::string(3 << 20, '1'), "]")),
        Input("UINT8", "[1]",
              absl::StrCat("[\"", std::string(3 << 20, '1'), "\"]")),
        absl::StrCat("{\"id\":\"", std::string(3 << 20, 'i'), "\"}")}) {
    int pauses = 0;
    InferJson json;
    const auto count = [&pauses](int64_t bytes) {
      EXPECT_EQ(bytes, 0);
      ++pauses;
      return absl::OkStatus();
    };
    (void)ReadInferJson(text, count, json);
    EXPECT_EQ(pauses, 3);  // in 3 MiB and some bytes
    absl::Status stopped = absl::CancelledError("stopped");
    EXPECT_EQ(ReadInferJson(
                  text, [&stopped](int64_t) { return stopped; }, json),
              stopped);
  }
}

// A request to scaled_dot_product_attention.
struct SmallWire {
  explicit SmallWire(std::optional<std::string> json_bytes = std::nullopt)
      : models(repository),
        wire(models, /*regions=*/{},
             {.model = "scaled_dot_product_attention",
              .version = "",
              .json_bytes = std::move(json_bytes)},
             std::make_shared<JsonInferReply>()) {}

  absl::StatusOr<AttentionRequest> Decode(const std::string& body,
                                          HoldBytes hold = HoldUncounted) {
    return wire.Decode(std::vector<grpc::Slice>{grpc::Slice(body)}, hold);
  }

  const ModelRepository repository;
  ModelTable models;
  JsonInferWire wire;
};

// What comes of a body.
absl::Status DecodedBody(const std::string& body, HoldBytes hold) {
  return SmallWire().Decode(body, hold).status();
}

TEST(JsonInferWireTest, DecodingIsTheWorkOfTheJsonAlone) {
  constexpr int64_t kBody = 64 << 20;
  const auto work = [](std::optional<std::string> json_bytes) {
    const Work of = SmallWire(std::move(json_bytes)).wire.DecodingWork(kBody);
    return std::pair(of.kind, of.amount);
  };
  EXPECT_EQ(work(std::nullopt), std::pair(Work::kDecodeJson, 0x1p26));
  EXPECT_EQ(work("1048576"), std::pair(Work::kDecodeJson, 0x1p20));
  EXPECT_EQ(work("300"), std::pair(Work::kDecodeMessage, 0x1p26));
  EXPECT_EQ(work("67108865").second, 0);  // more than the body: refused
}

TEST(JsonInferWireTest, AnEmptyNameIsNoRegion) {
  SmallWire small;
  const absl::StatusOr<AttentionRequest> request = small.Decode(R"({"inputs":[
      {"name":"query","datatype":"FP32","shape":[1,2],"data":[1,2],
       "parameters":{"shared_memory_region":""}},
      {"name":"key","datatype":"FP32","shape":[1,2],"data":[1,0]},
      {"name":"value","datatype":"FP32","shape":[1,1],"data":[3]}],
      "outputs":[{"name":"output",
                  "parameters":{"shared_memory_region":""}}]})");
  ASSERT_TRUE(request.ok()) << request.status();
  Results results(request->results, ValidateBatch(request->problem).value());
  ASSERT_TRUE(results.Allocate().ok());
  const float three = 3;
  std::memcpy(results.Outputs().output.data, &three, sizeof three);
  EXPECT_THAT(Flatten(small.wire.Encode(results.sent(), {}).bytes()),
              HasSubstr("\"data\":[3"));
}

TEST(JsonInferWireTest, HandsOnWhyItMayNotHoldBytes) {
  absl::Status full =
      RetryAfter(absl::ResourceExhaustedError("the server is full"), kTryAgain);
  EXPECT_EQ(DecodedBody(Input("FP32", "[1,2]", "[1,2]"),
                        [&full](int64_t) { return full; }),
            full);
}

TEST(JsonInferWireTest, RefusesTheNameOfAnotherModelThanThePaths) {
  const absl::Status status = DecodedBody(
      R"({"model_name":"bilinear_attention","inputs":[]})", HoldUncounted);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("model_name: 'bilinear_attention' (expected "
                        "'scaled_dot_product_attention'"));
}

TEST(NamedTest, KeepsWhatElseTheStatusSays) {
  const absl::Status status =
      Named("query", RetryAfter(absl::ResourceExhaustedError("is too much"),
                                std::chrono::seconds(3)));
  EXPECT_EQ(status.message(), "query: is too much");
  EXPECT_EQ(RetryTimeOf(status), std::chrono::seconds(3));
}

TEST(InferJsonTest, NumbersAreTheNearestOnesOfTheirType) {
  EXPECT_THAT(
      Elements<float>(Input(
          "FP32", "[6]", "[0.1,-0,16777217,1e-45,3.4028235e38,7.038531e-26]")),
      ElementsAre(0.1F, -0.0F, 16777216.0F, 1e-45F, 3.4028235e38F,
                  7.038531e-26F));
  EXPECT_THAT(
      Elements<int64_t>(
          Input("INT64", "[2]", "[-9223372036854775808,9223372036854775807]")),
      ElementsAre(std::numeric_limits<int64_t>::min(),
                  std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(
      Elements<uint64_t>(Input("UINT64", "[2]", "[18446744073709551615,-0]")),
      ElementsAre(std::numeric_limits<uint64_t>::max(), 0));
  EXPECT_THAT(Elements<uint8_t>(Input("BOOL", "[2]", "[true, false]")),
              ElementsAre(1, 0));
}

TEST(InferJsonTest, NumbersAreRoundedOnce) {
  // To the nearest double it is the middle of two floats, of which the even one
  // is the wrong one.
  EXPECT_THAT(
      Elements<float>(Input("FP32", "[1]", "[1.00000017881393432617187499]")),
      ElementsAre(1.00000011920928955078125F));
  // Below the smallest ones.
  EXPECT_THAT(Elements<float>(Input("FP32", "[2]", "[1e-60,-1e-400]")),
              ElementsAre(0.0F, -0.0F));
  EXPECT_THAT(Elements<double>(Input("FP64", "[1]", "[1e-400]")),
              ElementsAre(0.0));
}

TEST(InferJsonTest, ANumberHasAtMost4096Characters) {
  const auto half = [](size_t characters) {
    return absl::StrCat("0.5", std::string(characters - 3, '0'));
  };
  EXPECT_THAT(
      Elements<float>(Input("FP32", "[1]", absl::StrCat("[", half(4096), "]"))),
      ElementsAre(0.5F));
  const std::string longer = half(4097);
  for (const std::string& token :
       {longer, absl::StrCat("\"", longer, "\""), longer + "0"}) {
    const auto read =
        ReadElements(Input("FP32", "[2]", absl::StrCat("[1,", token, "]")));
    EXPECT_EQ(read.status().message(),
              "query.data: element 1 has more than 4096 characters");
  }
}

TEST(InferJsonTest, WhatJsonHasNoNumberForIsAString) {
  const auto values = Elements<float>(
      Input("FP32", "[3]", R"(["NaN","Infinity","-Infinity"])"));
  ASSERT_EQ(values.size(), 3);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], INFINITY);
  EXPECT_EQ(values[2], -INFINITY);
}

TEST(InferJsonTest, FlatAndNestedArraysAreTheSame) {
  for (const char* data : {"[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]"}) {
    EXPECT_THAT(Elements<float>(Input("FP32", "[2,3]", data)),
                ElementsAre(1, 2, 3, 4, 5, 6));
  }
  for (const char* data : {"[]", "[[],[]]", "[ [ ] , [ ] ]"}) {
    EXPECT_THAT(Elements<float>(Input("FP32", "[2,0]", data)), ElementsAre());
  }
}

TEST(InferJsonTest, TheOrderOfKeysDoesNotMatter) {
  EXPECT_THAT(Elements<int32_t>(
                  R"({"inputs":[{"data":[1,2],"shape":[2],"datatype":"INT32",
              "name":"query"}]})"),
              ElementsAre(1, 2));
}

TEST(InferJsonTest, OnlyDataOfInputsIsElements) {
  const auto parts =
      CutData(R"({"x":[{"data":[1]}],"data":[2],"outputs":[{"data":[3]}],
          "inputs":[{"name":"[\"data\":[","x":{"data":[4]}},
          {"d\u0061ta":[[5],[6]]}]})",
              HoldUncounted);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->data.size(), 1);
  EXPECT_EQ(parts->data[0].input, 1);
  EXPECT_EQ(parts->data[0].text, "[[5],[6]]");
}

TEST(InferJsonTest, AKeyWithAnEscapeIsTheSame) {
  for (const char* inputs :
       {"inputs", R"(\u0069\u006e\u0070\u0075\u0074\u0073)"}) {
    for (const char* data : {R"(d\u0061ta)", R"(\u0064\u0061\u0074\u0061)"}) {
      EXPECT_THAT(Elements<int8_t>(absl::StrCat(
                      R"({")", inputs, R"(":[{"name":"[\"data\":[",")", data,
                      R"(":[[5],[6]],"shape":[2,1],"datatype":"INT8"}]})")),
                  ElementsAre(5, 6));
    }
  }
}

// The kserve SDK sends it.
TEST(InferJsonTest, TheModelMayBeNamedBesideThePath) {
  InferJson json;
  EXPECT_EQ(
      ReadInferJson(R"({"model_name":"a","inputs":[]})", HoldUncounted, json),
      absl::OkStatus());
}

TEST(InferJsonTest, ParametersKeepTheirTypes) {
  InferJson json;
  ASSERT_EQ(ReadInferJson(
                R"({"id":"a","parameters":{"b":true,"i":-1,
          "u":18446744073709551615,"d":0.5,"s":"text"},
          "inputs":[{"name":"query","datatype":"FP32","shape":[2],
                     "parameters":{"binary_data_size":8}}],
          "outputs":[{"name":"output","parameters":{"binary_data":true}}]})",
                HoldUncounted, json),
            absl::OkStatus());
  const auto& parameters = json.fields.parameters();
  EXPECT_TRUE(parameters.at("b").bool_param());
  EXPECT_EQ(parameters.at("i").int64_param(), -1);
  EXPECT_EQ(parameters.at("u").uint64_param(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parameters.at("d").double_param(), 0.5);
  EXPECT_EQ(parameters.at("s").string_param(), "text");
  EXPECT_EQ(json.inputs[0].binary_bytes, 8);
  EXPECT_TRUE(
      json.fields.outputs(0).parameters().at("binary_data").bool_param());
}

TEST(InferJsonTest, MemoryForElementsIsAskedFor) {
  std::string data = "[0";
  for (int i = 1; i < 4096; ++i) data += ",0";
  int64_t held = 0;
  const auto hold = [&held](int64_t bytes) {
    held += bytes;
    return bytes > 16000 ? absl::ResourceExhaustedError("no more")
                         : absl::OkStatus();
  };
  const auto all = ReadElements(Input("FP32", "[4096]", data + "]"), hold);
  EXPECT_EQ(all.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(held, 4096 * 4);
  // None for what the text cannot have.
  held = 0;
  const auto few = ReadElements(Input("FP32", "[1000000]", data + "]"), hold);
  EXPECT_EQ(few.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(held, 0);
}

}  // namespace
}  // namespace attention::server
