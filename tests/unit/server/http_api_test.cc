#include "server/http/http_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace attention::server {
namespace {

using ::testing::HasSubstr;

HttpReply Get(const HttpApi& api, const std::string& path) {
  return api.Answer({.method = "GET", .path = path});
}

TEST(HttpApiTest, IsLiveAndNothingElseBeforeTheStartIsOver) {
  const HttpApi api;
  EXPECT_EQ(Get(api, "/v2/health/live").status, 200);
  EXPECT_EQ(Get(api, "/v2/health/started").status, 503);
  EXPECT_EQ(Get(api, "/v2/health/ready").status, 503);
  EXPECT_EQ(Get(api, "/metrics").status, 503);
}

TEST(HttpApiTest, ServesFromThenOn) {
  HttpApi api;
  api.StartServing({.ready = [] { return true; },
                    .metrics = [] { return std::string("a 1\n"); }});
  EXPECT_EQ(Get(api, "/v2/health/started").body, "{\"started\":true}\n");
  EXPECT_EQ(Get(api, "/v2/health/ready").body, "{\"ready\":true}\n");
  EXPECT_EQ(Get(api, "/metrics").body, "a 1\n");
}

TEST(HttpApiTest, HasStartedAlsoWhereItIsNotReadyAnyMore) {
  HttpApi api;
  api.StartServing(
      {.ready = [] { return false; }, .metrics = [] { return std::string(); }});
  EXPECT_EQ(Get(api, "/v2/health/started").status, 200);
  EXPECT_EQ(Get(api, "/v2/health/ready").status, 503);
}

TEST(HttpApiTest, RefusesOtherPathsAndNamesThoseThatThereAre) {
  const HttpReply reply = Get(HttpApi(), "/v2/health");
  EXPECT_EQ(reply.status, 404);
  EXPECT_THAT(reply.body, HasSubstr("/v2/health/ready"));
}

TEST(HttpApiTest, RefusesOtherMethods) {
  EXPECT_EQ(HttpApi().Answer({.method = "POST", .path = "/metrics"}).status,
            405);
}

}  // namespace
}  // namespace attention::server
