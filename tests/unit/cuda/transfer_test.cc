#include "core/cuda/transfer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/emulation/emulated_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/owned_problem.h"
#include "tests/support/status_matchers.h"

namespace attention::cuda {
namespace {

using test::IsOk;
using test::Layout;
using test::OwnedProblem;

// Memory of a device, given back in the end.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, int64_t bytes)
      : device_(device), data_(device.Allocate(bytes).value()) {}
  ~DeviceMemory() { device_.Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::byte* const data_;
};

class TransferTest : public ::testing::Test {
 protected:
  // `bytes` of device memory, brought back.
  std::vector<std::byte> Fetch(const std::byte* from, int64_t bytes) {
    std::vector<std::byte> all(static_cast<size_t>(bytes));
    Downloader downloader(*stream_);
    downloader.Copy(from, all.data(), bytes);
    EXPECT_THAT(downloader.Finish(), IsOk());
    return all;
  }

  // To the device and back.
  void ExpectArrives(const std::vector<uint32_t>& sent,
                     WorkerPool* workers = nullptr) {
    const auto bytes = static_cast<int64_t>(sent.size() * 4);
    const DeviceMemory memory(*device_, bytes);
    Uploader uploader(*stream_, workers);
    uploader.Begin(memory.data());
    uploader.Append(sent.data(), bytes);
    ASSERT_THAT(uploader.Finish(), IsOk());
    const std::vector<std::byte> found = Fetch(memory.data(), bytes);
    EXPECT_EQ(std::memcmp(found.data(), sent.data(), found.size()), 0);
  }

  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::unique_ptr<Device> device_ =
      MakeEmulatedDevice(EmulatedProperties(), faults_);
  std::unique_ptr<Stream> stream_ = device_->NewStream().value();
};

std::vector<std::byte> BytesOf(const TensorView& view) {
  const Tensor row_major = test::Materialize(view);
  return {row_major.bytes().begin(), row_major.bytes().end()};
}

TEST_F(TransferTest, ViewsOfEveryLayoutAndTypeAreGatheredRowMajor) {
  for (const Layout layout : {Layout::kRowMajor, Layout::kLengthFirst,
                              Layout::kMisaligned, Layout::kReversed}) {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16,
                                DataType::kBool, DataType::kInt64}) {
      OwnedProblem owned;
      const TensorView view = owned.Add(
          type, {2, 3, 5, 7}, layout, [](absl::Span<const int64_t> index) {
            return static_cast<double>((index[2] * 7 + index[3] + index[1]) %
                                       2);
          });
      const std::vector<std::byte> expected = BytesOf(view);
      const auto bytes = static_cast<int64_t>(expected.size());
      const DeviceMemory memory(*device_, bytes);
      Uploader uploader(*stream_);
      uploader.Begin(memory.data());
      uploader.AppendView(view);
      ASSERT_THAT(uploader.Finish(), IsOk());
      EXPECT_EQ(Fetch(memory.data(), bytes), expected);
    }
  }
}

TEST_F(TransferTest, SmallTensorsSideBySideGoInOneCopy) {
  const DeviceMemory memory(*device_, 2048);
  const std::string first(100, 'a');
  const std::string second(300, 'b');
  const std::string far(5, 'c');
  Uploader uploader(*stream_);
  uploader.BeginNext(memory.data());
  uploader.Append(first.data(), 100);
  uploader.BeginNext(memory.data() + 256);
  uploader.Append(second.data(), 300);
  uploader.BeginNext(memory.data() + 1024);
  uploader.Append(far.data(), 5);
  ASSERT_THAT(uploader.Finish(), IsOk());
  EXPECT_EQ(faults_->copies, 2);
  const std::vector<std::byte> found = Fetch(memory.data(), 2048);
  EXPECT_EQ(std::memcmp(found.data(), first.data(), 100), 0);
  EXPECT_EQ(std::memcmp(found.data() + 256, second.data(), 300), 0);
  EXPECT_EQ(std::memcmp(found.data() + 1024, far.data(), 5), 0);
  // What is not between them, nobody has written.
  EXPECT_EQ(found[556], std::byte{0xFF});
}

TEST_F(TransferTest, AStrideOfZeroRepeatsElements) {
  const float value = 3;
  TensorView view = ContiguousView(DataType::kFloat32, {2, 3}, &value);
  view.strides = {0, 0};
  const DeviceMemory memory(*device_, 24);
  Uploader uploader(*stream_);
  uploader.Begin(memory.data());
  uploader.AppendView(view);
  ASSERT_THAT(uploader.Finish(), IsOk());
  std::vector<float> found(6);
  std::memcpy(found.data(), Fetch(memory.data(), 24).data(), 24);
  EXPECT_THAT(found, ::testing::Each(3.0F));
}

// Of 3 1/2 staging buffers.
std::vector<uint32_t> LargeTensor() {
  std::vector<uint32_t> all(Stream::kBufferBytes / 4 * 7 / 2);
  for (size_t n = 0; n < all.size(); ++n) all[n] = static_cast<uint32_t>(n);
  return all;
}

TEST_F(TransferTest, TensorsLargerThanTheStagingBuffersArrive) {
  ExpectArrives(LargeTensor());
}

// Around the size from which they take part, and with pieces that end in the
// middle of an element.
TEST_F(TransferTest, WorkersFillTheStagingBuffersAsOneDoes) {
  WorkerPool workers(3);
  const std::vector<uint32_t> large = LargeTensor();
  for (const int64_t bytes :
       {kLeastShared - 4, kLeastShared, kLeastShared + 4,
        Stream::kBufferBytes - 4, Stream::kBufferBytes + 4,
        2 * Stream::kBufferBytes + kLeastShared + 12}) {
    ExpectArrives({large.begin(), large.begin() + bytes / 4}, &workers);
  }
}

// Rows that end beyond a worker's piece, and of which the last piece has few.
TEST_F(TransferTest, WorkersGatherRowsAsOneDoes) {
  WorkerPool workers(3);
  const std::vector<uint32_t> sent = LargeTensor();
  for (const int64_t width : {1, 3, 65, 1000}) {
    const auto rows = static_cast<int64_t>(sent.size()) / (width + 2);
    TensorView view =
        ContiguousView(DataType::kFloat32, {rows, width}, sent.data());
    view.strides[0] = 4 * (width + 2);
    const DeviceMemory memory(*device_, rows * width * 4 + 4);
    Uploader uploader(*stream_, &workers);
    uploader.Begin(memory.data());
    uploader.Append(sent.data(), 4);
    uploader.AppendView(view);
    ASSERT_THAT(uploader.Finish(), IsOk());
    EXPECT_EQ(Fetch(memory.data() + 4, rows * width * 4), BytesOf(view));
  }
}

TEST_F(TransferTest, PinnedMemoryIsCopiedInOnePiece) {
  std::vector<uint32_t> sent = LargeTensor();
  const auto bytes = static_cast<int64_t>(sent.size() * 4);
  const absl::Span<std::byte> all = {reinterpret_cast<std::byte*>(sent.data()),
                                     static_cast<size_t>(bytes)};
  const DeviceMemory memory(*device_, bytes);
  ASSERT_THAT(device_->PinHost(all), IsOk());
  Uploader uploader(*stream_);
  uploader.Begin(memory.data());
  uploader.Append(sent.data(), 4);  // too little for a copy of its own
  uploader.Append(sent.data() + 1, bytes - 4);
  ASSERT_THAT(uploader.Finish(), IsOk());
  ASSERT_THAT(stream_->Synchronize(), IsOk());
  EXPECT_EQ(faults_->copies, 2);

  const std::vector<uint32_t> expected = sent;
  std::fill(sent.begin(), sent.end(), 0);
  Downloader downloader(*stream_);
  downloader.Copy(memory.data(), all.data(), bytes);
  ASSERT_THAT(downloader.Finish(), IsOk());
  ASSERT_THAT(stream_->Synchronize(), IsOk());
  EXPECT_EQ(faults_->copies, 3);
  EXPECT_EQ(sent, expected);
  EXPECT_THAT(device_->UnpinHost(all), IsOk());
}

TEST_F(TransferTest, OnlyWhatIsPinnedAsAWholeIsCopiedInOnePiece) {
  std::vector<uint32_t> sent = LargeTensor();
  const absl::Span<std::byte> half = {reinterpret_cast<std::byte*>(sent.data()),
                                      sent.size() * 2};
  ASSERT_THAT(device_->PinHost(half), IsOk());
  ExpectArrives(sent);
  EXPECT_THAT(device_->UnpinHost(half), IsOk());
}

TEST_F(TransferTest, StridedRowsLargerThanTheStagingBuffersArrive) {
  const std::vector<uint32_t> sent = LargeTensor();
  const auto count = static_cast<int64_t>(sent.size() / 2);
  TensorView view = ContiguousView(DataType::kFloat32, {count}, sent.data());
  view.strides = {8};
  const DeviceMemory memory(*device_, count * 4);
  Uploader uploader(*stream_);
  uploader.Begin(memory.data());
  uploader.AppendView(view);
  ASSERT_THAT(uploader.Finish(), IsOk());
  EXPECT_EQ(Fetch(memory.data(), count * 4), BytesOf(view));
}

TEST_F(TransferTest, SeveralTensorsShareAStagingBuffer) {
  constexpr int64_t kCount = 1000;
  std::vector<uint32_t> sent(kCount);
  const DeviceMemory memory(*device_, kCount * 256);
  Uploader uploader(*stream_);
  for (int64_t n = 0; n < kCount; ++n) {
    sent[static_cast<size_t>(n)] = static_cast<uint32_t>(n);
    uploader.Begin(memory.data() + n * 256);
    uploader.Append(&sent[static_cast<size_t>(n)], 4);
  }
  ASSERT_THAT(uploader.Finish(), IsOk());
  Downloader downloader(*stream_);
  std::vector<uint32_t> found(kCount);
  for (int64_t n = 0; n < kCount; ++n) {
    downloader.Copy(
        memory.data() + n * 256,
        reinterpret_cast<std::byte*>(&found[static_cast<size_t>(n)]), 4);
  }
  ASSERT_THAT(downloader.Finish(), IsOk());
  EXPECT_EQ(found, sent);
}

}  // namespace
}  // namespace attention::cuda
