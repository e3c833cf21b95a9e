#include "server/transport/tcp_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/server.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostAndPort, PutsIpv6InBrackets) {
  EXPECT_EQ(HostAndPort("127.0.0.1", 1), "127.0.0.1:1");
  EXPECT_EQ(HostAndPort("localhost", 2), "localhost:2");
  EXPECT_EQ(HostAndPort("::1", 3), "[::1]:3");
  EXPECT_EQ(HostAndPort("[::1]", 4), "[::1]:4");
}

TEST(ServerStart, SaysThatThePortIsTaken) {
  ServerOptions options;
  options.http = false;
  options.grpc_port = 0;
  const auto first = Server::Start(options);
  ASSERT_THAT(first, test::IsOk());
  options.grpc_port = (*first)->port();
  EXPECT_THAT(Server::Start(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr((*first)->address()),
                             HasSubstr("Address already in use"),
                             HasSubstr("--grpc-port"))));
}

TEST(ServerStart, SaysThatTheAddressIsNone) {
  ServerOptions options;
  options.http = false;
  options.grpc_address = "not an address";
  EXPECT_THAT(Server::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("not an address"),
                             HasSubstr("--grpc-address"))));
}

TEST(ServerStart, SaysThatTheAddressIsAnothers) {
  ServerOptions options;
  options.http = false;
  options.grpc_address = "192.0.2.1";  // documentation, RFC 5737
  options.grpc_port = 0;
  EXPECT_THAT(
      Server::Start(options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("192.0.2.1")));
}

TEST(ServerStart, RefusesOptionsThatMakeNoSense) {
  ServerOptions options;
  options.http = false;
  options.max_request_bytes = 0;
  EXPECT_THAT(Server::Start(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--max-request-bytes")));
}

}  // namespace
}  // namespace attention::server
