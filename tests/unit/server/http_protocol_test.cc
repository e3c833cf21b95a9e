// What HTTP has beside a request's JSON: an answer's text, paths, timeouts.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/http/port/inference_route.h"
#include "server/http/protocol/grpc_timeout.h"
#include "server/http/protocol/json_text.h"

namespace attention::server {
namespace {

std::string JsonOf(DataType type, absl::Span<const float> values) {
  JsonText text;
  text.AddElements(type, {reinterpret_cast<const std::byte*>(values.data()),
                          values.size() * sizeof(float)});
  std::string whole;
  for (const grpc::Slice& slice : std::move(text).Take()) {
    whole.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return whole;
}

TEST(JsonTextTest, NumbersAreReadBackAsTheyWere) {
  const std::vector<float> values = {0.1F, -0.0F, 3.4028235e38F, 1e-45F, 2.5F};
  EXPECT_EQ(JsonOf(DataType::kFloat32, values),
            "0.1,-0,3.4028235e+38,1e-45,2.5");
  EXPECT_EQ(JsonOf(DataType::kFloat32, {NAN, INFINITY, -INFINITY}),
            R"("NaN","Infinity","-Infinity")");
}

TEST(JsonTextTest, NoElementTakesMoreTextThanWasSaid) {
  for (const float value : {-1.17549435e-38F, -3.4028235e38F, -1.2345678e-5F}) {
    EXPECT_LE(JsonOf(DataType::kFloat32, {value}).size() + 1,
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
  constexpr Clock::time_point kBegin(std::chrono::hours(1));
  EXPECT_EQ(*DeadlineOf("", kBegin), Clock::time_point::max());
  EXPECT_EQ(*DeadlineOf("1H", kBegin), kBegin + std::chrono::hours(1));
  EXPECT_EQ(*DeadlineOf("500m", kBegin),
            kBegin + std::chrono::milliseconds(500));
  EXPECT_EQ(*DeadlineOf("99999999H", kBegin), Clock::time_point::max());
  for (const char* wrong : {"1", "S", "-1S", "1.5S", "123456789S", "1 S"}) {
    EXPECT_EQ(DeadlineOf(wrong, kBegin).status().code(),
              absl::StatusCode::kInvalidArgument)
        << wrong;
  }
}

}  // namespace
}  // namespace attention::server
