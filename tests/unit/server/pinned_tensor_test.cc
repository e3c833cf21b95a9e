// Tensors of messages that are gathered to where a device copies them from.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "core/pinned_reserve.h"
#include "server/wire/tensor_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/tensor_text.h"

namespace attention::server {
namespace {

constexpr int kLarge = kLeastBytesGatheredLater;

class PinnedTensorTest : public ::testing::Test {
 protected:
  PinnedTensorTest() {
    cuda::Devices devices;
    devices.push_back(cuda::MakeEmulatedDevice());
    backend_ = MakeCudaBackend(std::move(devices),
                               {.name = "cuda_test", .experimental = false});
    pinned_ = PinnedReserve(*backend_, kLarge);
  }

  // The last `size` bytes of `text`, which comes in two slices.
  absl::StatusOr<TensorBytes> Read(const std::string& text, int size) const {
    const size_t half = text.size() / 2;
    SliceInputStream stream(std::vector<grpc::Slice>{
        grpc::Slice(text.substr(0, half)), grpc::Slice(text.substr(half))});
    google::protobuf::io::CodedInputStream in(&stream);
    in.PushLimit(static_cast<int>(stream.TotalBytes()));
    EXPECT_TRUE(in.Skip(static_cast<int>(text.size()) - size));
    return ReadTensorBytes(stream, in, size, pinned_);
  }
  // What the reserve has left, in blocks of `size`.
  size_t Room(int64_t size) const {
    std::vector<std::shared_ptr<std::byte>> blocks;
    while (auto block = pinned_.Take(size)) blocks.push_back(std::move(block));
    return blocks.size();
  }

  std::unique_ptr<Backend> backend_;
  PinnedReserve pinned_;
};

TEST_F(PinnedTensorTest, LargeOnesAreGatheredThere) {
  const std::string text = Text(kLarge + 5);
  const size_t room = Room(kLarge);
  {
    ASSERT_OK_AND_ASSIGN(TensorBytes tensor, Read(text, kLarge));
    EXPECT_EQ(Room(kLarge), room - 1);
    tensor.Gather();
    EXPECT_EQ(ToString(tensor), text.substr(5));
  }
  EXPECT_EQ(Room(kLarge), room) << "it is given back";
}

TEST_F(PinnedTensorTest, SmallOnesAreNot) {
  const size_t room = Room(kLarge);
  const std::string text = Text(kLarge - 1);
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(text, kLarge - 1));
  EXPECT_EQ(Room(kLarge), room);
  EXPECT_EQ(ToString(tensor), text);
}

TEST_F(PinnedTensorTest, OnesWithoutRoomAreGatheredElsewhere) {
  ASSERT_GT(pinned_.size(), 0);
  const auto size = static_cast<int>(pinned_.size());
  const std::string text = Text(static_cast<size_t>(size));
  ASSERT_OK_AND_ASSIGN(TensorBytes tensor, Read(text, size));
  tensor.Gather();
  EXPECT_EQ(ToString(tensor), text);
}

}  // namespace
}  // namespace attention::server
