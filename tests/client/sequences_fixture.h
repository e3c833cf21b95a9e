#ifndef ATTENTION_TESTS_CLIENT_SEQUENCES_FIXTURE_H_
#define ATTENTION_TESTS_CLIENT_SEQUENCES_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "attention_client/client.h"
#include "tests/client/held_server.h"
#include "tests/support/temporary_folder.h"

namespace attention::client {

/// A server with a folder for sequences, and a client of it.
class SequencesTest : public ::testing::Test {
 protected:
  SequencesTest() {
    server::ServerOptions options;
    options.resident_folder = folder_.path();
    server_ = StartServer(nullptr, 0, options);
    client_ = std::make_unique<Client>(
        *Client::Create({.target = server_->address()}));
  }

  const Client& client() const { return *client_; }

  // The keys of a sequence's layers; empty where it is not there.
  std::vector<int64_t> Lengths(const std::string& name) {
    const auto description = client().DescribeSequence(name);
    return description.ok() ? description->lengths : std::vector<int64_t>();
  }

  const test::TemporaryFolder folder_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<Client> client_;
};

/// Both answers have the same bits.
inline void ExpectSame(const absl::StatusOr<AttendResult>& read,
                       const absl::StatusOr<AttendResult>& sent) {
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(read->output.shape(), sent->output.shape());
  EXPECT_EQ(read->output.bytes(), sent->output.bytes());
  ASSERT_EQ(read->weights.has_value(), sent->weights.has_value());
  if (!read->weights) return;
  EXPECT_EQ(read->weights->bytes(), sent->weights->bytes());
}

}  // namespace attention::client

#endif  // ATTENTION_TESTS_CLIENT_SEQUENCES_FIXTURE_H_
