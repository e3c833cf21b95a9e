// Tensors in a caller's shared memory: registered, read, written, taken away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/memory/shared_memory_registry.h"
#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/tiny_problem.h"
#include "tests/service/wire_client.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace attention::test {
namespace {

using absl::StatusCode;
using inference::ModelInferRequest;
using ::testing::HasSubstr;

class InferSharedMemoryTest : public testing::Test {
 protected:
  void Start(const server::ServerOptions& options = WithSharedMemory()) {
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
  }

  absl::Status Register(const std::string& name, size_t offset = 0,
                        size_t size = kSize) {
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(object_.key());
    request.set_offset(offset);
    request.set_byte_size(size);
    return CallInference<inference::SystemSharedMemoryRegisterResponse>(
               *client_, "SystemSharedMemoryRegister", request)
        .status();
  }

  absl::Status Unregister(const std::string& name) {
    inference::SystemSharedMemoryUnregisterRequest request;
    request.set_name(name);
    return CallInference<inference::SystemSharedMemoryUnregisterResponse>(
               *client_, "SystemSharedMemoryUnregister", request)
        .status();
  }

  // Moves the elements of every input into the region "in", one after another
  // from an odd offset on.
  void MoveInputs(ModelInferRequest& request) {
    size_t offset = 3;
    for (int n = 0; n < request.inputs_size(); ++n) {
      const std::string& bytes = request.raw_input_contents(n);
      std::memcpy(object_.bytes() + offset, bytes.data(), bytes.size());
      PutInRegion(*request.mutable_inputs(n), "in", offset, bytes.size());
      offset += bytes.size();
    }
    request.clear_raw_input_contents();
  }

  static constexpr size_t kSize = 1 << 20;
  SharedMemoryObject object_{kSize};
  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
};

TEST_F(InferSharedMemoryTest, InputsAreReadFromIt) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT32, {1, 2}, {2, 3});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 0, 1, 1, 1, 1});
  ModelInferRequest infer = ToInfer(request);
  MoveInputs(infer);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(request));
}

TEST_F(InferSharedMemoryTest, SomeInputsInItAndTheOthersInTheMessage) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  const std::string key = infer.raw_input_contents(1);
  std::memcpy(object_.bytes(), key.data(), key.size());
  PutInRegion(*infer.mutable_inputs(1), "in", 0, key.size());
  infer.mutable_raw_input_contents()->DeleteSubrange(1, 1);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(TinyRequest()));
}

// Inputs whose values are looked at are copied, once their size is known to be
// what their shape needs.
TEST_F(InferSharedMemoryTest, AHugeSparseRegionBehindASmallShapeIsNotCopied) {
  Start();
  constexpr size_t kHuge = size_t{40} << 30;
  object_.Truncate(kHuge);
  ASSERT_TRUE(Register("in", 0, kHuge).ok());
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT32, {1, 2}, {2, 3});
  ModelInferRequest infer = ToInfer(request);
  PutInRegion(*infer.mutable_inputs(3), "in", 0, kHuge);
  infer.mutable_raw_input_contents()->DeleteSubrange(3, 1);
  EXPECT_THAT(Infer(*client_, infer).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("valid_lens: 42949672960 bytes")));
}

TEST_F(InferSharedMemoryTest, ACopyOfAMaskIsCountedBeforeItIsMade) {
  server::ServerOptions options = WithSharedMemory();
  options.memory_limit = 64 << 20;
  Start(options);
  constexpr int64_t kKeys = 1 << 20;
  constexpr size_t kMask = size_t{64} * kKeys;
  object_.Truncate(kMask);
  ASSERT_TRUE(Register("in", 0, kMask).ok());
  v1::AttendRequest request = TinyRequest();
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 0, 1, 1, 1, 1});
  ModelInferRequest infer = ToInfer(request);
  auto& mask = *infer.mutable_inputs(3);
  mask.clear_shape();
  mask.add_shape(64);
  mask.add_shape(kKeys);
  PutInRegion(mask, "in", 0, kMask);
  infer.mutable_raw_input_contents()->DeleteSubrange(3, 1);
  EXPECT_THAT(
      Infer(*client_, infer).status(),
      StatusIs(StatusCode::kResourceExhausted, HasSubstr("never fits")));
}

TEST_F(InferSharedMemoryTest, OutputsAreWrittenToItAndTheirEntriesAreEmpty) {
  Start();
  ASSERT_TRUE(Register("out", 4096, 4096).ok());
  const auto expected = Infer(*client_, ToInfer(TinyRequest()));
  ASSERT_TRUE(expected.ok()) << expected.status();
  ModelInferRequest infer = ToInfer(TinyRequest());
  const size_t size = expected->raw_output_contents(1).size();
  PutInRegion(*infer.mutable_outputs(1), "out", 5, size);
  const auto response = Infer(*client_, infer);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->raw_output_contents_size(), 3);
  EXPECT_EQ(response->raw_output_contents(0), expected->raw_output_contents(0));
  EXPECT_EQ(response->raw_output_contents(1), "");
  EXPECT_EQ(std::memcmp(object_.bytes() + 4096 + 5,
                        expected->raw_output_contents(1).data(), size),
            0);
}

TEST_F(InferSharedMemoryTest, AnOutputOverATensorIsRefused) {
  Start();
  // One object under two names, as two regions.
  ASSERT_TRUE(Register("in").ok());
  ASSERT_TRUE(Register("again", 4, 4096).ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer);  // the query lies in bytes 3 to 18
  PutInRegion(*infer.mutable_outputs(0), "again", 10, 16);
  const auto response = Infer(*client_, infer);
  EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(response.status().message()),
              HasSubstr("output: its shared memory overlaps that of query"));
  PutInRegion(*infer.mutable_outputs(0), "again", 1000, 16);
  EXPECT_TRUE(Infer(*client_, infer).ok());
}

TEST_F(InferSharedMemoryTest, AnOutputOverAnotherIsRefused) {
  Start();
  ASSERT_TRUE(Register("out").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  PutInRegion(*infer.mutable_outputs(0), "out", 0, 16);
  PutInRegion(*infer.mutable_outputs(1), "out", 15, 24);
  const auto response = Infer(*client_, infer);
  EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(response.status().message()),
              HasSubstr("weights: its shared memory overlaps that of output"));
}

TEST_F(InferSharedMemoryTest, AnOutputThatDoesNotFitIsRefused) {
  Start();
  ASSERT_TRUE(Register("out").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  PutInRegion(*infer.mutable_outputs(0), "out", 0, 15);
  const auto response = Infer(*client_, infer);
  EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(response.status().message()),
              HasSubstr("output: shape [2, 2] takes 16 bytes, "
                        "shared_memory_byte_size is 15"));
}

TEST_F(InferSharedMemoryTest, WhatLiesOutsideTheRegionIsRefused) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer);
  auto& parameters = *infer.mutable_inputs(0)->mutable_parameters();
  for (const uint64_t offset : {uint64_t{kSize}, uint64_t{kSize - 15},
                                ~uint64_t{0}, ~uint64_t{0} - 15}) {
    parameters["shared_memory_offset"].set_uint64_param(offset);
    const auto response = Infer(*client_, infer);
    EXPECT_EQ(response.status().code(), StatusCode::kInvalidArgument)
        << response.status();
    EXPECT_THAT(std::string(response.status().message()),
                testing::StartsWith("query: "));
  }
}

TEST_F(InferSharedMemoryTest, UnknownRegionIsNotFound) {
  Start();
  ModelInferRequest infer = ToInfer(TinyRequest());
  PutInRegion(*infer.mutable_outputs(0), "nowhere", 0, 16);
  EXPECT_THAT(Infer(*client_, infer).status(),
              StatusIs(StatusCode::kNotFound,
                       testing::StartsWith("output.shared_memory_region: ")));
}

TEST_F(InferSharedMemoryTest, ATakenNameAlreadyExists) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  EXPECT_EQ(Register("in").code(), StatusCode::kAlreadyExists);
}

TEST_F(InferSharedMemoryTest, RegionsBeyondTheLimitAreRefusedAndOthersServed) {
  Start();
  for (size_t n = 0; n < server::SharedMemoryRegistry::kMostRegions; ++n) {
    ASSERT_TRUE(Register(absl::StrCat("region", n), 0, 4096).ok());
  }
  const absl::Status refused = Register("more", 0, 4096);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at most 1024"));
  WireClient other(server_->address());
  ExpectGoodReply(other.Attend(GoodRequest()));
  EXPECT_TRUE(Unregister("region7").ok());
  EXPECT_TRUE(Register("more", 0, 4096).ok());
}

TEST_F(InferSharedMemoryTest, StatusListsTheRegions) {
  Start();
  ASSERT_TRUE(Register("a", 4096, 100).ok());
  ASSERT_TRUE(Register("b").ok());
  const auto status =
      CallInference<inference::SystemSharedMemoryStatusResponse>(
          *client_, "SystemSharedMemoryStatus",
          inference::SystemSharedMemoryStatusRequest());
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->regions_size(), 2);
  const auto& region = status->regions().at("a");
  EXPECT_EQ(region.key(), object_.key());
  EXPECT_EQ(region.offset(), 4096U);
  EXPECT_EQ(region.byte_size(), 100U);
}

TEST_F(InferSharedMemoryTest, UnregisterOfNoNameForgetsAll) {
  Start();
  ASSERT_TRUE(Register("a").ok());
  ASSERT_TRUE(Unregister("").ok());
  EXPECT_TRUE(Register("a").ok());
}

TEST_F(InferSharedMemoryTest, UnregisteringInMidFlightIsSafe) {
  gate_.CloseAt(1);
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer);
  auto call = client_->Start(kModelInfer, infer.SerializeAsString());
  gate_.WaitUntilHolding();
  EXPECT_TRUE(Unregister("in").ok());
  gate_.Open();
  const auto bytes = call->Wait();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ExpectSameAnswer(response, client_->Attend(TinyRequest()));
}

TEST_F(InferSharedMemoryTest, ATruncatedRegionIsAnErrorAndNotTheEnd) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer);
  object_.Truncate(0);
  const auto response = Infer(*client_, infer);
  EXPECT_EQ(response.status().code(), StatusCode::kFailedPrecondition)
      << response.status();
  EXPECT_THAT(std::string(response.status().message()), HasSubstr("in"));
  ExpectGoodReply(client_->Attend(GoodRequest()));
}

// Keys of zeros would stay, and be attended to.
TEST_F(InferSharedMemoryTest, WhatATruncatedRegionHadIsNotKept) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  auto& parameters = *infer.mutable_parameters();
  parameters["sequence_id"].set_int64_param(7);
  ModelInferRequest next = infer;
  parameters["sequence_start"].set_bool_param(true);
  MoveInputs(infer);
  object_.Truncate(0);
  EXPECT_EQ(Infer(*client_, infer).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(Infer(*client_, next).status().code(), StatusCode::kNotFound);
}

TEST_F(InferSharedMemoryTest, ATruncatedRegionForAnOutputIsAnError) {
  Start();
  ASSERT_TRUE(Register("out").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  PutInRegion(*infer.mutable_outputs(0), "out", 0, 16);
  object_.Truncate(0);
  EXPECT_EQ(Infer(*client_, infer).status().code(),
            StatusCode::kFailedPrecondition);
  ExpectGoodReply(client_->Attend(GoodRequest()));
}

// Of a request whose answer got lost there, as of any other that fails.
TEST_F(InferSharedMemoryTest, NoKeysStayWhereAnOutputWentIntoATruncatedRegion) {
  Start();
  ASSERT_TRUE(Register("out").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  auto& parameters = *infer.mutable_parameters();
  parameters["sequence_id"].set_int64_param(7);
  const ModelInferRequest next = infer;
  parameters["sequence_start"].set_bool_param(true);
  PutInRegion(*infer.mutable_outputs(0), "out", 0, 16);
  object_.Truncate(0);
  EXPECT_EQ(Infer(*client_, infer).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(Infer(*client_, next).status().code(), StatusCode::kNotFound);
}

TEST_F(InferSharedMemoryTest, ContentsBesideARegionAreRefused) {
  Start();
  ASSERT_TRUE(Register("in").ok());
  ModelInferRequest infer = ToInfer(TinyRequest());
  UseTypedContents(infer);
  PutInRegion(*infer.mutable_inputs(0), "in", 0, 16);
  EXPECT_EQ(Infer(*client_, infer).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(InferSharedMemoryTest, IsSwitchedOffByDefault) {
  Start(TestOptions());
  EXPECT_EQ(Register("in").code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Unregister("").ok());
}

}  // namespace
}  // namespace attention::test
