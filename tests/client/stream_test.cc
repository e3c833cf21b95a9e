#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <utility>

#include "attention_client/client.h"
#include "tests/client/held_server.h"
#include "tests/client/requests.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class StreamTest : public ::testing::Test {
 protected:
  // Sends the requests and keeps every reply at its request's place.
  absl::Status Run(const std::vector<AttendRequest>& requests) {
    replies_.assign(requests.size(), absl::UnknownError("no reply"));
    times_.assign(requests.size(), 0);
    return Connect().AttendMany(
        requests, [this](size_t index, absl::StatusOr<AttendResult> reply) {
          replies_.at(index) = std::move(reply);
          ++times_.at(index);
        });
  }

  Client Connect(ClientOptions options = {}) {
    options.target = server_->address();
    return *Client::Create(options);
  }

  void Restart(const server::ServerOptions& options) {
    server_ = StartServer(&gate_, 0, options);
  }

  Gate gate_;
  std::unique_ptr<server::Server> server_ = StartServer(&gate_);
  std::vector<absl::StatusOr<AttendResult>> replies_;
  std::vector<int> times_;
};

TEST_F(StreamTest, EveryRequestGetsItsOwnReplyOnce) {
  std::vector<AttendRequest> requests;
  requests.reserve(100);
  for (int i = 0; i < 100; ++i) {  // more than a stream has in flight
    requests.push_back(NumberRequest(static_cast<float>(i)));
  }
  const absl::Status status = Run(requests);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(replies_[i].ok()) << i << replies_[i].status();
    EXPECT_THAT(replies_[i]->output.ToFloats(),
                ElementsAre(static_cast<float>(i)));
    EXPECT_EQ(times_[i], 1);
  }
}

TEST_F(StreamTest, BadRequestsFailAloneAmongGoodOnes) {
  const absl::Status status =
      Run({NumberRequest(1), BadRequest(), NumberRequest(3), BadRequest(),
           NumberRequest(5)});
  ASSERT_TRUE(status.ok()) << status;
  for (const size_t good : {0U, 2U, 4U}) {
    ASSERT_TRUE(replies_[good].ok()) << replies_[good].status();
    EXPECT_THAT(replies_[good]->output.ToFloats(),
                ElementsAre(static_cast<float>(good + 1)));
  }
  for (const size_t bad : {1U, 3U}) {
    const absl::Status error = replies_[bad].status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(error.message()), StartsWith("key: "));
  }
}

TEST_F(StreamTest, ARequestThatCannotBeSentFailsAlone) {
  AttendRequest unsendable = NumberRequest(2);
  unsendable.query = *Tensor::Create(DataType::kFloat64, {1, 2});
  const absl::Status status = Run({NumberRequest(1), unsendable});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(replies_[0].ok()) << replies_[0].status();
  EXPECT_THAT(std::string(replies_[1].status().message()),
              HasSubstr("query: datatype FP64"));
}

TEST_F(StreamTest, RepliesCarryTheRequestsIdOrItsIndex) {
  std::vector<AttendRequest> requests(2, NumberRequest(1));
  requests[0].id = "first";
  const absl::Status status = Run(requests);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(replies_[0].ok() && replies_[1].ok());
  EXPECT_EQ(replies_[0]->id, "first");
  EXPECT_EQ(replies_[1]->id, "1");
}

TEST_F(StreamTest, TwoRequestsOfOneIdAreRefusedBeforeAnythingIsSent) {
  std::vector<AttendRequest> requests(2, NumberRequest(1));
  requests[0].id = "1";  // what the second is given as its index
  EXPECT_EQ(Run(requests).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(times_, ElementsAre(0, 0));
}

TEST_F(StreamTest, NoRequestsAreNoCall) {
  server_.reset();
  EXPECT_TRUE(Client::Create({.target = "127.0.0.1:1"})
                  ->AttendMany({}, [](size_t, const auto&) { FAIL(); })
                  .ok());
}

// 64 MiB each way: far beyond what flow control lets wait. A client that wrote
// everything before it reads would stand still with this server.
TEST_F(StreamTest, MoreThanFlowControlHoldsPassesBothWays) {
  const std::vector<AttendRequest> requests(64, LargeRequest(65'536));
  const absl::Status status = Run(requests);
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& reply : replies_) {
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->output.element_count(), 4 * 65'536);
  }
}

TEST_F(StreamTest, ARequestOverTheServersLimitEndsTheStreamWithItsCode) {
  server::ServerOptions options;
  options.max_request_bytes = 1 << 20;
  Restart(options);
  std::vector<AttendRequest> requests(40, LargeRequest(50'000));
  requests[20] = LargeRequest(200'000);
  EXPECT_EQ(Run(requests).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(StreamTest, AStreamThatOutlivesItsDeadlineIsDeadlineExceeded) {
  gate_.Close();
  const Client client = Connect({.deadline = std::chrono::milliseconds(500)});
  // One that arrives at once: a late one is refused, for it would be later yet.
  const absl::Status status =
      client.AttendMany({LargeRequest(1'000)}, [](size_t, const auto&) {});
  gate_.Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(StreamTest, AnExceptionOfTheCallbackReachesTheCaller) {
  const std::vector<AttendRequest> requests(64, LargeRequest(65'536));
  EXPECT_THROW((void)Connect().AttendMany(requests,
                                          [](size_t, const auto&) {
                                            throw std::runtime_error("enough");
                                          }),
               std::runtime_error);
}

TEST_F(StreamTest, WithoutAServerTheStreamIsUnavailable) {
  const Client client = Connect();
  server_.reset();
  EXPECT_EQ(
      client.AttendMany({NumberRequest(1)}, [](size_t, const auto&) {}).code(),
      absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace attention::client
