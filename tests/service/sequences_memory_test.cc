// Keys and values that stay, where their memory is out: what goes, what is
// refused, and what stays of a request that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/sequences_fixture.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

using absl::StatusCode;

TEST_F(SequencesTest, MemoryThatIsOutIsSaid) {
  server::ServerOptions options = TestOptions();
  options.resident_memory_limit = 1 << 20;
  Start(options);
  ASSERT_EQ(Create({"s"}).status(), absl::OkStatus());
  ExpectRefusal(Append(AppendOf("s", 0, 100'000)).status(),
                StatusCode::kResourceExhausted, {"", "of 1048576 bytes"});
  EXPECT_EQ(Append(AppendOf("s", 0, 1000))->length(), 1000);
}

// A sequence of so many keys takes almost half of SmallStore(): both can be
// appended a page to, but not both at once.
constexpr int64_t kNearlyHalf = 29'760;

server::ServerOptions SmallStore(bool evict) {
  server::ServerOptions options = TestOptions();
  options.resident_memory_limit = 1 << 20;
  options.resident_evict = evict;
  return options;
}

// Two entries, which append `count` keys each.
v1::AttendRequest AppendToBoth(int64_t count) {
  v1::AttendRequest request = OnSequences(Query(2), {"a", "b"});
  v1::KeyValueTensors& append = *request.mutable_sequences()->mutable_append();
  *append.mutable_key() = Filled(v1::DATA_TYPE_FP32, {2, 1, count, 2}, 1);
  *append.mutable_value() = append.key();
  return request;
}

TEST_F(SequencesTest, ARequestDoesNotEvictItsOwn) {
  Start(SmallStore(/*evict=*/true));
  Make("a", kNearlyHalf);
  Make("b", kNearlyHalf);
  ExpectRefusal(Attend(AppendToBoth(5000)).status(),
                StatusCode::kResourceExhausted, {"sequences.entries[0]: "});
  EXPECT_EQ(LengthOf("a"), kNearlyHalf);
  EXPECT_EQ(LengthOf("b"), kNearlyHalf);
}

TEST_F(SequencesTest, WhatIsReadIsNotEvicted) {
  gate_.CloseAt(1);
  Start(SmallStore(/*evict=*/true));
  Make("a", 57'000);
  ASSERT_EQ(Create({"b"}).status(), absl::OkStatus());
  const auto pending =
      client_->Start(kAttend, OnSequences(Query(), {"a"}).SerializeAsString());
  gate_.WaitUntilHolding();
  // So few that no worker is needed: the gate may hold all of them.
  ExpectRefusal(Append(AppendOf("b", 0, 4000)).status(),
                StatusCode::kResourceExhausted, {"", "sequences hold "});
  EXPECT_EQ(LengthOf("a"), 57'000);
  gate_.Open();
  ASSERT_EQ(pending->Wait().status(), absl::OkStatus());
  EXPECT_EQ(Append(AppendOf("b", 0, 4000)).status(), absl::OkStatus());
}

// The store is so full that a copy of the last page does not fit.
TEST_F(SequencesTest, AStepAfterATruncateGoesOnInTheLastPage) {
  Start(SmallStore(/*evict=*/false));
  Make("s", 60'000);
  v1::TruncateRequest cut;
  cut.set_name("s");
  cut.set_length(59'990);
  ASSERT_EQ(Call<v1::TruncateResponse>("Truncate", cut).status(),
            absl::OkStatus());
  const v1::AttendRequest step =
      AndAppend(OnSequences(Query(), {"s"}), 59'990, 1);
  ASSERT_EQ(Attend(step).status(), absl::OkStatus());
  EXPECT_EQ(LengthOf("s"), 59'991);
}

TEST_F(SequencesTest, AStepThatWasHalfAppendedIsNotToBeTriedAgain) {
  Start(SmallStore(/*evict=*/false));
  Make("a", kNearlyHalf);
  Make("b", kNearlyHalf);
  v1::AttendRequest step = AppendToBoth(1);
  const absl::Status refused = Attend(step).status();
  ExpectRefusal(
      refused, StatusCode::kResourceExhausted,
      {"sequences.entries[1]: ", "; the entries before it are appended"});
  EXPECT_FALSE(SaysWhenToTryAgain(refused));
  ASSERT_EQ(LengthOf("a"), kNearlyHalf + 1);
  // With positions it may be.
  for (int n = 0; n < 2; ++n) {
    step.mutable_sequences()->mutable_entries(n)->set_position(kNearlyHalf);
  }
  EXPECT_TRUE(SaysWhenToTryAgain(Attend(step).status()));
}

TEST_F(SequencesTest, AStepThatWasStoppedSaysThatItsKeysStay) {
  server::ServerOptions options = TestOptions();
  options.max_compute_time = std::chrono::milliseconds(1);
  Start(options);
  ASSERT_EQ(Create({"s"}).status(), absl::OkStatus());
  constexpr int64_t kRows = 20'000;  // some 100 ms
  v1::AttendRequest step = AndAppend(OnSequences(Query(), {"s"}), 0, kRows);
  *step.mutable_query() = RowsOf(0, kRows);
  const std::vector<int64_t> shape = {1, 1, kRows, 2};
  step.mutable_query()->mutable_shape()->Assign(shape.begin(), shape.end());
  step.clear_return_weights();
  ExpectRefusal(Attend(step).status(), StatusCode::kResourceExhausted,
                {"computing was stopped", "; its own keys are appended"});
  EXPECT_EQ(LengthOf("s"), kRows);
}

TEST_F(SequencesTest, WhatNeverFitsIsNotToBeTriedAgain) {
  Start(SmallStore(/*evict=*/false));
  Make("a", 40'000);
  ASSERT_EQ(Create({"b"}).status(), absl::OkStatus());
  const absl::Status never = Append(AppendOf("b", 0, 100'000)).status();
  ASSERT_EQ(never.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(SaysWhenToTryAgain(never));
  const absl::Status now = Append(AppendOf("b", 0, 40'000)).status();
  ASSERT_EQ(now.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(SaysWhenToTryAgain(now));
}

TEST_F(SequencesTest, SequencesThatDoNotFitNowMayBeMadeLater) {
  Start(SmallStore(/*evict=*/false));
  Make("a", 60'000);
  v1::CreateSequencesRequest request = CreateRequest({"b"});
  v1::SequenceForm& form = *request.mutable_sequences(0)->mutable_form();
  form.set_layers(100);
  const auto made = [&] {
    return Call<v1::CreateSequencesResponse>("Create", request).status();
  };
  ASSERT_EQ(made().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(SaysWhenToTryAgain(made()));
  for (int n = 0; n < 255; ++n) {
    *request.add_sequences() = request.sequences(0);
    request.mutable_sequences(n + 1)->set_name(absl::StrCat("b", n));
  }
  ASSERT_EQ(made().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(SaysWhenToTryAgain(made()));
}

// Keys and values of 32 MiB each, which take a while to copy.
constexpr int64_t kManyKeys = 8192;
constexpr int64_t kWide = 1024;

v1::CreateSequencesRequest WideSequence(const std::string& name) {
  v1::CreateSequencesRequest request = CreateRequest({name});
  v1::SequenceForm& form = *request.mutable_sequences(0)->mutable_form();
  form.set_key_width(kWide);
  form.set_value_width(kWide);
  return request;
}

v1::AppendRequest AppendMuchTo(const std::string& name) {
  v1::AppendRequest request;
  request.set_name(name);
  *request.mutable_key() = Filled(v1::DATA_TYPE_FP32, {1, kManyKeys, kWide}, 1);
  *request.mutable_value() = request.key();
  return request;
}

// Of as many as are sent at once, those that are refused. All are answered.
int RefusedTruncates(WireClient& client, const std::string& name) {
  v1::TruncateRequest cut;
  cut.set_name(name);
  cut.set_length(0);
  std::vector<std::unique_ptr<PendingCall>> calls(16);
  for (auto& call : calls) {
    call = client.Start(kService + "Truncate", cut.SerializeAsString());
  }
  int refused = 0;
  for (const auto& call : calls) {
    const absl::Status status = call->Wait().status();
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
    EXPECT_TRUE(SaysWhenToTryAgain(status)) << status;
  }
  return refused;
}

TEST_F(SequencesTest, TruncatesThatWaitForAnAppendAreBounded) {
  server::ServerOptions options = TestOptions();
  options.max_requests_in_flight = 4;  // two of them of one connection
  Start(options);
  ASSERT_EQ(
      Call<v1::CreateSequencesResponse>("Create", WideSequence("s")).status(),
      absl::OkStatus());
  WireClient appends(server_->address());
  const std::string append = AppendMuchTo("s").SerializeAsString();
  int refused = 0;
  for (int tries = 0; tries < 20 && refused == 0; ++tries) {
    const auto appending = appends.Start(kService + "Append", append);
    std::atomic<bool> appended = false;
    const std::jthread waits([&] {
      EXPECT_EQ(appending->Wait().status(), absl::OkStatus());
      appended = true;
    });
    while (!appended) refused += RefusedTruncates(*client_, "s");
  }
  EXPECT_GT(refused, 0);
}

TEST_F(SequencesTest, AFileThatNeverFitsDrivesNobodyOut) {
  TemporaryFolder files;
  server::ServerOptions options = SmallStore(/*evict=*/true);
  options.resident_folder = files.path();
  options.resident_memory_limit = 2 << 20;
  Start(options);
  Make("big", 100'000);
  v1::ExportSequenceRequest out;
  out.set_name("big");
  out.set_file("big");
  ASSERT_EQ(Call<v1::ExportSequenceResponse>("Export", out).status(),
            absl::OkStatus());
  options.resident_memory_limit = 1 << 20;
  Start(options);
  Make("s", 10'000);
  v1::ImportSequenceRequest in;
  in.set_file("big");
  const absl::Status refused =
      Call<v1::ImportSequenceResponse>("Import", in).status();
  ExpectRefusal(refused, StatusCode::kResourceExhausted,
                {"file: ", "bytes at least of the 1048576"});
  EXPECT_FALSE(SaysWhenToTryAgain(refused));
  EXPECT_EQ(LengthOf("s"), 10'000);
}

}  // namespace
}  // namespace attention::test
