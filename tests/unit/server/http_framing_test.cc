// Requests of which it is not sure where they end, or whom they are for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/port/http_access.h"
#include "tests/service/http_caller.h"
#include "tests/unit/server/http_server_fixture.h"

namespace attention::server {
namespace {

using ::attention::test::HttpBody;
using ::attention::test::HttpCaller;
using ::attention::test::HttpStatus;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHost[] = "Host: 127.0.0.1\r\n";

class HttpFramingTest : public HttpServerTest {
 protected:
  // All that comes to a request with these headers and a body that looks like
  // another request.
  std::string Answers(const std::string& headers,
                      const std::string& version = "HTTP/1.1") {
    Start();
    HttpCaller caller(address_, tls());
    caller.Send(absl::StrCat("POST /first ", version, "\r\n", headers,
                             "\r\nGET /second HTTP/1.1\r\n", kHost, "\r\n"));
    std::string all = caller.Read();
    EXPECT_TRUE(caller.closed());
    return all;
  }
  std::string Get(const std::string& target, const std::string& host) {
    HttpCaller caller(address_, tls());
    caller.Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: ", host,
                             "\r\nConnection: close\r\n\r\n"));
    return caller.Read();
  }
  void ExpectRefusedAndClosed(const std::string& headers,
                              const std::string& field,
                              const std::string& version = "HTTP/1.1") {
    const std::string all = Answers(headers, version);
    EXPECT_EQ(HttpStatus(all), 400) << headers;
    EXPECT_THAT(HttpBody(all), HasSubstr(field)) << headers;
    EXPECT_THAT(all, Not(HasSubstr("/second"))) << headers;
  }
};

TEST_P(HttpFramingTest, RefusesTransferEncodingsOtherThanChunked) {
  for (const char* coding :
       {"gzip", "identity", "chunked, identity", "gzip, chunked", "chunke",
        "chunked, chunked", "\"chunked\"", "chunked;q=1", ""}) {
    ExpectRefusedAndClosed(
        absl::StrCat(kHost, "Transfer-Encoding: ", coding, "\r\n"),
        "ransfer-Encoding");
  }
}

TEST_P(HttpFramingTest, RefusesTwoTransferEncodings) {
  ExpectRefusedAndClosed(absl::StrCat(kHost,
                                      "Transfer-Encoding: identity\r\n"
                                      "Transfer-Encoding: chunked\r\n"),
                         "Transfer-Encoding: 2");
}

TEST_P(HttpFramingTest, RefusesTransferEncodingOverHttp10) {
  ExpectRefusedAndClosed("Transfer-Encoding: chunked\r\n", "HTTP/1.0",
                         "HTTP/1.0");
}

TEST_P(HttpFramingTest, RefusesTransferEncodingBesideContentLength) {
  const std::string all = Answers(absl::StrCat(
      kHost, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"));
  EXPECT_EQ(HttpStatus(all), 400);
  EXPECT_THAT(all, Not(HasSubstr("/second")));
}

TEST_P(HttpFramingTest, RefusesTwoContentLengthsThatDiffer) {
  const std::string all = Answers(
      absl::StrCat(kHost, "Content-Length: 4\r\nContent-Length: 0\r\n"));
  EXPECT_EQ(HttpStatus(all), 400);
  EXPECT_THAT(all, Not(HasSubstr("/second")));
}

TEST_P(HttpFramingTest, WantsOneHost) {
  ExpectRefusedAndClosed("", "Host: none");
  ExpectRefusedAndClosed(absl::StrCat(kHost, kHost), "Host: 2");
  ExpectRefusedAndClosed("Host: a/b@c\r\n", "Host: not a name");
}

TEST_P(HttpFramingTest, EmptyLinesBeforeARequestAreIgnored) {
  Start();
  HttpCaller caller(address_, tls());
  const std::string post = absl::StrCat("POST /body HTTP/1.1\r\n", kHost,
                                        "Content-Length: 4\r\n\r\nbody\r\n");
  caller.Send(absl::StrCat("\r\n", post, post, "\r\n"));
  EXPECT_EQ(HttpStatus(caller.Read("body")), 200);
  EXPECT_EQ(HttpStatus(caller.Read("body")), 200);
  caller.Send(absl::StrCat("GET /last HTTP/1.1\r\n", kHost, "\r\n"));
  EXPECT_EQ(HttpStatus(caller.Read("GET /last\n")), 200);
}

TEST_P(HttpFramingTest, AnEmptyLineBehindABodyIsNoRequestAhead) {
  Start();
  HttpCaller caller(address_, tls());
  for (int i = 0; i < 300; ++i) {
    caller.Send(absl::StrCat("POST /body HTTP/1.1\r\n", kHost,
                             "Content-Length: 4\r\n\r\nbody\r\n"));
    ASSERT_THAT(caller.Read("\r\n\r\nbody"), Not(HasSubstr("close"))) << i;
  }
}

TEST_P(HttpFramingTest, Http10NeedsNoHost) {
  Start();
  HttpCaller caller(address_, tls());
  caller.Send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_EQ(HttpBody(caller.Read()), "GET /a\n");
}

TEST_P(HttpFramingTest, Http10IsToldThatItsConnectionStaysOpen) {
  Start();
  HttpCaller caller(address_, tls());
  for (int i = 0; i < 2; ++i) {
    caller.Send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(caller.Read("GET /a\n"), HasSubstr("Connection: keep-alive"));
  }
}

TEST_P(HttpFramingTest, TheTargetMayBeAWholeUrl) {
  Start();
  for (const auto& [url, path] :
       {std::pair("http://127.0.0.1:8002/a/b?c=/d", "/a/b"),
        std::pair("HTTPS://127.0.0.1/a", "/a"),
        std::pair("http://127.0.0.1", "/"),
        std::pair("http://127.0.0.1?a=/b", "/")}) {
    EXPECT_EQ(HttpBody(Get(url, "127.0.0.1")),
              absl::StrCat("GET ", path, "\n"));
  }
}

TEST_P(HttpFramingTest, TheHostOfAWholeUrlCounts) {
  access_ = std::make_shared<const HttpAccess>(
      std::vector<std::string>(), std::vector<std::string>{"known.test"});
  Start();
  // Over TLS the certificate says whose the server is.
  const int refused = tls() == nullptr ? 403 : 200;
  EXPECT_EQ(HttpStatus(Get("http://other.test/a", "known.test")), refused);
  EXPECT_EQ(HttpStatus(Get("http://a@known.test/a", "known.test")), refused);
  EXPECT_EQ(HttpStatus(Get("http:///a", "known.test")), refused);
  EXPECT_EQ(HttpStatus(Get("http://known.test/a", "other.test")), 200);
}

TEST_P(HttpFramingTest, WhoSendsHundredsAheadIsAnsweredAndClosed) {
  Start();
  HttpCaller caller(address_, tls());
  std::string requests;
  for (int i = 0; i < 300; ++i) requests += kRequest;
  caller.Send(requests);
  const std::string all = caller.Read();
  EXPECT_TRUE(caller.closed());
  EXPECT_THAT(all, HasSubstr("Connection: close"));
  EXPECT_THAT(all, testing::EndsWith("GET /a\n"));
}

INSTANTIATE_TEST_SUITE_P(Speeches, HttpFramingTest,
                         testing::Values(Speech::kPlain, Speech::kTls),
                         &NameOfSpeech);

}  // namespace
}  // namespace attention::server
