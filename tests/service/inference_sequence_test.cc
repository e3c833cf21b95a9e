// The sequence extension: requests with a sequence_id append their keys and
// values to those of the requests before them, and attend to all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/model_folders.h"

namespace attention::test {
namespace {

using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;

// Rows `first` to `last` - 1 of something that differs from row to row.
v1::Tensor Rows(int64_t first, int64_t last, double factor, int64_t batch = 1) {
  std::vector<double> values;
  for (int64_t entry = 0; entry < batch; ++entry) {
    for (int64_t n = first; n < last; ++n) {
      values.push_back(static_cast<double>(n % 4) * factor);
      values.push_back(1 - static_cast<double>(n));
    }
  }
  return Floats({batch, 1, last - first, 2}, values);
}

// One query, and the keys and values from `first` to `last` - 1.
ModelInferRequest Step(int64_t first, int64_t last, int64_t batch = 1) {
  v1::AttendRequest request;
  *request.mutable_query() = Rows(last, last + 1, 0.5, batch);
  *request.mutable_key_value()->mutable_key() = Rows(first, last, 0.25, batch);
  *request.mutable_key_value()->mutable_value() = Rows(first, last, 2, batch);
  ModelInferRequest infer = ToInfer(request);
  infer.set_id(absl::StrCat(last));
  return infer;
}

enum class At : uint8_t { kStart, kMiddle, kEnd };

ModelInferRequest OfSequence(ModelInferRequest request, int64_t id, At at) {
  auto& parameters = *request.mutable_parameters();
  parameters["sequence_id"].set_int64_param(id);
  parameters["sequence_start"].set_bool_param(at == At::kStart);
  parameters["sequence_end"].set_bool_param(at == At::kEnd);
  return request;
}

// A server whose store has room for some 60,000 keys of these.
server::ServerOptions SmallStore() {
  server::ServerOptions options = TestOptions();
  options.resident_memory_limit = int64_t{1} << 20;
  options.resident_evict = true;
  return options;
}

// All sequences that the store has.
v1::ListSequencesResponse SequencesIn(WireClient& client) {
  const auto bytes =
      client.Call("/attention.v1.KeyValueService/List",
                  v1::ListSequencesRequest().SerializeAsString());
  EXPECT_EQ(bytes.status(), absl::OkStatus());
  v1::ListSequencesResponse list;
  EXPECT_TRUE(bytes.ok() && list.ParseFromString(*bytes));
  return list;
}

// A server whose tiles wait from the `first_held` on, until its gate opens.
struct GatedSequences {
  explicit GatedSequences(int64_t first_held) {
    gate.CloseAt(first_held);
    server = StartServer(TestOptions(), &gate);
    client = std::make_unique<WireClient>(server->address());
  }
  std::unique_ptr<PendingCall> Send(const ModelInferRequest& request) const {
    return client->Start(kModelInfer, request.SerializeAsString());
  }

  TileGate gate;
  std::unique_ptr<server::Server> server;
  std::unique_ptr<WireClient> client;
};

class InferSequenceTest : public testing::Test {
 protected:
  std::string OutputOf(const ModelInferRequest& request) {
    return OutputOf(request, client_);
  }
  static std::string OutputOf(const ModelInferRequest& request,
                              WireClient& client) {
    const auto response = Infer(client, request);
    EXPECT_EQ(response.status(), absl::OkStatus());
    return response.ok() ? response->raw_output_contents(0) : "";
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

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

TEST_F(InferSequenceTest, AStartWithoutKeysIsRefused) {
  ModelInferRequest request = OfSequence(Step(0, 3), 7, At::kStart);
  request.mutable_inputs()->DeleteSubrange(1, 2);
  request.mutable_raw_input_contents()->DeleteSubrange(1, 2);
  ExpectRefusal(Infer(client_, request).status(),
                absl::StatusCode::kInvalidArgument,
                {"key: missing beside sequence_start"});
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
