// Memory that another process shares (cudaIpcMemHandle_t): inputs are read from
// it and results written to it where they lie.

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "core/cuda/device.h"
#include "core/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/child_process.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/status_matchers.h"

namespace attention {
namespace {

using test::ChildProcess;
using test::IsOk;
using test::MakeProblem;
using test::OwnedProblem;
using test::Results;
using test::StatusIs;
using test::TestSeed;
using ::testing::HasSubstr;

// Beside this program.
std::filesystem::path OwnerProgram() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
         "attention-gpu-memory-owner";
}

class SharedDeviceMemoryTest : public ::testing::Test {
 protected:
  // An emulated device has none.
  void SetUp() override {
    if (!std::filesystem::exists(OwnerProgram())) {
      GTEST_SKIP() << "there is no " << OwnerProgram();
    }
  }

  // The other process's memory, `bytes_` at first.
  void StartOwner() {
    file_ = ::testing::TempDir() + "attention_device_memory_" +
            std::to_string(getpid());
    std::ofstream(file_, std::ios::binary)
        .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    owner_ = std::make_unique<ChildProcess>(OwnerProgram().string(),
                                            std::vector<std::string>{file_});
    absl::string_view line = owner_line_ = owner_->ReadLineWith("handle ");
    ASSERT_TRUE(absl::ConsumePrefix(&line, "handle ")) << owner_->ReadAll();
    handle_ = absl::HexStringToBytes(line.substr(0, 2 * kHandle));
    ASSERT_EQ(handle_.size(), kHandle);
  }

  void TearDown() override { std::remove(file_.c_str()); }

  // What the other process finds in its memory in the end.
  std::string EndOwner() {
    owner_->Signal(SIGTERM);
    EXPECT_EQ(owner_->Wait(), 0) << owner_->ReadAll();
    std::ifstream file(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Appends a tensor from `misaligned` bytes beyond a multiple of 256 on.
  size_t Place(size_t size, size_t misaligned) {
    const size_t offset = (bytes_.size() + 255) / 256 * 256 + misaligned;
    bytes_.resize(offset + size, '\0');
    return offset;
  }
  size_t PlaceView(const TensorView& view, size_t misaligned) {
    const Tensor tensor = test::Materialize(view);
    const size_t offset = Place(tensor.byte_size(), misaligned);
    std::memcpy(bytes_.data() + offset, tensor.data(), tensor.byte_size());
    return offset;
  }

  // The same tensor in the memory of the device.
  static TensorView OnDevice(const TensorView& view, const DeviceMemory& memory,
                             size_t offset) {
    TensorView there =
        ContiguousView(view.type, view.shape, memory.bytes().data() + offset);
    there.space = MemorySpace::kCudaDevice;
    there.device = memory.device();
    return there;
  }

  static constexpr size_t kHandle = cuda::kSharedHandleBytes;
  std::string bytes_;
  std::string file_;
  std::string owner_line_;
  std::string handle_;
  std::unique_ptr<ChildProcess> owner_;
};

class SharedTensorsTest : public SharedDeviceMemoryTest,
                          public ::testing::WithParamInterface<size_t> {};

TEST_P(SharedTensorsTest, GiveTheBitsThatHostMemoryGives) {
  test::ProblemSpec spec;
  spec.query_heads = 4;
  spec.query_length = 100;
  spec.key_length = 130;
  spec.width = spec.value_width = 64;
  spec.type = DataType::kBFloat16;
  const OwnedProblem owned = MakeProblem(spec, TestSeed());
  const auto engine = test::MakeEngine("cuda");
  ASSERT_OK_AND_ASSIGN(const Results expected,
                       test::RunOn(*engine, owned.problem));

  AttentionProblem problem = owned.problem;
  KeyValueBlock& block = problem.key_value[0];
  const size_t query = PlaceView(problem.query, GetParam());
  const size_t key = PlaceView(block.key, GetParam());
  const size_t value = PlaceView(block.value, GetParam());
  const size_t output = Place(expected.output.byte_size(), GetParam());
  StartOwner();
  ASSERT_OK_AND_ASSIGN(
      auto memory,
      engine->MapDeviceMemory(handle_, 0, static_cast<int64_t>(bytes_.size())));
  problem.query = OnDevice(problem.query, *memory, query);
  block.key = OnDevice(block.key, *memory, key);
  block.value = OnDevice(block.value, *memory, value);
  ASSERT_OK_AND_ASSIGN(const ValidatedProblem valid, Validate(problem));
  AttentionJob job;
  job.problem = &valid;
  job.outputs.output = MutableContiguousView(spec.type, valid.output_shape,
                                             memory->bytes().data() + output);
  job.outputs.output.space = MemorySpace::kCudaDevice;
  job.outputs.output.device = memory->device();
  ASSERT_THAT(engine->Run(job), IsOk());
  memory.reset();
  const std::string found = EndOwner();
  ASSERT_EQ(found.size(), bytes_.size());
  EXPECT_EQ(std::memcmp(found.data() + output, expected.output.data(),
                        expected.output.byte_size()),
            0);
}

INSTANTIATE_TEST_SUITE_P(BytesBeyondAMultiple, SharedTensorsTest,
                         ::testing::Values(0, 2, 1));

TEST_F(SharedDeviceMemoryTest, IsCopiedToTheHost) {
  bytes_ = "what the owner has written";
  StartOwner();
  const auto engine = test::MakeEngine("cuda");
  ASSERT_OK_AND_ASSIGN(
      auto memory,
      engine->MapDeviceMemory(handle_, 0, static_cast<int64_t>(bytes_.size())));
  std::string found(bytes_.size(), '\0');
  ASSERT_THAT(memory->CopyToHost(
                  memory->bytes().data(),
                  {reinterpret_cast<std::byte*>(found.data()), found.size()}),
              IsOk());
  EXPECT_EQ(found, bytes_);
  memory.reset();
  EndOwner();
}

TEST_F(SharedDeviceMemoryTest, MoreBytesThanThereAreAreRefused) {
  bytes_.resize(4096);
  StartOwner();
  const auto engine = test::MakeEngine("cuda");
  EXPECT_THAT(
      engine->MapDeviceMemory(handle_, 0, int64_t{1} << 40).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte_size")));
  EndOwner();
}

TEST_F(SharedDeviceMemoryTest, AnUnknownHandleIsRefusedAndHarmsNothing) {
  const auto engine = test::MakeEngine("cuda");
  EXPECT_THAT(
      engine->MapDeviceMemory(std::string(kHandle, 'x'), 0, 4096).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("raw_handle")));
  const OwnedProblem owned = MakeProblem({}, TestSeed());
  EXPECT_THAT(test::RunOn(*engine, owned.problem).status(), IsOk());
}

}  // namespace
}  // namespace attention
