#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "attention_client/client.h"

namespace attention::client {
namespace {

using std::chrono::milliseconds;
using ::testing::StartsWith;

TEST(OptionsTest, TheDefaultsAreAccepted) {
  EXPECT_TRUE(Client::Create({}).ok());
}

class GoodTargetTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoodTargetTest, IsAccepted) {
  EXPECT_TRUE(Client::Create({.target = GetParam()}).ok());
}

INSTANTIATE_TEST_SUITE_P(All, GoodTargetTest,
                         ::testing::Values("localhost:1", "a.example:65535",
                                           "[::1]:8001", "unix:/a",
                                           "dns:///a:1", "ipv4:127.0.0.1:1"));

class LocalTargetTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LocalTargetTest, GetsATokenInPlainText) {
  EXPECT_TRUE(Client::Create({.target = GetParam(), .token = "abc"}).ok());
}

INSTANTIATE_TEST_SUITE_P(All, LocalTargetTest,
                         ::testing::Values("127.0.0.1:8001", "127.1.2.3:1",
                                           "localhost:1", "[::1]:8001",
                                           "dns:///localhost",
                                           "dns:///127.0.0.1:1", "ipv6:[::1]:1",
                                           "ipv4:127.0.0.1:1,127.0.0.2:1",
                                           "unix:/a", "unix-abstract:a"));

// Names that only begin as this machine's do, and lists that only begin with
// its address.
class DistantTargetTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DistantTargetTest, GetsNoTokenInPlainText) {
  const absl::Status status =
      Client::Create({.target = GetParam(), .token = "abc"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("token: "));
}

INSTANTIATE_TEST_SUITE_P(
    All, DistantTargetTest,
    ::testing::Values("192.0.2.1:8001", "127.evil.example:8001",
                      "127.0.0.1.nip.io:8001", "localhost.example:1",
                      "dns:///unix:8001", "ipv4:127.0.0.1:8001,10.0.0.7:8001",
                      "ipv4:127.0.0.1:8001%2C10.0.0.7:8001"));

struct BadOption {
  const char* name;
  ClientOptions options;
};

class BadOptionTest : public ::testing::TestWithParam<BadOption> {};

TEST_P(BadOptionTest, IsRefusedByName) {
  const absl::Status status = Client::Create(GetParam().options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string name = GetParam().name;
  EXPECT_THAT(std::string(status.message()),
              StartsWith(name.substr(0, name.find("__")) + ": "));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptionTest,
    ::testing::Values(
        BadOption{"target__empty", {.target = ""}},
        BadOption{"target__no_port", {.target = "localhost"}},
        BadOption{"target__port_0", {.target = "localhost:0"}},
        BadOption{"target__port_65536", {.target = "localhost:65536"}},
        BadOption{"target__no_host", {.target = ":8001"}},
        BadOption{"target__bare_ipv6", {.target = "::1"}},
        BadOption{"target__path", {.target = "a/b:8001"}},
        BadOption{"target__browser", {.target = "http://localhost:8001"}},
        BadOption{"deadline__negative", {.deadline = milliseconds(-1)}},
        BadOption{"deadline__endless", {.deadline = milliseconds::max()}},
        BadOption{"max_attempts__none", {.max_attempts = 0}},
        BadOption{"max_attempts__many", {.max_attempts = 6}},
        BadOption{"initial_backoff", {.initial_backoff = milliseconds(0)}},
        BadOption{"max_backoff__short", {.max_backoff = milliseconds(99)}},
        BadOption{"max_backoff__endless", {.max_backoff = milliseconds::max()}},
        BadOption{"max_message_bytes", {.max_message_bytes = 0}},
        BadOption{"ca_file", {.tls = TlsOptions{.ca_file = "/absent"}}},
        BadOption{"ca_file__folder", {.tls = TlsOptions{.ca_file = "/"}}},
        BadOption{"tls__half",
                  {.tls = TlsOptions{.certificate_file = "a.crt"}}},
        BadOption{"token__with_a_space", {.token = "a b"}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attention::client
