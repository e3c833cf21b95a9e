// The sequence extension: what sequence_start ends, and what becomes of the
// sequence where it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/http_caller.h"
#include "tests/service/http_infer.h"
#include "tests/service/infer_requests.h"
#include "tests/service/inference_sequence_fixture.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;

TEST_F(InferSequenceTest, AStartBeginsAnew) {
  OutputOf(OfSequence(Step(0, 30), 7, At::kStart));
  EXPECT_EQ(OutputOf(OfSequence(Step(0, 5), 7, At::kStart)),
            OutputOf(Step(0, 5)));
}

TEST_F(InferSequenceTest, WhereItsStartFailsThereIsNone) {
  const auto server = StartServer(SmallStore());
  WireClient client(server->address());
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart), client);
  ExpectRefusal(
      Infer(client, OfSequence(Step(0, 100'000), 7, At::kStart)).status(),
      absl::StatusCode::kResourceExhausted, {"sequence_id number 7: "});
  ExpectRefusal(Infer(client, OfSequence(Step(3, 4), 7, At::kMiddle)).status(),
                absl::StatusCode::kNotFound,
                {"sequence_id number 7: there is none now (expected "});
}

// Steps that were sent behind it must not go on with the older one.
TEST_F(InferSequenceTest, AStartThatAFullServerRefusesEndsTheOlderOne) {
  TileGate gate;
  gate.CloseAt(2);
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 1;
  const auto server = StartServer(options, &gate);
  WireClient client(server->address());
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart), client);
  ASSERT_EQ(gate.tiles(), 1);
  std::thread held(
      [&] { EXPECT_TRUE(AttendOnceAdmitted(client, GoodRequest()).ok()); });
  gate.WaitUntilHolding();
  ExpectRefusal(Infer(client, OfSequence(Step(0, 5), 7, At::kStart)).status(),
                absl::StatusCode::kResourceExhausted, {"the server is full"});
  gate.Open();
  held.join();
  absl::Status step;
  do {
    step = Infer(client, OfSequence(Step(5, 6), 7, At::kMiddle)).status();
  } while (absl::IsResourceExhausted(step));
  ExpectRefusal(step, absl::StatusCode::kNotFound, {"sequence_id number 7: "});
}

TEST_F(InferSequenceTest, AStartThatIsWrongEndsTheOlderOne) {
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
  ModelInferRequest wrong = OfSequence(Step(0, 5), 7, At::kStart);
  wrong.mutable_inputs(0)->set_name("queries");
  ExpectRefusal(Infer(client_, wrong).status(),
                absl::StatusCode::kInvalidArgument, {"input 'queries'"});
  EXPECT_EQ(SequencesIn(client_).sequences_size(), 0);
}

TEST_F(InferSequenceTest, AStartThatIsWrongOverHttpEndsTheOlderOne) {
  for (const char* wrong :
       {R"("inputs":[{"name":"query"}],"parameters":{)",
        R"("causal":"top_left","parameters":{)",
        R"("id":"a","id":"b","parameters":{)",
        R"("model_name":"gaussian_attention","parameters":{)",
        R"("outputs":[{"parameters":{"binary_data":"yes"}}],"parameters":{)",
        R"("parameters":{"scale":[],)"}) {
    OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
    const std::string start =
        absl::StrCat("{", wrong, R"("sequence_id":7,"sequence_start":true}})");
    EXPECT_EQ(HttpStatus(HttpPost(server_->http_address(), kInferPath, start)),
              400)
        << wrong;
    ExpectRefusal(
        Infer(client_, OfSequence(Step(3, 4), 7, At::kMiddle)).status(),
        absl::StatusCode::kNotFound, {"sequence_id number 7: "});
  }
}

// A field of a later version of the protocol.
TEST_F(InferSequenceTest, AStartWithAnUnknownFieldEndsTheOlderOne) {
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart));
  const std::string unknown = {15 << 3, 1};
  ExpectRefusal(
      client_
          .Call(kModelInfer,
                unknown +
                    OfSequence(Step(0, 5), 7, At::kStart).SerializeAsString())
          .status(),
      absl::StatusCode::kInvalidArgument, {"field 15 of ModelInferRequest"});
  EXPECT_EQ(SequencesIn(client_).sequences_size(), 0);
}

// Of three entries, one has room.
TEST_F(InferSequenceTest, ABatchWhoseStartFailsHalfWayEndsAllOlderOnes) {
  server::ServerOptions options = SmallStore();
  options.resident_evict = false;
  const auto server = StartServer(options);
  WireClient client(server->address());
  OutputOf(OfSequence(Step(0, 3, 3), 7, At::kStart), client);
  ExpectRefusal(
      Infer(client, OfSequence(Step(0, 40'000, 3), 7, At::kStart)).status(),
      absl::StatusCode::kResourceExhausted,
      {"sequence_id number 7, batch entry 1: "});
  EXPECT_EQ(SequencesIn(client).sequences_size(), 0);
}

TEST_F(InferSequenceTest, AStartOfASmallerBatchEndsAllOlderOnes) {
  OutputOf(OfSequence(Step(0, 3, 4), 7, At::kStart));
  // Of other ids and models, which stay.
  OutputOf(OfSequence(Step(0, 3), 70, At::kStart));
  ModelInferRequest other = OfSequence(Step(0, 3), 7, At::kStart);
  other.set_model_name("gaussian_attention");
  OutputOf(other);
  OutputOf(OfSequence(Step(0, 5, 2), 7, At::kStart));
  EXPECT_EQ(SequencesIn(client_).sequences_size(), 4);
  ExpectRefusal(
      Infer(client_, OfSequence(Step(5, 6, 4), 7, At::kMiddle)).status(),
      absl::StatusCode::kNotFound, {"sequence_id number 7, batch entry 2: "});
}

TEST_F(InferSequenceTest, AStartThatFailsLeavesOneThatWasBegunSince) {
  GatedSequences held(1);
  const auto first = held.Send(OfSequence(Step(0, 1000), 7, At::kStart));
  held.gate.WaitUntilHolding();
  const auto second = held.Send(OfSequence(Step(0, 1001), 7, At::kStart));
  while (held.gate.tiles() < 2) std::this_thread::yield();
  first->Cancel();
  EXPECT_EQ(first->Wait().status().code(), absl::StatusCode::kCancelled);
  held.gate.Open();
  EXPECT_EQ(second->Wait().status(), absl::OkStatus());
  EXPECT_EQ(
      OutputOf(OfSequence(Step(1001, 1002), 7, At::kMiddle), *held.client),
      OutputOf(Step(0, 1002)));
}

TEST_F(InferSequenceTest, AStartWaitsForNoRequestOfTheOlderOne) {
  GatedSequences held(2);
  OutputOf(OfSequence(Step(0, 3), 7, At::kStart), *held.client);
  ASSERT_EQ(held.gate.tiles(), 1);
  const auto older = held.Send(OfSequence(Step(3, 1000), 7, At::kMiddle));
  held.gate.WaitUntilHolding();
  const auto start = held.Send(OfSequence(Step(0, 1001), 7, At::kStart));
  while (held.gate.tiles() < 3) std::this_thread::yield();
  EXPECT_EQ(Infer(*held.client, OfSequence(Step(1001, 1002), 7, At::kMiddle))
                .status()
                .code(),
            absl::StatusCode::kAborted);
  held.gate.Open();
  EXPECT_EQ(older->Wait().status(), absl::OkStatus());
  EXPECT_EQ(start->Wait().status(), absl::OkStatus());
  EXPECT_EQ(
      OutputOf(OfSequence(Step(1001, 1002), 7, At::kMiddle), *held.client),
      OutputOf(Step(0, 1002)));
}

TEST_F(InferSequenceTest, AStartWithoutKeysIsRefused) {
  ModelInferRequest request = OfSequence(Step(0, 3), 7, At::kStart);
  request.mutable_inputs()->DeleteSubrange(1, 2);
  request.mutable_raw_input_contents()->DeleteSubrange(1, 2);
  ExpectRefusal(Infer(client_, request).status(),
                absl::StatusCode::kInvalidArgument,
                {"key: missing beside sequence_start"});
}

}  // namespace
}  // namespace attention::test
