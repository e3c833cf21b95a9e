// Keys and values that stay: Attend on sequences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/requests.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;

constexpr char kShards[] = "/attention.v1.ShardService/Attend";

TEST_F(SequencesTest, KeysThatStayGiveTheBitsOfKeysThatAreSent) {
  Make("s", 1000);
  v1::AttendRequest query = Query();
  query.set_return_weights(true);
  query.set_causal(v1::CAUSAL_BOTTOM_RIGHT);
  ExpectSameAnswer(OnSequences(query, {"s"}), WithKeys(query, 1000));
}

TEST_F(SequencesTest, AnAppendIsSeenByItsOwnRequest) {
  Make("s", 100);
  const v1::AttendRequest step = AndAppend(OnSequences(Query(), {"s"}), 100, 1);
  ExpectSameAnswer(step, WithKeys(Query(), 101));
}

TEST_F(SequencesTest, ARepeatedStepGivesTheSameAnswerWhateverCameBehindIt) {
  Make("s", 100);
  v1::AttendRequest step = AndAppend(OnSequences(Query(), {"s"}), 100, 1);
  step.mutable_sequences()->mutable_entries(0)->set_position(100);
  const auto first = Attend(step);
  ASSERT_EQ(first.status(), absl::OkStatus());
  ASSERT_EQ(Append(AppendOf("s", 101, 30))->length(), 131);
  const auto again = Attend(step);
  ASSERT_EQ(again.status(), absl::OkStatus());
  EXPECT_EQ(first->output().data(), again->output().data());
}

TEST_F(SequencesTest, EntriesOfDifferentLengths) {
  Make("a", 100);
  Make("b", 7);
  const auto both = Attend(OnSequences(Query(2), {"a", "b"}));
  ASSERT_EQ(both.status(), absl::OkStatus());
  const std::vector<double> together = Values(both->output());
  std::vector<double> apart;
  for (int64_t entry = 0; entry < 2; ++entry) {
    v1::AttendRequest query = Query();
    query.mutable_query()->set_data(
        Query(2).query().data().substr(static_cast<size_t>(entry) * 16, 16));
    const auto alone = Attend(WithKeys(query, entry == 0 ? 100 : 7));
    ASSERT_EQ(alone.status(), absl::OkStatus());
    for (const double value : Values(alone->output())) apart.push_back(value);
  }
  EXPECT_EQ(together, apart);
}

TEST_F(SequencesTest, TwoAppendsToOneLayerInOneRequestAreRefused) {
  Make("a", 10);
  v1::AttendRequest twice = OnSequences(Query(2), {"a", "a"});
  ASSERT_EQ(Attend(twice).status(), absl::OkStatus());  // reads alone
  v1::KeyValueTensors& append = *twice.mutable_sequences()->mutable_append();
  *append.mutable_key() = Filled(v1::DATA_TYPE_FP32, {2, 1, 1, 2}, 1);
  *append.mutable_value() = append.key();
  for (int n = 0; n < 2; ++n) {
    twice.mutable_sequences()->mutable_entries(n)->set_position(10 + n);
  }
  ExpectRefusal(Attend(twice).status(), StatusCode::kInvalidArgument,
                {"sequences.entries[1]: layer 0 of 'a', and so is "
                 "sequences.entries[0]"});
  EXPECT_EQ(Append(AppendOf("a", 10, 1))->length(), 11);
}

TEST_F(SequencesTest, PackedQueriesAppendAsManyAsTheyAre) {
  Make("a", 10);
  Make("b", 20);
  v1::AttendRequest request;
  *request.mutable_query() = Floats({3, 1, 2}, {1, 2, 3, 4, 5, 6});
  v1::Tensor& starts = *request.mutable_query_starts();
  starts.set_datatype(v1::DATA_TYPE_INT32);
  starts.add_shape(3);
  const int32_t values[] = {0, 1, 3};
  starts.set_data(values, sizeof(values));
  request = OnSequences(request, {"a", "b"});
  v1::KeyValueTensors& append = *request.mutable_sequences()->mutable_append();
  *append.mutable_key() = Floats({3, 1, 2}, {1, 1, 2, 2, 3, 3});
  *append.mutable_value() = Floats({3, 1, 2}, {1, 1, 2, 2, 3, 3});
  const auto reply = Attend(request);
  ASSERT_EQ(reply.status(), absl::OkStatus());
  EXPECT_EQ(Shape(reply->output()), (std::vector<int64_t>{3, 1, 2}));
  v1::DescribeSequenceRequest describe;
  describe.set_name("b");
  EXPECT_EQ(Call<v1::SequenceDescription>("Describe", describe)->lengths(0),
            22);
}

TEST_F(SequencesTest, ARequestKeepsWhatItBeganWith) {
  Start();
  Make("s", 2000);
  const auto expected = Attend(OnSequences(Query(), {"s"}));
  ASSERT_EQ(expected.status(), absl::OkStatus());
  gate_.CloseAt(1);
  const auto pending =
      client_->Start(kAttend, OnSequences(Query(), {"s"}).SerializeAsString());
  gate_.WaitUntilHolding();
  v1::DeleteSequencesRequest all;
  all.add_names("s");
  EXPECT_EQ(Call<v1::DeleteSequencesResponse>("Delete", all)->deleted(), 1);
  gate_.Open();
  const auto bytes = pending->Wait();
  ASSERT_EQ(bytes.status(), absl::OkStatus());
  v1::AttendResponse reply;
  ASSERT_TRUE(reply.ParseFromString(*bytes));
  EXPECT_EQ(reply.output().data(), expected->output().data());
}

// Ten steps are sent at once, each a key behind the ones before it.
TEST_F(SequencesTest, AStreamKeepsTheOrderOfASequencesSteps) {
  Make("s", 1);
  const auto stream = client_->OpenStream(kAttendStream);
  for (int64_t n = 1; n <= 10; ++n) {
    v1::AttendRequest step = AndAppend(OnSequences(Query(), {"s"}), n, 1);
    step.mutable_sequences()->mutable_entries(0)->set_position(n);
    step.set_id(absl::StrCat(n));
    ASSERT_TRUE(stream->Write(step.SerializeAsString()));
  }
  stream->WritesDone();
  int replies = 0;
  while (const auto bytes = stream->Read()) {
    v1::AttendStreamResponse reply;
    ASSERT_TRUE(reply.ParseFromString(*bytes));
    ASSERT_TRUE(reply.has_result()) << reply.error().message();
    EXPECT_EQ(reply.id(), absl::StrCat(++replies));
    const auto sent = Attend(WithKeys(Query(), replies + 1));
    EXPECT_EQ(reply.result().output().data(), sent->output().data());
  }
  EXPECT_EQ(replies, 10);
}

TEST_F(SequencesTest, OfNoneNobodyIsAsked) {
  Start();
  v1::AttendRequest request = Query();
  request.mutable_sequences();
  ExpectRefusal(Attend(request).status(), StatusCode::kInvalidArgument,
                {"sequences: none is named"});
}

TEST_F(SequencesTest, WrongStepsSayWhichEntry) {
  Make("s", 10);
  Make("t", 10);
  const auto refused = [&](const v1::AttendRequest& request, StatusCode code,
                           const std::string& message) {
    ExpectRefusal(Attend(request).status(), code, {message});
  };
  v1::AttendRequest gap = AndAppend(OnSequences(Query(), {"s"}), 10, 1);
  gap.mutable_sequences()->mutable_entries(0)->set_position(11);
  refused(gap, StatusCode::kOutOfRange,
          "sequences.entries[0]: position: 11 leaves a gap");
  v1::AttendRequest other = AndAppend(OnSequences(Query(), {"s"}), 3, 1);
  other.mutable_sequences()->mutable_entries(0)->set_position(4);
  refused(other, StatusCode::kAborted,
          "sequences.entries[0]: position: 4 has other keys");
  refused(OnSequences(Query(2), {"s", "none"}), StatusCode::kNotFound,
          "sequences.entries[1]: there is no sequence 'none'");
  refused(OnSequences(Query(), {"s", "t"}), StatusCode::kInvalidArgument,
          "sequences: 2, query has 1");
  v1::AttendRequest layer = OnSequences(Query(), {"s"});
  layer.mutable_sequences()->mutable_entries(0)->set_layer(1);
  refused(layer, StatusCode::kInvalidArgument,
          "sequences.entries[0]: layer: 1");
  v1::AttendRequest position = OnSequences(Query(), {"s"});
  position.mutable_sequences()->mutable_entries(0)->set_position(1);
  refused(position, StatusCode::kInvalidArgument,
          "sequences.entries[0]: position: given without");
  v1::AttendRequest no_value = AndAppend(OnSequences(Query(), {"s"}), 10, 1);
  no_value.mutable_sequences()->mutable_append()->clear_value();
  refused(no_value, StatusCode::kInvalidArgument, "value: missing");
}

// Where another part fails, its caller repeats it.
TEST_F(SequencesTest, APartOfAShardAppendsAtPositionsAlone) {
  Make("s", 10);
  Make("t", 10);
  v1::AttendShardsRequest request;
  v1::AttendRequest common = Query(2);
  common.set_return_lse(true);
  *request.mutable_common() = common;
  const auto attend = [&] {
    return client_->Call(kShards, request.SerializeAsString()).status();
  };
  v1::AttendRequest& part = *request.mutable_shard()->add_parts();
  *part.mutable_sequences() =
      OnSequences(v1::AttendRequest(), {"s", "t"}).sequences();
  ASSERT_EQ(attend(), absl::OkStatus());  // reads alone
  v1::KeyValueTensors& append = *part.mutable_sequences()->mutable_append();
  *append.mutable_key() = Filled(v1::DATA_TYPE_FP32, {2, 1, 1, 2}, 1);
  *append.mutable_value() = append.key();
  part.mutable_sequences()->mutable_entries(0)->set_position(10);
  ExpectRefusal(attend(), StatusCode::kInvalidArgument,
                {"parts[0].sequences.entries[1].position: missing"});
  EXPECT_EQ(LengthOf("s"), 10);
  EXPECT_EQ(LengthOf("t"), 10);
  part.mutable_sequences()->mutable_entries(1)->set_position(10);
  for (int times = 0; times < 2; ++times) {
    ASSERT_EQ(attend(), absl::OkStatus());
    EXPECT_EQ(LengthOf("s"), 11);
    EXPECT_EQ(LengthOf("t"), 11);
  }
}

}  // namespace
}  // namespace attention::test
