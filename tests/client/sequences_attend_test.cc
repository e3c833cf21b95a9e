// Keys that are put into sequences, and read from them, against a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention_client/client.h"
#include "tests/client/sequences_fixture.h"
#include "tests/client/sequences_of_test.h"

namespace attention::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SequencesTest, AttendingGivesTheBitsOfKeysThatAreSent) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest read = ReadRequest("a");
  AttendRequest sent = SentRequest(40);
  for (AttendRequest* request : {&read, &sent}) {
    request->causal = Causal::kBottomRight;
    request->window_left = 20;
    request->softcap = 5;
    request->return_weights = true;
  }
  ExpectSame(client().Attend(read), client().Attend(sent));
}

// Tensors that are sent from where they lie.
TEST_F(SequencesTest, LargeTensorsArriveWhole) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 3000).ok());
  AttendRequest step = ReadRequest("a", 1);
  step.sequences->append = SmallBatch(3000, 3000);
  ExpectSame(client().Attend(step), client().Attend(SentRequest(6000, 1)));
  ExpectSame(client().Attend(ReadRequest("a")),
             client().Attend(SentRequest(6000)));
}

TEST_F(SequencesTest, AStepAppendsItsKeysAndSeesThem) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest step = ReadRequest("a", 2);
  step.sequences->append = SmallBatch(40, 2);
  step.causal = Causal::kBottomRight;
  AttendRequest sent = SentRequest(42, 2);
  sent.causal = Causal::kBottomRight;
  ExpectSame(client().Attend(step), client().Attend(sent));
  EXPECT_THAT(Lengths("a"), ElementsAre(42));
}

TEST_F(SequencesTest, AStepWithAPositionMayBeRepeated) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 40).ok());
  AttendRequest step = ReadRequest("a", 2);
  step.sequences->entries[0].position = 40;
  step.sequences->append = SmallBatch(40, 2);
  ExpectSame(client().Attend(step), client().Attend(step));
  EXPECT_THAT(Lengths("a"), ElementsAre(42));
}

TEST_F(SequencesTest, EntriesOfABatchHaveLengthsOfTheirOwn) {
  for (const auto& [name, count] : {std::pair("a", 40), std::pair("b", 7)}) {
    MakeSequence(client(), name);
    ASSERT_TRUE(AppendSmall(client(), {.name = name}, 0, count).ok());
  }
  AttendRequest both;
  both.query = SmallQuery(3, 2);
  both.sequences = SequenceKeys{.entries = {{.name = "a"}, {.name = "b"}}};
  const auto result = client().Attend(both);
  const auto a = client().Attend(ReadRequest("a"));
  const auto b = client().Attend(ReadRequest("b"));
  ASSERT_TRUE(result.ok() && a.ok() && b.ok()) << result.status();
  std::vector<float> expected = a->output.ToFloats();
  for (const float value : b->output.ToFloats()) expected.push_back(value);
  EXPECT_EQ(result->output.ToFloats(), expected);
}

TEST_F(SequencesTest, LayersHaveKeysOfTheirOwn) {
  MakeSequence(client(), "model", 3);
  ASSERT_TRUE(AppendSmall(client(), {.name = "model", .layer = 2}, 0, 5).ok());
  ASSERT_TRUE(AppendSmall(client(), {.name = "model"}, 5, 3).ok());
  EXPECT_THAT(Lengths("model"), ElementsAre(3, 0, 5));
  AttendRequest request = ReadRequest("model");
  request.sequences->entries[0].layer = 2;
  ExpectSame(client().Attend(request), client().Attend(SentRequest(5)));
  request.sequences->entries[0].layer = 3;
  EXPECT_EQ(client().Attend(request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SequencesTest, AnAppendThatIsRepeatedIsAcknowledged) {
  MakeSequence(client(), "a");
  const SequenceLayer at_start = {.name = "a", .position = 0};
  const auto first = AppendSmall(client(), at_start, 0, 10);
  const auto again = AppendSmall(client(), at_start, 0, 10);
  const auto longer = AppendSmall(client(), at_start, 0, 12);
  ASSERT_TRUE(first.ok() && again.ok() && longer.ok()) << again.status();
  EXPECT_EQ(first->new_keys, 10);
  EXPECT_EQ(again->new_keys, 0);
  EXPECT_EQ(again->length, 10);
  EXPECT_EQ(longer->new_keys, 2);
  EXPECT_EQ(longer->length, 12);
}

TEST_F(SequencesTest, OtherKeysAtATakenPositionAreAborted) {
  MakeSequence(client(), "a");
  ASSERT_TRUE(AppendSmall(client(), {.name = "a"}, 0, 10).ok());
  const absl::Status status =
      AppendSmall(client(), {.name = "a", .position = 9}, 0, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("10"));  // the length
}

TEST_F(SequencesTest, AGapIsOutOfRange) {
  MakeSequence(client(), "a");
  const SequenceLayer behind = {.name = "a", .position = 1};
  EXPECT_EQ(AppendSmall(client(), behind, 1, 1).status().code(),
            absl::StatusCode::kOutOfRange);
  AttendRequest step = ReadRequest("a", 1);
  step.sequences->entries[0] = behind;
  step.sequences->append = SmallBatch(1, 1);
  EXPECT_EQ(client().Attend(step).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST_F(SequencesTest, APositionWithoutKeysToAppendIsRefused) {
  MakeSequence(client(), "a");
  AttendRequest request = ReadRequest("a");
  request.sequences->entries[0].position = 0;
  EXPECT_EQ(client().Attend(request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// They would be left out without a word.
TEST_F(SequencesTest, KeysBesideSequencesAreRefusedBeforeAnythingIsSent) {
  AttendRequest request = ReadRequest("a");
  request.value = SmallRows(1, 0, 1);
  const absl::Status status = client().Attend(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("value: given beside"));
}

TEST_F(SequencesTest, AnAppendOverTheClientsLimitIsNotSent) {
  const auto client =
      Client::Create({.target = "127.0.0.1:1", .max_message_bytes = 1000});
  EXPECT_EQ(AppendSmall(*client, {.name = "a"}, 0, 100).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(SequencesTest, AStreamReadsSequences) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("s", i);
    MakeSequence(client(), name);
    ASSERT_TRUE(AppendSmall(client(), {.name = name}, 0, i + 1).ok());
  }
  std::vector<AttendRequest> steps;
  for (int i = 0; i < 20; ++i) {
    steps.push_back(ReadRequest(absl::StrCat("s", i), 1));
    steps.back().sequences->append = SmallBatch(i + 1, 1);
  }
  steps.push_back(ReadRequest("no", 1));
  std::vector<absl::StatusOr<AttendResult>> replies(
      steps.size(), absl::UnknownError("no reply"));
  const absl::Status status = client().AttendMany(
      steps, [&](size_t index, absl::StatusOr<AttendResult> reply) {
        replies.at(index) = std::move(reply);
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(replies.back().status().code(), absl::StatusCode::kNotFound);
  for (int i = 0; i < 20; ++i) {
    ExpectSame(replies.at(static_cast<size_t>(i)),
               client().Attend(SentRequest(i + 2, 1)));
  }
}

}  // namespace
}  // namespace attention::client
