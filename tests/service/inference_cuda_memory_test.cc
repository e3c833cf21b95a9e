// Tensors in a caller's CUDA memory: the protocol's extension, over the wire,
// on an emulated device. There a handle is the name of a POSIX shared-memory
// object, which the kernels read and write as they would the device's memory;
// tests/gpu does the same with a cudaIpcMemHandle_t.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
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
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class InferCudaMemoryTest : public testing::Test {
 protected:
  void Start(const server::ServerOptions& options = WithSharedMemory()) {
    cuda::Devices devices;
    devices.push_back(
        cuda::MakeEmulatedDevice(cuda::EmulatedProperties(), faults_));
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(MakeCudaBackend(
        std::move(devices), {.name = "cuda_test", .experimental = false}));
    server_ = StartServer(options, &gate_, std::move(backends));
    client_ = std::make_unique<WireClient>(server_->address());
  }
  static std::string HandleOf(const SharedMemoryObject& object) {
    std::string handle = object.key();
    handle.resize(cuda::kSharedHandleBytes, '\0');
    return handle;
  }

  absl::Status Register(const std::string& name, size_t size = kSize,
                        int64_t device = 0) {
    return Register(name, HandleOf(object_), size, device);
  }
  absl::Status Register(const std::string& name, const std::string& handle,
                        size_t size, int64_t device) {
    inference::CudaSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_raw_handle(handle);
    request.set_device_id(device);
    request.set_byte_size(size);
    return CallInference<inference::CudaSharedMemoryRegisterResponse>(
               *client_, "CudaSharedMemoryRegister", request)
        .status();
  }

  absl::Status Unregister(const std::string& name) {
    inference::CudaSharedMemoryUnregisterRequest request;
    request.set_name(name);
    return CallInference<inference::CudaSharedMemoryUnregisterResponse>(
               *client_, "CudaSharedMemoryUnregister", request)
        .status();
  }

  absl::StatusOr<inference::CudaSharedMemoryStatusResponse> Status(
      const std::string& name) {
    inference::CudaSharedMemoryStatusRequest request;
    request.set_name(name);
    return CallInference<inference::CudaSharedMemoryStatusResponse>(
        *client_, "CudaSharedMemoryStatus", request);
  }

  // Moves the elements of every input into the region "in", each from a
  // multiple of `alignment` and one byte on.
  void MoveInputs(ModelInferRequest& request, size_t alignment, size_t beyond) {
    size_t offset = beyond;
    for (int n = 0; n < request.inputs_size(); ++n) {
      const std::string& bytes = request.raw_input_contents(n);
      std::memcpy(object_.bytes() + offset, bytes.data(), bytes.size());
      PutInRegion(*request.mutable_inputs(n), "in", offset, bytes.size());
      offset += (bytes.size() + alignment - 1) / alignment * alignment;
    }
    request.clear_raw_input_contents();
  }

  static constexpr size_t kSize = 1 << 20;
  SharedMemoryObject object_{kSize};
  const std::shared_ptr<cuda::Faults> faults_ =
      std::make_shared<cuda::Faults>();
  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
};

v1::AttendRequest MaskedRequest() {
  v1::AttendRequest request = TinyRequest();
  *request.mutable_valid_lens() =
      MakeTensor(v1::DATA_TYPE_INT32, {1, 2}, {2, 3});
  *request.mutable_attend_mask() =
      MakeTensor(v1::DATA_TYPE_BOOL, {2, 3}, {1, 0, 1, 1, 1, 1});
  *request.mutable_bias() = MakeTensor(v1::DATA_TYPE_FP32, {1, 3}, {0, 1, -1});
  return request;
}

// Each of its tensors has 256 bytes for each row of a head: with 512 more than
// is copied with others.
v1::AttendRequest RequestOfHeads(int64_t heads, int64_t length) {
  const std::vector<int64_t> shape = {1, heads, length, 64};
  std::vector<double> numbers(static_cast<size_t>(heads * length) * 64);
  for (size_t n = 0; n < numbers.size(); ++n) {
    numbers[n] = static_cast<double>(n % 97) / 97;
  }
  const v1::Tensor tensor = MakeTensor(v1::DATA_TYPE_FP32, shape, numbers);
  v1::AttendRequest request;
  *request.mutable_query() = tensor;
  *request.mutable_key_value()->mutable_key() = tensor;
  *request.mutable_key_value()->mutable_value() = tensor;
  return request;
}

TEST_F(InferCudaMemoryTest, InputsAreReadFromIt) {
  Start();
  ASSERT_THAT(Register("in"), IsOk());
  ModelInferRequest infer = ToInfer(MaskedRequest());
  MoveInputs(infer, 16, 0);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(MaskedRequest()));
}

// A POSIX region, so that devices need no copy of it in staging buffers.
TEST_F(InferCudaMemoryTest, SystemMemoryIsPinnedWhileItIsRegistered) {
  Start();
  const int64_t of_the_server = faults_->pinned;
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name("in");
  request.set_key(object_.key());
  request.set_byte_size(kSize);
  ASSERT_THAT(CallInference<inference::SystemSharedMemoryRegisterResponse>(
                  *client_, "SystemSharedMemoryRegister", request)
                  .status(),
              IsOk());
  EXPECT_EQ(faults_->pinned, of_the_server + 1);

  const v1::AttendRequest large = RequestOfHeads(1, 512);
  ModelInferRequest infer = ToInfer(large);
  MoveInputs(infer, 16, 0);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(large));

  inference::SystemSharedMemoryUnregisterRequest forget;
  forget.set_name("in");
  ASSERT_THAT(CallInference<inference::SystemSharedMemoryUnregisterResponse>(
                  *client_, "SystemSharedMemoryUnregister", forget)
                  .status(),
              IsOk());
  EXPECT_EQ(faults_->pinned, of_the_server);
}

// Sent, and of more bytes than gRPC reads at once: 512 KiB each, of heads that
// are smaller than what is worth a copy of its own.
TEST_F(InferCudaMemoryTest, LargeTensorsThatAreSentNeedNoStagingBuffer) {
  Start();
  const v1::AttendRequest large = RequestOfHeads(16, 128);
  const int64_t bytes = 3 * int64_t{512} << 10;
  ExpectSameAnswer(Infer(*client_, ToInfer(large)), client_->Attend(large));
  EXPECT_EQ(faults_->uploaded_pinned, 2 * bytes) << "once over each API";
}

TEST_F(InferCudaMemoryTest, InputsMayLieAtAnyByte) {
  Start();
  ASSERT_THAT(Register("in"), IsOk());
  ModelInferRequest infer = ToInfer(MaskedRequest());
  MoveInputs(infer, 1, 3);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(MaskedRequest()));
}

TEST_F(InferCudaMemoryTest, ParametersAreReadFromIt) {
  Start();
  ASSERT_THAT(Register("in"), IsOk());
  v1::AttendRequest request = TinyRequest();
  auto& additive = *request.mutable_additive();
  *additive.mutable_w_q() =
      MakeTensor(v1::DATA_TYPE_FP32, {2, 3}, {1, 2, 3, 4, 5, 6});
  *additive.mutable_w_k() =
      MakeTensor(v1::DATA_TYPE_FP32, {2, 3}, {6, 5, 4, 3, 2, 1});
  *additive.mutable_w_v() = MakeTensor(v1::DATA_TYPE_FP32, {3}, {1, -1, 2});
  ModelInferRequest infer = ToInfer(request);
  MoveInputs(infer, 16, 0);
  ExpectSameAnswer(Infer(*client_, infer), client_->Attend(request));
}

TEST_F(InferCudaMemoryTest, OutputsAreWrittenToIt) {
  Start();
  ASSERT_THAT(Register("out"), IsOk());
  const auto expected = Infer(*client_, ToInfer(TinyRequest()));
  ASSERT_THAT(expected, IsOk());
  for (const size_t beyond : {0U, 5U}) {
    ModelInferRequest infer = ToInfer(TinyRequest());
    for (int n = 0; n < 3; ++n) {
      PutInRegion(*infer.mutable_outputs(n), "out",
                  static_cast<size_t>(n) * 1024 + beyond,
                  expected->raw_output_contents(n).size());
    }
    const auto response = Infer(*client_, infer);
    ASSERT_THAT(response, IsOk());
    for (int n = 0; n < 3; ++n) {
      const std::string& bytes = expected->raw_output_contents(n);
      EXPECT_EQ(response->raw_output_contents(n), "");
      EXPECT_EQ(
          std::memcmp(object_.bytes() + static_cast<size_t>(n) * 1024 + beyond,
                      bytes.data(), bytes.size()),
          0);
    }
  }
}

TEST_F(InferCudaMemoryTest, IsAnExtensionOfAServerWithADevice) {
  const auto extensions = [this] {
    return CallInference<inference::ServerMetadataResponse>(
               *client_, "ServerMetadata", inference::ServerMetadataRequest())
        .value()
        .extensions();
  };
  Start();
  EXPECT_THAT(extensions(), Contains("cuda_shared_memory"));
  server::ServerOptions options = WithSharedMemory();
  options.backend = "reference";
  Start(options);
  EXPECT_THAT(extensions(), Not(Contains("cuda_shared_memory")));
}

TEST_F(InferCudaMemoryTest, StatusListsItsRegionsAlone) {
  Start();
  ASSERT_THAT(Register("a", 100), IsOk());
  inference::SystemSharedMemoryRegisterRequest system;
  system.set_name("b");
  system.set_key(object_.key());
  system.set_byte_size(1);
  ASSERT_THAT(CallInference<inference::SystemSharedMemoryRegisterResponse>(
                  *client_, "SystemSharedMemoryRegister", system),
              IsOk());
  const auto status = Status("");
  ASSERT_THAT(status, IsOk());
  ASSERT_EQ(status->regions_size(), 1);
  EXPECT_EQ(status->regions().at("a").device_id(), 0U);
  EXPECT_EQ(status->regions().at("a").byte_size(), 100U);
  EXPECT_EQ(Status("b").status().code(), StatusCode::kNotFound);
}

TEST_F(InferCudaMemoryTest, UnregisteringUnmapsWhatIsNotHeld) {
  Start();
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("b"), IsOk());
  EXPECT_EQ(faults_->shared, 2);
  EXPECT_THAT(Unregister("a"), IsOk());
  EXPECT_EQ(faults_->shared, 1);
  EXPECT_THAT(Unregister(""), IsOk());
  EXPECT_EQ(faults_->shared, 0);
  EXPECT_THAT(Register("a"), IsOk());
}

TEST_F(InferCudaMemoryTest, UnregisteringInMidFlightIsSafe) {
  gate_.CloseAt(1);
  Start();
  ASSERT_THAT(Register("in"), IsOk());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer, 16, 0);
  auto call = client_->Start(kModelInfer, infer.SerializeAsString());
  gate_.WaitUntilHolding();
  EXPECT_THAT(Unregister("in"), IsOk());
  EXPECT_EQ(faults_->shared, 1);
  gate_.Open();
  const auto bytes = call->Wait();
  ASSERT_THAT(bytes, IsOk());
  inference::ModelInferResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  ExpectSameAnswer(response, client_->Attend(TinyRequest()));
}

TEST_F(InferCudaMemoryTest, ATakenNameAlreadyExists) {
  Start();
  ASSERT_THAT(Register("a"), IsOk());
  EXPECT_EQ(Register("a").code(), StatusCode::kAlreadyExists);
}

TEST_F(InferCudaMemoryTest, MoreBytesThanThereAreAreRefused) {
  Start();
  EXPECT_THAT(Register("a", kSize + 1),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'a'"), HasSubstr("byte_size"))));
  EXPECT_EQ(Register("a", ~size_t{0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Register("a", 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(faults_->shared, 0);
}

TEST_F(InferCudaMemoryTest, AnUnknownHandleIsRefused) {
  Start();
  EXPECT_THAT(Register("a", std::string(cuda::kSharedHandleBytes, 'x'), 1, 0),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("raw_handle")));
  EXPECT_THAT(Register("a", "short", 1, 0),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("raw_handle: 5 bytes (a cudaIpcMemHandle_t "
                                 "has 64)")));
}

TEST_F(InferCudaMemoryTest, AnUnknownDeviceIsRefused) {
  Start();
  for (const int64_t device : {int64_t{1}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_THAT(
        Register("a", kSize, device),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("device_id: ")));
  }
}

TEST_F(InferCudaMemoryTest, WhatLiesOutsideTheRegionIsRefused) {
  Start();
  ASSERT_THAT(Register("in", 100), IsOk());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer, 16, 0);
  for (const uint64_t offset : {uint64_t{100}, ~uint64_t{0}, uint64_t{90}}) {
    auto& parameters = *infer.mutable_inputs(0)->mutable_parameters();
    parameters["shared_memory_offset"].set_uint64_param(offset);
    EXPECT_THAT(Infer(*client_, infer).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("query: ")));
  }
}

TEST_F(InferCudaMemoryTest, ALostDeviceIsUnavailableForWhatLiesOnIt) {
  Start();
  ASSERT_THAT(Register("in"), IsOk());
  ModelInferRequest infer = ToInfer(TinyRequest());
  MoveInputs(infer, 16, 0);
  faults_->launches_left = 0;
  EXPECT_EQ(Infer(*client_, infer).status().code(), StatusCode::kInternal);
  EXPECT_THAT(
      Infer(*client_, infer).status(),
      StatusIs(StatusCode::kUnavailable, HasSubstr("the device is lost")));
  // The CPU has taken over what is sent to it.
  ExpectGoodReply(client_->Attend(GoodRequest()));
}

TEST_F(InferCudaMemoryTest, IsSwitchedOffByDefault) {
  Start(TestOptions());
  EXPECT_EQ(Register("in").code(), StatusCode::kUnavailable);
  EXPECT_THAT(Unregister(""), IsOk());
}

TEST_F(InferCudaMemoryTest, OnAServerWithoutDeviceItIsUnimplemented) {
  server::ServerOptions options = WithSharedMemory();
  options.backend = "reference";
  Start(options);
  EXPECT_THAT(
      Register("in"),
      StatusIs(StatusCode::kUnimplemented,
               HasSubstr("this server does not compute on a CUDA device")));
  EXPECT_EQ(Status("").status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Unregister(""), IsOk());
}

}  // namespace
}  // namespace attention::test
