// The README's lines of C++: they compile as they stand there, and answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "tests/client/held_server.h"

namespace attention::client {
namespace {

// Where the README's function finds the server.
std::string server_address;

#include "readme_code.inc"

TEST(ReadmeTest, ItsFunctionGivesTheOutput) {
  const auto server = StartServer();
  server_address = server->address();
  // Every token of a sequence sees the same two values.
  const auto output =
      SelfAttention(Tensor::FromFloats({1, 2, 2}, {1, 5, 1, 5}));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_THAT(output->ToFloats(), testing::ElementsAre(1, 5, 1, 5));
}

TEST(ReadmeTest, ItsFunctionReturnsTheServersError) {
  const auto server = StartServer();
  server_address = server->address();
  const auto output = SelfAttention(Tensor::FromFloats({1}, {1}));
  EXPECT_EQ(output.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadmeTest, ItsFunctionReturnsTheClientsError) {
  server_address = "";
  EXPECT_FALSE(SelfAttention(Tensor::FromFloats({1, 1}, {1})).ok());
}

}  // namespace
}  // namespace attention::client
