#include "server/http/http_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/scheduling/retry_after.h"

namespace attention::server {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

HttpReply Get(const HttpApi& api, const std::string& path) {
  std::promise<HttpReply> replied;
  api.Answer(std::make_shared<HttpExchange>(
      HttpRequest{.method = "GET", .path = path},
      [&replied](HttpReply reply) { replied.set_value(std::move(reply)); }));
  HttpReply reply = replied.get_future().get();
  for (const grpc::Slice& piece : reply.pieces) {
    reply.body.append(piece.begin(), piece.end());
  }
  return reply;
}

TEST(HttpApiTest, IsLiveAndNothingElseBeforeTheStartIsOver) {
  const HttpApi api(/*with_inference=*/true);
  EXPECT_EQ(Get(api, "/v2/health/live").status, 200);
  EXPECT_EQ(Get(api, "/v2/health/started").status, 503);
  EXPECT_EQ(Get(api, "/v2/health/ready").status, 503);
  EXPECT_EQ(Get(api, "/metrics").status, 503);
}

TEST(HttpApiTest, InferenceThatIsToBeServedIsNotThereYet) {
  const HttpApi api(/*with_inference=*/true);
  HttpRequest request{.method = "POST", .path = "/v2/models/a/infer"};
  const absl::Status body = api.MostBodyBytes(request).status();
  EXPECT_EQ(body.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryTimeOf(body));
  for (const char* path : {"/v2", "/v2/models/a/infer"}) {
    const HttpReply reply = Get(api, path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_THAT(reply.headers, Contains(Pair("Retry-After", "1")));
  }
}

TEST(HttpApiTest, WhatIsNeverServedIsNotFoundWhateverItsBody) {
  const HttpApi api(/*with_inference=*/false);
  for (const char* path : {"/v2/models/a/infer", "/other"}) {
    HttpRequest request{.method = "POST", .path = path};
    EXPECT_EQ(api.MostBodyBytes(request).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(Get(api, path).status, 404);
  }
}

TEST(HttpApiTest, ServesFromThenOn) {
  HttpApi api(/*with_inference=*/true);
  api.StartServing({.ready = [] { return true; },
                    .metrics = [] { return std::string("a 1\n"); }});
  EXPECT_EQ(Get(api, "/v2/health/started").body, "{\"started\":true}\n");
  EXPECT_EQ(Get(api, "/v2/health/ready").body, "{\"ready\":true}\n");
  EXPECT_EQ(Get(api, "/metrics").body, "a 1\n");
}

TEST(HttpApiTest, MetricsThatManyWaitForAreWrittenFewTimes) {
  HttpApi api(/*with_inference=*/true);
  std::atomic<int> written = 0;
  api.StartServing({.ready = [] { return true; },
                    .metrics = [&] { return absl::StrCat(++written); }});
  constexpr int kExchanges = 1000;
  std::atomic<int> replied = 0;
  std::promise<void> all;
  for (int i = 0; i < kExchanges; ++i) {
    api.Answer(std::make_shared<HttpExchange>(
        HttpRequest{.method = "GET", .path = "/metrics"},
        [&](const HttpReply& reply) {
          EXPECT_EQ(reply.status, 200);
          if (++replied == kExchanges) all.set_value();
        }));
  }
  all.get_future().wait();
  EXPECT_LT(written, kExchanges / 10);
}

TEST(HttpApiTest, MetricsAreOfATimeAfterTheyWereAskedFor) {
  HttpApi api(/*with_inference=*/true);
  int value = 0;
  api.StartServing({.ready = [] { return true; },
                    .metrics = [&value] { return absl::StrCat(value); }});
  for (value = 1; value < 4; ++value) {
    EXPECT_EQ(Get(api, "/metrics").body, absl::StrCat(value));
  }
}

TEST(HttpApiTest, HasStartedAlsoWhereItIsNotReadyAnyMore) {
  HttpApi api(/*with_inference=*/true);
  api.StartServing(
      {.ready = [] { return false; }, .metrics = [] { return std::string(); }});
  EXPECT_EQ(Get(api, "/v2/health/started").status, 200);
  EXPECT_EQ(Get(api, "/v2/health/ready").status, 503);
}

TEST(HttpApiTest, RefusesOtherPathsAndNamesThoseThatThereAre) {
  const HttpReply reply = Get(HttpApi(/*with_inference=*/false), "/v2/health");
  EXPECT_EQ(reply.status, 404);
  EXPECT_THAT(reply.body, HasSubstr("/v2/health/ready"));
}

TEST(HttpApiTest, RefusesOtherMethods) {
  const HttpApi api(/*with_inference=*/true);
  EXPECT_EQ(api.Answer({.method = "POST", .path = "/metrics"}).status, 405);
}

}  // namespace
}  // namespace attention::server
