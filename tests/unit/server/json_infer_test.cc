// The JSON of an inference over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/port/inference_route.h"
#include "server/http/protocol/grpc_timeout.h"
#include "server/http/protocol/infer_json.h"
#include "server/http/protocol/infer_json_data.h"
#include "server/http/protocol/json_elements.h"
#include "server/http/protocol/json_infer_wire.h"
#include "server/http/protocol/json_text.h"
#include "server/http/protocol/proto_json.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/request/request_builder.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One input of that datatype, shape and data.
std::string Input(const std::string& type, const std::string& shape,
                  const std::string& data) {
  return absl::StrCat("{\"inputs\":[{\"name\":\"query\",\"datatype\":\"", type,
                      "\",\"shape\":", shape, ",\"data\":", data, "}]}");
}

// The first input's elements, beside what is read before them.
absl::StatusOr<AlignedBuffer> ReadElements(const std::string& text,
                                           HoldBytes hold = HoldUncounted) {
  const absl::StatusOr<InferJson> json = ReadInferJson(text);
  if (!json.ok()) return json.status();
  if (json->inputs.empty() || !json->inputs[0].data) return AlignedBuffer();
  const auto& input = json->fields.inputs(0);
  absl::StatusOr<AlignedBuffer> elements = ReadJsonElements(
      *json->inputs[0].data, *DataTypeFromName(input.datatype()), input.shape(),
      hold);
  if (elements.ok()) return elements;
  return Named(input.name() + ".data", elements.status());
}

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

std::string TextOf(DataType type, absl::Span<const float> values) {
  JsonText text;
  text.AddElements(type, {reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(float)});
  std::string whole;
  for (const grpc::Slice& slice : std::move(text).Take()) {
    whole.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return whole;
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

// What comes of a body that is sent to scaled_dot_product_attention.
absl::Status DecodedBody(const std::string& body, HoldBytes hold) {
  const ModelRepository repository;
  ModelTable models(repository);
  JsonInferHead head;
  head.model = "scaled_dot_product_attention";
  JsonInferWire wire(models, /*regions=*/{}, std::move(head),
                     std::make_shared<JsonInferReply>());
  return wire.Decode(std::vector<grpc::Slice>{grpc::Slice(body)}, hold)
      .status();
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
          {"d\u0061ta":[[5],[6]]}]})");
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->data.size(), 1);
  EXPECT_EQ(parts->data[0].input, 1);
  EXPECT_EQ(parts->data[0].text, "[[5],[6]]");
}

TEST(InferJsonTest, AKeyWithAnEscapeIsTheSame) {
  EXPECT_THAT(Elements<int8_t>(
                  R"({"inputs":[{"name":"[\"data\":[","d\u0061ta":[[5],[6]],
              "shape":[2,1],"datatype":"INT8"}]})"),
              ElementsAre(5, 6));
}

// The kserve SDK sends it.
TEST(InferJsonTest, TheModelMayBeNamedBesideThePath) {
  const auto json = ReadInferJson(R"({"model_name":"a","inputs":[]})");
  EXPECT_TRUE(json.ok()) << json.status();
}

TEST(InferJsonTest, ParametersKeepTheirTypes) {
  const auto json = ReadInferJson(
      R"({"id":"a","parameters":{"b":true,"i":-1,
          "u":18446744073709551615,"d":0.5,"s":"text"},
          "inputs":[{"name":"query","parameters":{"binary_data_size":8}}],
          "outputs":[{"name":"output","parameters":{"binary_data":true}}]})");
  ASSERT_TRUE(json.ok()) << json.status();
  const auto& parameters = json->fields.parameters();
  EXPECT_TRUE(parameters.at("b").bool_param());
  EXPECT_EQ(parameters.at("i").int64_param(), -1);
  EXPECT_EQ(parameters.at("u").uint64_param(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parameters.at("d").double_param(), 0.5);
  EXPECT_EQ(parameters.at("s").string_param(), "text");
  EXPECT_EQ(json->inputs[0].binary_bytes, 8);
  EXPECT_TRUE(
      json->fields.outputs(0).parameters().at("binary_data").bool_param());
}

struct Wrong {
  std::string body;
  std::string says;
};

TEST(InferJsonTest, WrongOnesAreRefusedByTheFieldsName) {
  const std::string deep(100, '[');
  const std::vector<Wrong> wrong = {
      {"", "body: no JSON"},
      {"[]", "body: an array (expected an object)"},
      {"3", "body: 3 (expected an object)"},
      {"{\"inputs\":[]} x", "body: no JSON"},
      {"{\"id\":7}", "id: 7 (expected a string)"},
      {"{\"id\":\"a\",\"id\":\"b\"}", "id: comes twice"},
      {"{\"inputs\":{}}", "inputs: an object (expected an array)"},
      {"{\"inputs\":[3]}", "inputs: 3 (expected objects)"},
      {"{\"outputs\":null}", "outputs: null (expected an array)"},
      {"{\"parameters\":[]}", "parameters: an array (expected an object)"},
      {"{\"parameters\":{\"scale\":[1]}}", "parameters.scale: an array"},
      {"{\"parameters\":{\"scale\":null}}", "parameters.scale: null"},
      {"{\"parameters\":{\"a\":1,\"a\":2}}", "parameters.a: comes twice"},
      {"{\"inputs\":[{\"name\":1}]}", "inputs[0].name: 1 (expected a string)"},
      {"{\"inputs\":[{\"name\":\"key\",\"shape\":3}]}",
       "key.shape: 3 (expected an array)"},
      {"{\"inputs\":[{\"name\":\"key\",\"shape\":[1.5]}]}",
       "key.shape: 1.5 (expected integers)"},
      {"{\"inputs\":[{\"name\":\"key\",\"shape\":[1],\"shape\":[1]}]}",
       "key.shape: comes twice"},
      {"{\"inputs\":[{\"name\":\"key\"}]}", "key: has no elements"},
      {"{\"inputs\":[{\"name\":\"key\",\"datatype\":\"INT8\",\"shape\":[1],"
       "\"parameters\":{\"binary_data_size\":1},\"data\":[1]}]}",
       "key: has its elements in two places"},
      {"{\"inputs\":[{\"name\":\"key\",\"parameters\":"
       "{\"binary_data_size\":-1}}]}",
       "key.binary_data_size: -1 (expected an integer of at least 0)"},
      {"{\"inputs\":[{\"name\":\"key\",\"parameters\":"
       "{\"binary_data_size\":\"8\"}}]}",
       "key.binary_data_size: \"8\" (expected an integer of at least 0)"},
      {"{\"causal\":\"top_left\",\"inputs\":[]}",
       "causal: unknown key (expected id, model_name, parameters, inputs, "
       "outputs; options "
       "and other settings belong in parameters)"},
      {"{\"inputs\":[{\"name\":\"key\",\"scale\":2}]}",
       "key.scale: unknown key (expected name, datatype, shape, parameters, "
       "data; options"},
      {"{\"outputs\":[{\"name\":\"lse\",\"binary_data\":true}]}",
       "lse.binary_data: unknown key (expected name, parameters; options"},
      {absl::StrCat("{\"parameters\":\"", std::string(100, 'x'), "\"}"),
       absl::StrCat("parameters: \"", std::string(60, 'x'),
                    "... (expected an object)")},
      {Input("FP16", "[1]", "[1]"), "FP16 has no form in JSON"},
      {Input("FP32", "[2]", "[1]"), "query.data: 1 elements (expected 2"},
      {Input("FP32", "[-1]", "[1]"), "query.data: "},
      {Input("FP32", "[2]", "[1,true]"), "query.data: element 1 is true"},
      {Input("FP32", "[1]", "[null]"), "element 0 is null"},
      {Input("FP32", "[1]", "[\"1\"]"), "element 0 is \"1\""},
      {Input("FP32", "[1]", "[1e39]"), "element 0 is 1e39"},
      {Input("FP32", "[1]", "[1e999]"), "query.data: element 0 is 1e999"},
      {Input("FP64", "[1]", "[1e999]"), "query.data: element 0 is 1e999"},
      {Input("FP32", "[1]", "[NaN]"), "query.data: element 0 is NaN"},
      {Input("FP32", "[1]", "[01]"), "element 0 is 01"},
      {Input("FP32", "[1]", "[1.]"), "element 0 is 1."},
      {Input("FP32", "[1]", "[.5]"), "element 0 is .5"},
      {Input("FP32", "[1]", "[+1]"), "element 0 is +1"},
      {Input("FP32", "[1]", "[-]"), "element 0 is -"},
      {Input("FP32", "[1]", "[1e]"), "element 0 is 1e"},
      {Input("FP32", "[2]", "[1 2]"), "query.data: no JSON behind 1 elements"},
      {Input("FP32", "[2]", "[1,,2]"), "query.data: no JSON behind 1 elements"},
      {Input("FP32", "[1]", "[1,]"), "query.data: no JSON behind 1 elements"},
      {Input("FP32", "[1]", "[,1]"), "query.data: no JSON behind 0 elements"},
      {Input("FP32", "[1]", "[1"), "body: no JSON at byte 70"},
      {Input("FP32", "[1]", "[1}]"), "element 0 is 1}"},
      {Input("FP32", "[1]", "[\"]"), "body: no JSON"},
      {Input("FP32", "[1]", "[{}]"), "query.data: has an object in it"},
      {Input("INT32", "[1]", "[2147483648]"), "element 0 is 2147483648"},
      {Input("INT32", "[1]", "[1.0]"), "element 0 is 1.0"},
      {Input("BOOL", "[1]", "[1]"), "(expected true or false)"},
      {Input("FP32", "[2,2]", "[[1,2],3]"), "numbers and arrays are mixed"},
      {Input("FP32", "[2,2]", "[1,[2,3]]"), "numbers and arrays are mixed"},
      {Input("FP32", "[2,2]", "[[1,2,3],[4]]"), "not nested as shape"},
      {Input("FP32", "[2,3]", "[[1,2],[3,4],[5,6]]"), "not nested as shape"},
      {Input("FP32", "[1]", deep), "arrays are nested deeper than 8"},
      {absl::StrCat("{\"x\":", deep), "nested too deep"},
      {absl::StrCat("{\"id\":\"", std::string(70000, 'x'), "\"}"),
       "all besides data takes more than 64 KiB"},
      {absl::StrCat("{\"x\":", std::string(70000, '1'), "}"),
       "all besides data takes more than 64 KiB"},
  };
  for (const Wrong& one : wrong) {
    const auto json = ReadElements(one.body);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument)
        << one.body.substr(0, 200);
    EXPECT_THAT(std::string(json.status().message()), HasSubstr(one.says))
        << one.body.substr(0, 200);
  }
}

TEST(InferJsonTest, ManySmallThingsAreBounded) {
  std::string inputs = "{\"inputs\":[";
  for (int i = 0; i < 65; ++i) {
    absl::StrAppend(&inputs, i == 0 ? "" : ",",
                    "{\"parameters\":{\"binary_data_size\":0}}");
  }
  EXPECT_THAT(std::string(ReadInferJson(inputs + "]}").status().message()),
              HasSubstr("inputs: more than 64"));
  std::string shape = "{\"inputs\":[{\"shape\":[1";
  for (int i = 0; i < 33000; ++i) shape += ",1";
  EXPECT_THAT(std::string(ReadInferJson(shape + "]}]}").status().message()),
              HasSubstr("64 KiB"));
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

TEST(ReadFieldsTest, WrongOnesAreRefusedWithWhatTheyHad) {
  const std::vector<Wrong> wrong = {
      {"{\"byte_size\":\"64\"}",
       "byte_size: \"64\" (expected an integer of 0 to 18446744073709551615)"},
      {"{\"byte_size\":-1}", "byte_size: -1 (expected an integer of 0 to"},
      {"{\"device_id\":9223372036854775808}",
       "device_id: 9223372036854775808 (expected an integer of 0 to "
       "9223372036854775807)"},
      {"{\"name\":1}", "name: 1 (expected a string)"},
      {"{\"raw_handle\":\"eA==\"}",
       "raw_handle: \"eA==\" (expected {\"b64\": BASE64})"},
      {"{\"name\":[\"a\"]}", "name: an array (expected a string)"},
      {"{", "body: parse error at line 1, column 2"},
  };
  for (const Wrong& one : wrong) {
    inference::CudaSharedMemoryRegisterRequest request;
    const absl::Status status = ReadFields(
        one.body, {"name", "raw_handle", "device_id", "byte_size"}, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.body;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(one.says));
  }
  inference::RepositoryIndexRequest index;
  EXPECT_EQ(ReadFields("{\"ready\":1}", {"ready"}, index).message(),
            "ready: 1 (expected true or false)");
}

TEST(JsonTextTest, NumbersAreReadBackAsTheyWere) {
  const std::vector<float> values = {0.1F, -0.0F, 3.4028235e38F, 1e-45F, 2.5F};
  EXPECT_EQ(TextOf(DataType::kFloat32, values),
            "0.1,-0,3.4028235e+38,1e-45,2.5");
  EXPECT_EQ(TextOf(DataType::kFloat32, {NAN, INFINITY, -INFINITY}),
            R"("NaN","Infinity","-Infinity")");
}

TEST(JsonTextTest, NoElementTakesMoreTextThanWasSaid) {
  for (const float value : {-1.17549435e-38F, -3.4028235e38F, -1.2345678e-5F}) {
    EXPECT_LE(TextOf(DataType::kFloat32, {value}).size() + 1,
              sizeof(value) * kMostTextPerByte);
  }
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
      const auto half = static_cast<uint16_t>(bits);
      JsonText text;
      text.AddElements(type, {reinterpret_cast<const std::byte*>(&half), 2});
      ASSERT_LE(text.size() + 1, 2 * kMostTextPerByte) << bits;
    }
  }
}

TEST(InferenceRouteTest, NamesAreDecoded) {
  const auto route =
      FindInferenceRoute("/v2/models/a%2Fb%20c/versions/1/infer");
  ASSERT_TRUE(route.has_value());
  EXPECT_EQ(route->method, InferenceMethod::kModelInfer);
  EXPECT_EQ(route->name, "a/b c");
  EXPECT_EQ(route->version, "1");
  EXPECT_TRUE(Takes(*route, "POST"));
  EXPECT_FALSE(Takes(*route, "GET"));
}

TEST(InferenceRouteTest, OtherPathsLeadNowhere) {
  for (const char* path :
       {"", "/", "/v2/models", "/v2/models//infer", "/v3", "/v2/models/a/b",
        "/v2/models/a/versions//infer", "/v2/systemsharedmemory/region//status",
        "/v2/repository/models//load"}) {
    EXPECT_FALSE(FindInferenceRoute(path).has_value()) << path;
  }
}

TEST(GrpcTimeoutTest, IsReadAsInGrpc) {
  using Clock = std::chrono::system_clock;
  EXPECT_EQ(*DeadlineOf(""), Clock::time_point::max());
  const auto before = Clock::now();
  EXPECT_GE(*DeadlineOf("1H"), before + std::chrono::hours(1));
  EXPECT_LE(*DeadlineOf("500m"), Clock::now() + std::chrono::seconds(1));
  EXPECT_EQ(*DeadlineOf("99999999H"), Clock::time_point::max());
  for (const char* wrong : {"1", "S", "-1S", "1.5S", "123456789S", "1 S"}) {
    EXPECT_EQ(DeadlineOf(wrong).status().code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

}  // namespace
}  // namespace attention::server
