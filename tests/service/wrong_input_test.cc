// What a caller gets wrong, over the wire: at least one row for everything that
// may refuse it (the bytes, a field, a shape, an element, an option). All of
// them are tests/unit/server/wrong_*_test.cc.
#include "tests/service/wrong_input.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using Request = v1::AttendRequest;

struct Row {
  std::string name;
  std::string bytes;
  std::vector<std::string> message;
};

Row Spoilt(const std::string& name, const std::function<void(Request&)>& spoil,
           const std::vector<std::string>& message) {
  Request request = GoodRequest("bad");
  spoil(request);
  return {name, request.SerializeAsString(), message};
}

// One server for all rows: every one must leave it as it was.
class WrongInputTest : public testing::TestWithParam<Row> {
 protected:
  static void SetUpTestSuite() {
    gate_ = std::make_unique<TileGate>();
    server_ = StartServer(TestOptions(), gate_.get());
  }
  static void TearDownTestSuite() {
    server_.reset();
    gate_.reset();
  }

  static std::unique_ptr<TileGate> gate_;
  static std::unique_ptr<server::Server> server_;
};
std::unique_ptr<TileGate> WrongInputTest::gate_;
std::unique_ptr<server::Server> WrongInputTest::server_;

TEST_P(WrongInputTest, IsRefusedAndTheServerGoesOn) {
  WireClient client(server_->address());
  const int64_t tiles = gate_->tiles();
  ExpectRefusal(client.Call(kAttend, GetParam().bytes).status(),
                absl::StatusCode::kInvalidArgument, GetParam().message);
  EXPECT_EQ(gate_->tiles(), tiles) << "of a refused request, nothing is "
                                      "computed";
  ExpectGoodReply(client.Attend(GoodRequest()));
}

INSTANTIATE_TEST_SUITE_P(
    Wire, WrongInputTest,
    testing::Values(
        Row{"NotAMessage",
            std::string(100, '\xff'),
            {"the bytes are not an Attend"}},
        Row{"UnknownField",
            GoodRequest("bad").SerializeAsString() + "\x98\x06\x01",
            {"field 99 of AttendRequest is unknown"}},
        Row{"Empty", "", {"query: missing"}},
        Spoilt("TopKOfNone", [](Request& r) { r.set_top_k(0); },
               {"top_k: 0 (expected 1 to", "the number of keys)"}),
        Spoilt("TopKOfMore", [](Request& r) { r.set_top_k(1000); },
               {"top_k: 1000 (expected 1 to", "the number of keys)"}),
        Spoilt("ScoresOfAnotherStage",
               [](Request& r) { r.set_scores(static_cast<v1::Scores>(4)); },
               {"scores: 4 (expected 'none', 'scaled', 'capped', 'masked')"}),
        Spoilt("IdTooLong", [](Request& r) { r.set_id(std::string(257, 'x')); },
               {"id: 257 bytes (expected at most 256)"}),
        Spoilt("Datatype",
               [](Request& r) {
                 r.mutable_query()->set_datatype(v1::DATA_TYPE_INT32);
               },
               {"query: datatype INT32", "expected FP32, FP16 or BF16"}),
        Spoilt("ByteCount",
               [](Request& r) {
                 r.mutable_query()->mutable_data()->pop_back();
               },
               {"query: 767 bytes of data", "[2, 4, 3, 8]", "needs 768"}),
        Spoilt("Overflow",
               [](Request& r) {
                 v1::Tensor& key = *r.mutable_key_value()->mutable_key();
                 key.set_shape(0, int64_t{1} << 32);
                 key.set_shape(1, int64_t{1} << 32);
                 key.clear_data();
               },
               {"key: shape [4294967296, 4294967296, 5, 8]", "2^63"}),
        Spoilt("Widths",
               [](Request& r) {
                 *r.mutable_key_value()->mutable_key() =
                     Filled(v1::DATA_TYPE_FP32, {2, 2, 5, 7}, 0);
               },
               {"key: shape [2, 2, 5, 7] has width 7, query has 8"}),
        Spoilt("LengthBeyondTheKeys",
               [](Request& r) {
                 *r.mutable_valid_lens() =
                     MakeTensor(v1::DATA_TYPE_INT32, {2}, {5, 6});
               },
               {"valid_lens: element [1] is 6 (expected 0 to 5"}),
        Spoilt("ParameterMissing", [](Request& r) { r.mutable_additive(); },
               {"w_q: missing"}),
        Spoilt("Option",
               [](Request& r) {
                 r.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
                 r.set_query_offset(2);
               },
               {"query_offset: 2 was given with causal bottom_right"})),
    [](const auto& row) { return row.param.name; });

// What protobuf allows, however odd: the server must not refuse it.
TEST(OddBytesTest, OfTwoScoringFunctionsTheLastOneCounts) {
  const auto server = StartServer();
  WireClient client(server->address());
  // Gaussian, with a sigma that would be refused, then scaled dot product.
  v1::AttendRequest bad;
  bad.mutable_gaussian()->set_sigma(-1);
  v1::AttendRequest good;
  good.mutable_scaled_dot_product();
  EXPECT_TRUE(client
                  .Call(kAttend, GoodRequest().SerializeAsString() +
                                     bad.SerializeAsString() +
                                     good.SerializeAsString())
                  .ok());
  ExpectRefusal(
      client
          .Call(kAttend, GoodRequest().SerializeAsString() +
                             good.SerializeAsString() + bad.SerializeAsString())
          .status(),
      absl::StatusCode::kInvalidArgument, {"sigma: -1"});
}

TEST(OddBytesTest, FieldsMayComeInAnyOrderAndInPieces) {
  const auto server = StartServer();
  WireClient client(server->address());
  const v1::AttendRequest request = GoodRequest("pieces");
  v1::AttendRequest value_only = request;
  value_only.clear_query();
  value_only.mutable_key_value()->clear_key();
  v1::AttendRequest shape_only;
  *shape_only.mutable_query() = request.query();
  shape_only.mutable_query()->clear_data();
  v1::AttendRequest data_only;
  data_only.mutable_query()->set_data(request.query().data());
  v1::AttendRequest key_only;
  *key_only.mutable_key_value()->mutable_key() = request.key_value().key();

  const auto bytes = client.Call(kAttend, value_only.SerializeAsString() +
                                              shape_only.SerializeAsString() +
                                              key_only.SerializeAsString() +
                                              data_only.SerializeAsString());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  v1::AttendResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ExpectGoodReply(response, "pieces");
}

TEST(OddBytesTest, OfDataThatComeTwiceTheLastCount) {
  const auto server = StartServer();
  WireClient client(server->address());
  v1::AttendRequest data_only;
  data_only.mutable_query()->set_data("too few bytes");
  const std::string first = data_only.SerializeAsString();
  EXPECT_TRUE(
      client.Call(kAttend, first + GoodRequest().SerializeAsString()).ok());
  ExpectRefusal(
      client.Call(kAttend, GoodRequest().SerializeAsString() + first).status(),
      absl::StatusCode::kInvalidArgument,
      {"query: 13 bytes of data", "needs 768"});
}

TEST(OddBytesTest, AnUnknownMethodIsUnimplementedAndTheServerGoesOn) {
  const auto server = StartServer();
  WireClient client(server->address());
  EXPECT_EQ(client
                .Call("/attention.v1.AttentionService/Forget",
                      GoodRequest().SerializeAsString())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace
}  // namespace attention::test
