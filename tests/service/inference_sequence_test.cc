// The sequence extension: requests with a sequence_id append their keys and
// values to those of the requests before them, and attend to all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/service/infer_requests.h"
#include "tests/service/inference_sequence_fixture.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/model_folders.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;

TEST_F(InferSequenceTest, StepsAttendToAllKeysSoFar) {
  EXPECT_EQ(OutputOf(OfSequence(Step(0, 100), 7, At::kStart)),
            OutputOf(Step(0, 100)));
  EXPECT_EQ(OutputOf(OfSequence(Step(100, 101), 7, At::kMiddle)),
            OutputOf(Step(0, 101)));
  EXPECT_EQ(OutputOf(OfSequence(Step(101, 103), 7, At::kEnd)),
            OutputOf(Step(0, 103)));
}

// Two entries: 3 tokens, then 4.
TEST_F(InferSequenceTest, EntriesOfAPackedBatchAreSequencesEach) {
  v1::AttendRequest packed;
  const v1::Tensor starts = MakeTensor(v1::DATA_TYPE_INT32, {3}, {0, 3, 7});
  std::vector<double> values(size_t{7} * 2 * 4);
  for (size_t n = 0; n < values.size(); ++n) {
    values[n] = static_cast<double>(n % 5) * 0.25;
  }
  *packed.mutable_query() = Floats({7, 2, 4}, values);
  *packed.mutable_key_value()->mutable_key() = Floats({7, 2, 4}, values);
  *packed.mutable_key_value()->mutable_value() = Floats({7, 2, 4}, values);
  ModelInferRequest request = ToInfer(packed);
  AddInput("query_starts", starts, request);
  ModelInferRequest alone = request;
  AddInput("key_starts", starts, alone);
  EXPECT_EQ(OutputOf(OfSequence(request, 5, At::kStart)), OutputOf(alone));
  OutputOf(OfSequence(request, 5, At::kEnd));
}

TEST_F(InferSequenceTest, AfterItsEndItIsNotThere) {
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
  OutputOf(OfSequence(Step(3, 4), 7, At::kEnd));
  ExpectRefusal(Infer(client_, OfSequence(Step(4, 5), 7, At::kMiddle)).status(),
                absl::StatusCode::kNotFound,
                {"sequence_id number 7: ", "sequence_start"});
}

TEST_F(InferSequenceTest, TheEntryOfABatchThatIsNotThereIsNamed) {
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
  ExpectRefusal(
      Infer(client_, OfSequence(Step(3, 4, 2), 7, At::kMiddle)).status(),
      absl::StatusCode::kNotFound,
      {"sequence_id number 7, batch entry 1: there is none now (expected "});
}

TEST_F(InferSequenceTest, AnEndOfASmallerBatchEndsAll) {
  OutputOf(OfSequence(Step(0, 3, 4), 7, At::kStart));
  OutputOf(OfSequence(Step(0, 3), 70, At::kStart));
  OutputOf(OfSequence(Step(3, 4, 2), 7, At::kEnd));
  EXPECT_EQ(SequencesIn(client_).sequences_size(), 1);
}

// A caller that gave up waits for nothing before it sends the same again.
TEST_F(InferSequenceTest, OneRequestOfASequenceAtATime) {
  GatedSequences held(2);
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart), *held.client);
  ASSERT_EQ(held.gate.tiles(), 1);
  const ModelInferRequest step = OfSequence(Step(3, 1000), 7, At::kMiddle);
  const auto first = held.Send(step);
  held.gate.WaitUntilHolding();
  ExpectRefusal(Infer(*held.client, step).status(), absl::StatusCode::kAborted,
                {"sequence_id number 7: another request of it still runs"});
  held.gate.Open();
  EXPECT_EQ(first->Wait().status(), absl::OkStatus());
  EXPECT_EQ(
      OutputOf(OfSequence(Step(1000, 1001), 7, At::kMiddle), *held.client),
      OutputOf(Step(0, 1001)));
}

TEST_F(InferSequenceTest, OneThatWasCancelledMayBeSentAgainWhenItHasStopped) {
  GatedSequences held(3);
  OutputOf(OfSequence(Step(0, 3, 2), 7, At::kStart), *held.client);
  ASSERT_EQ(held.gate.tiles(), 2);
  const ModelInferRequest step = OfSequence(Step(3, 1000, 2), 7, At::kMiddle);
  const auto first = held.Send(step);
  held.gate.WaitUntilHolding();
  first->Cancel();
  EXPECT_EQ(first->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Infer(*held.client, step).status().code(),
            absl::StatusCode::kAborted);
  held.gate.Open();
  absl::StatusOr<inference::ModelInferResponse> again;
  do {
    again = Infer(*held.client, step);
  } while (absl::IsAborted(again.status()));
  ASSERT_EQ(again.status(), absl::OkStatus());
  EXPECT_EQ(again->raw_output_contents(0), OutputOf(Step(0, 1000, 2)));
}

// Of two sequences that take almost all of the store, a page more fits into
// one.
TEST_F(InferSequenceTest, ABatchThatFailsHalfWayAppendsNothing) {
  server::ServerOptions options = SmallStore();
  options.resident_evict = false;
  const auto server = StartServer(options);
  WireClient client(server->address());
  constexpr int64_t kKeys = 29'760;
  OutputOf(OfSequence(Step(0, kKeys, 2), 7, At::kStart), client);
  const absl::Status refused =
      Infer(client, OfSequence(Step(kKeys, kKeys + 1, 2), 7, At::kMiddle))
          .status();
  ExpectRefusal(refused, absl::StatusCode::kResourceExhausted,
                {"sequence_id number 7, batch entry 1: "});
  EXPECT_TRUE(SaysWhenToTryAgain(refused));
  const v1::ListSequencesResponse list = SequencesIn(client);
  ASSERT_EQ(list.sequences_size(), 2);
  EXPECT_EQ(list.sequences(0).lengths(0), kKeys);
  EXPECT_EQ(list.sequences(1).lengths(0), kKeys);
}

TEST_F(InferSequenceTest, OneThatWasEvictedIsSaidToBe) {
  const auto server = StartServer(SmallStore());
  WireClient client(server->address());
  OutputOf(OfSequence(Step(0, 30'000), 7, At::kStart), client);
  OutputOf(OfSequence(Step(0, 40'000), 8, At::kStart), client);
  ExpectRefusal(
      Infer(client, OfSequence(Step(0, 1), 7, At::kMiddle)).status(),
      absl::StatusCode::kNotFound,
      {"sequence_id number 7: there is none now, it was evicted", "expected"});
}

// The store's names have 256 bytes.
TEST_F(InferSequenceTest, IdsAndNamesOfModelsMayBeAsLongAsTheyMay) {
  ModelFolders folders;
  server::ServerOptions options = TestOptions();
  options.model_repository = folders.path();
  const auto set = [&](char last) {
    std::string name = std::string(127, 'm') + last;
    folders.Add(name, R"({"scoring": "scaled_dot_product"})");
    return name;
  };
  const std::string names[] = {set('a'), set('b')};
  const auto server = StartServer(options);
  WireClient client(server->address());
  const auto step = [](const std::string& name, int64_t first, At at) {
    ModelInferRequest request = OfSequence(Step(first, first + 3), 0, at);
    request.set_model_name(name);
    auto& id = (*request.mutable_parameters())["sequence_id"];
    id.set_string_param(std::string(100, 'i'));
    return request;
  };
  for (const std::string& name : names) {
    OutputOf(step(name, 0, At::kStart), client);
  }
  // Each model has its own.
  OutputOf(step(names[0], 3, At::kEnd), client);
  EXPECT_EQ(OutputOf(step(names[1], 3, At::kMiddle), client),
            OutputOf(Step(0, 6)));
}

TEST_F(InferSequenceTest, ANumberIsNoText) {
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
  ModelInferRequest text = OfSequence(Step(3, 4), 7, At::kMiddle);
  (*text.mutable_parameters())["sequence_id"].set_string_param("7");
  ExpectRefusal(Infer(client_, text).status(), absl::StatusCode::kNotFound,
                {"sequence_id text 7: "});
}

TEST_F(InferSequenceTest, AnIdOfZeroIsNone) {
  EXPECT_EQ(OutputOf(OfSequence(Step(0, 3), 0, At::kMiddle)),
            OutputOf(Step(0, 3)));
}

TEST_F(InferSequenceTest, WhatCannotBeHonouredIsRefused) {
  ModelInferRequest request = Step(0, 3);
  (*request.mutable_parameters())["sequence_end"].set_bool_param(true);
  ExpectRefusal(Infer(client_, request).status(),
                absl::StatusCode::kInvalidArgument, {"sequence_id: missing"});
  request = Step(0, 3);
  (*request.mutable_parameters())["sequence_id"].set_bool_param(true);
  ExpectRefusal(Infer(client_, request).status(),
                absl::StatusCode::kInvalidArgument, {"sequence_id: "});
}

// All steps are sent before any reply is read.
TEST_F(InferSequenceTest, AStreamKeepsTheirOrder) {
  const auto stream = client_.OpenStream(kModelStreamInfer);
  constexpr int64_t kSteps = 12;
  for (int64_t n = 0; n < kSteps; ++n) {
    const At at = n == 0            ? At::kStart
                  : n == kSteps - 1 ? At::kEnd
                                    : At::kMiddle;
    const ModelInferRequest step = OfSequence(Step(n, n + 1), 9, at);
    ASSERT_TRUE(stream->Write(step.SerializeAsString()));
  }
  stream->WritesDone();
  for (int64_t n = 0; n < kSteps; ++n) {
    const auto bytes = stream->Read();
    ASSERT_TRUE(bytes);
    ModelStreamInferResponse reply;
    ASSERT_TRUE(reply.ParseFromString(*bytes));
    ASSERT_EQ(reply.error_message(), "");
    EXPECT_EQ(reply.infer_response().raw_output_contents(0),
              OutputOf(Step(0, n + 1)));
  }
}

}  // namespace
}  // namespace attention::test
