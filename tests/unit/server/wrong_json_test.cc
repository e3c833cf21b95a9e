// JSON over HTTP that is refused, and what the error says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/protocol/infer_json.h"
#include "server/http/protocol/proto_json.h"
#include "tests/unit/server/json_infer_fixture.h"

namespace attention::server {
namespace {

using ::testing::HasSubstr;

struct WrongBody {
  std::string body;
  std::string says;
};

TEST(InferJsonTest, WrongOnesAreRefusedByTheFieldsName) {
  const std::string deep(100, '[');
  const std::vector<WrongBody> wrong = {
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
      {"{\"inputs\":[{\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1]}]}",
       "inputs[0].name: missing"},
      {"{\"inputs\":[{\"name\":\"key\",\"shape\":[1],\"data\":[1]}]}",
       "key.datatype: missing"},
      {"{\"inputs\":[{\"name\":\"key\",\"datatype\":\"FP32\",\"data\":[1]}]}",
       "key.shape: missing"},
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
  for (const WrongBody& one : wrong) {
    const auto json = ReadElements(one.body);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument)
        << one.body.substr(0, 200);
    EXPECT_THAT(std::string(json.status().message()), HasSubstr(one.says))
        << one.body.substr(0, 200);
  }
}

std::string WrongIn(const std::string& text) {
  InferJson json;
  return std::string(ReadInferJson(text, HoldUncounted, json).message());
}

TEST(InferJsonTest, ManySmallThingsAreBounded) {
  std::string inputs = "{\"inputs\":[";
  for (int i = 0; i < 65; ++i) {
    absl::StrAppend(&inputs, i == 0 ? "" : ",",
                    "{\"parameters\":{\"binary_data_size\":0}}");
  }
  EXPECT_THAT(WrongIn(inputs + "]}"), HasSubstr("inputs: more than 64"));
  std::string shape = "{\"inputs\":[{\"shape\":[1";
  for (int i = 0; i < 33000; ++i) shape += ",1";
  EXPECT_THAT(WrongIn(shape + "]}]}"), HasSubstr("64 KiB"));
}

TEST(ReadFieldsTest, WrongOnesAreRefusedWithWhatTheyHad) {
  const std::vector<WrongBody> wrong = {
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
  for (const WrongBody& one : wrong) {
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

}  // namespace
}  // namespace attention::server
