#include "server/http/port/http_access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpCaller;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPage[] = "https://page.example";

// The status of what is not let through; 200 where it is.
int StatusOf(const std::map<std::string, std::string>& headers,
             bool probe = false, bool has_body = false,
             const std::string& method = "POST") {
  const HttpAccess access({kPage}, {"Known.example"});
  const auto reply = access.Answer(
      {.method = method, .path = "/a", .headers = headers}, probe, has_body);
  return reply ? reply->status : 200;
}

TEST(HttpAccessTest, PagesNeedAnOriginThatIsAllowed) {
  EXPECT_EQ(StatusOf({}), 200);
  EXPECT_EQ(StatusOf({{"origin", kPage}}), 200);
  for (const char* other : {"https://evil.example", "http://page.example",
                            "https://page.example:444", "null", "",
                            "https://page.example.evil.example"}) {
    EXPECT_EQ(StatusOf({{"origin", other}}), 403) << other;
    EXPECT_EQ(StatusOf({{"origin", other}}, /*probe=*/true), 403) << other;
  }
}

TEST(HttpAccessTest, HostsAreAddressesLocalhostOrKnown) {
  for (const char* host :
       {"127.0.0.1", "127.0.0.1:8002", "10.1.2.3", "[::1]", "[::1]:8002",
        "localhost", "LOCALHOST:8002", "localhost.", "known.example",
        "KNOWN.example.:8002"}) {
    EXPECT_EQ(StatusOf({{"host", host}}), 200) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:8002", "", "localhost.evil.example",
        "127.0.0.1.evil.example", "[::1", "127.0.0.1:8002.evil.example"}) {
    EXPECT_EQ(StatusOf({{"host", host}}), 403) << host;
    EXPECT_EQ(StatusOf({{"host", host}}, /*probe=*/true), 200) << host;
  }
}

TEST(HttpAccessTest, OneOriginOrNameHasOtherSpellings) {
  const HttpAccess access({"https://A.example:443", "http://b.example:80"},
                          {"Full.example."});
  const auto is_answered = [&access](const std::string& header,
                                     const std::string& text) {
    return !access.Answer(
        {.method = "POST", .path = "/a", .headers = {{header, text}}},
        /*probe=*/false, /*has_body=*/false);
  };
  EXPECT_TRUE(is_answered("origin", "https://a.example"));
  EXPECT_TRUE(is_answered("origin", "http://b.example"));
  EXPECT_FALSE(is_answered("origin", "http://a.example"));
  EXPECT_FALSE(is_answered("origin", "https://b.example"));
  EXPECT_TRUE(is_answered("host", "full.example:8002"));
  EXPECT_TRUE(is_answered("host", "full.example."));
}

TEST(HttpAccessTest, AnyNameDoesWhereThatIsSaid) {
  const HttpAccess access({}, {"*"});
  EXPECT_FALSE(access.Answer(
      {.method = "GET", .path = "/a", .headers = {{"host", "any.example"}}},
      /*probe=*/false, /*has_body=*/false));
}

TEST(HttpAccessTest, OverTlsTheCertificateHasTheNames) {
  const HttpAccess access({}, {});
  EXPECT_FALSE(access.Answer({.method = "GET",
                              .path = "/a",
                              .headers = {{"host", "any.example"}},
                              .encrypted = true},
                             /*probe=*/false, /*has_body=*/false));
}

TEST(HttpAccessTest, BodiesAreNotOfAFormsTypes) {
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8",
        "application/octet-stream", "application/ld+json"}) {
    EXPECT_EQ(StatusOf({{"content-type", type}}, false, true), 200) << type;
  }
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=a", "text/plain; application/json"}) {
    EXPECT_EQ(StatusOf({{"content-type", type}}, false, true), 415) << type;
    EXPECT_EQ(StatusOf({{"content-type", type}}, false, false), 200) << type;
  }
  EXPECT_EQ(StatusOf({}, false, true), 200);
}

TEST(HttpAccessTest, KnowsOriginsAndHosts) {
  for (const char* good : {"https://a.example", "http://a:80", "http://[::1]:1",
                           "http://127.0.0.1"}) {
    EXPECT_TRUE(IsOrigin(good)) << good;
  }
  for (const char* bad :
       {"", "a.example", "https://", "https://a/", "*", "null",
        "https://a:", "https://a:b", "ftp://a", "https://a b"}) {
    EXPECT_FALSE(IsOrigin(bad)) << bad;
  }
  EXPECT_TRUE(IsHostNameOrAny("a-b.example"));
  EXPECT_TRUE(IsHostNameOrAny("a-b.example."));
  EXPECT_FALSE(IsHostNameOrAny("."));
  EXPECT_FALSE(IsHostNameOrAny("a:80"));
  EXPECT_FALSE(IsHostNameOrAny(""));
}

class HttpServerAccessTest : public HttpServerTest {
 protected:
  void SetUp() override {
    access_ = std::make_shared<HttpAccess>(std::vector<std::string>{kPage},
                                           std::vector<std::string>{});
    Start();
  }
  // The heads of the replies to a request of a page, and to one without.
  std::string Ask(const std::string& request) {
    HttpCaller caller(address_, tls());
    caller.Send(request + "Host: 127.0.0.1\r\n\r\n");
    return caller.Read("\r\n\r\n");
  }
};

TEST_P(HttpServerAccessTest, APageThatIsAllowedMayReadTheReply) {
  EXPECT_THAT(Ask(absl::StrCat("GET /a HTTP/1.1\r\nOrigin: ", kPage, "\r\n")),
              AllOf(HasSubstr("200 OK"), HasSubstr("Vary: Origin\r\n"),
                    HasSubstr(absl::StrCat(
                        "Access-Control-Allow-Origin: ", kPage, "\r\n"))));
}

TEST_P(HttpServerAccessTest, OtherRepliesSayNothingOfPages) {
  EXPECT_THAT(Ask("GET /a HTTP/1.1\r\n"), Not(HasSubstr("Access-Control")));
  EXPECT_THAT(Ask("GET /a HTTP/1.1\r\nOrigin: https://evil.example\r\n"),
              AllOf(HasSubstr("403"), Not(HasSubstr("Access-Control"))));
}

TEST_P(HttpServerAccessTest, AnswersABrowserThatAsksFirst) {
  const std::string ask =
      "OPTIONS /a HTTP/1.1\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: content-type\r\nOrigin: ";
  EXPECT_THAT(
      Ask(absl::StrCat(ask, kPage, "\r\n")),
      AllOf(HasSubstr("204"), HasSubstr("Access-Control-Allow-Methods: GET"),
            HasSubstr("Access-Control-Allow-Headers: Authorization, "
                      "Content-Type"),
            HasSubstr("Access-Control-Allow-Origin: "),
            Not(HasSubstr("\r\nContent-"))));
  EXPECT_THAT(Ask(absl::StrCat(ask, "https://evil.example\r\n")),
              HasSubstr("403"));
}

TEST_P(HttpServerAccessTest, AReplyAfterThatOfAPageSaysNothingOfIt) {
  HttpCaller caller(address_, tls());
  caller.Send(absl::StrCat(
      "GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: ", kPage, "\r\n\r\n"));
  caller.Read("GET /a\n");
  caller.Send("GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  EXPECT_THAT(caller.Read("GET /a\n"), Not(HasSubstr("Access-Control")));
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpServerAccessTest,
                         testing::Values(Speech::kPlain, Speech::kTls),
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
