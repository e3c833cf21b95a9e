#include "server/wire/tensor_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/server/tensor_text.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::_;

constexpr int kLarge = 4 * kLeastBytesInPlace;

// Slices of `text`, each of the given size and the last of the rest; alive()
// counts those that somebody keeps.
class Slices {
 public:
  Slices(std::string text, const std::vector<size_t>& sizes)
      : text_(std::move(text)) {
    size_t begin = 0;
    for (const size_t size : sizes) begin = Add(begin, size);
    if (begin < text_.size()) Add(begin, text_.size() - begin);
  }

  std::vector<grpc::Slice> Take() { return std::move(slices_); }
  int alive() const { return alive_; }
  const char* data() const { return text_.data(); }

 private:
  size_t Add(size_t begin, size_t size) {
    ++alive_;
    slices_.emplace_back(
        text_.data() + begin, size,
        [](void* slices) { --static_cast<Slices*>(slices)->alive_; }, this);
    return begin + size;
  }

  std::string text_;
  std::atomic<int> alive_ = 0;
  std::vector<grpc::Slice> slices_;
};

// Skips `before` bytes of the slices and reads `size`.
absl::StatusOr<TensorBytes> Read(Slices& slices, int before, int size) {
  SliceInputStream stream(slices.Take());
  google::protobuf::io::CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(stream.TotalBytes()));
  EXPECT_TRUE(in.Skip(before));
  absl::StatusOr<TensorBytes> read = ReadTensorBytes(stream, in, size);
  return read;
}

// `slices` of 64 bytes each, as gRPC hands them over.
grpc::ByteBuffer Received(Slices& slices) {
  const std::vector<grpc::Slice> all = slices.Take();
  return {all.data(), all.size()};
}

TEST(ReceivedMessage, GivesEachSliceBackWhenItIsReleased) {
  for (const size_t count : {1, 3}) {
    Slices slices(Text(64 * count), std::vector<size_t>(count, 64));
    grpc::ByteBuffer buffer = Received(slices);
    ReceivedMessage message(buffer);
    EXPECT_FALSE(buffer.Valid());
    EXPECT_EQ(message.bytes(), static_cast<int64_t>(64 * count));
    ReceivedMessage moved(std::move(message));
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(slices.alive(), static_cast<int>(count - i));
      moved.Release(i);
    }
    EXPECT_EQ(slices.alive(), 0);
    EXPECT_EQ(moved.bytes(), 0);
  }
}

TEST(ReceivedMessage, GivesAllBackAtItsEnd) {
  for (const size_t count : {1, 3}) {
    Slices slices(Text(64 * count), std::vector<size_t>(count, 64));
    grpc::ByteBuffer buffer = Received(slices);
    {
      const ReceivedMessage message(buffer);
      EXPECT_EQ(message.slices().size(), count);
    }
    EXPECT_EQ(slices.alive(), 0);
  }
}

TEST(TensorBytes, StayWhereTheyLieInOneSlice) {
  Slices slices(Text(kLarge + 3), {});
  {
    ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(slices, 3, kLarge));
    EXPECT_EQ(reinterpret_cast<const char*>(tensor.bytes().data()),
              slices.data() + 3);
    EXPECT_EQ(slices.alive(), 1) << "the slice is kept";
  }
  EXPECT_EQ(slices.alive(), 0);
}

TEST(TensorBytes, StayWhereTheyLieWhenMoved) {
  Slices slices(Text(kLarge), {});
  ASSERT_OK_AND_ASSIGN(TensorBytes first, Read(slices, 0, kLarge));
  const TensorBytes second = std::move(first);
  EXPECT_EQ(ToString(second), Text(kLarge));
}

TEST(TensorBytes, AreGatheredFromSeveralSlicesWhichAreLetGo) {
  Slices slices(Text(kLarge), {100, static_cast<size_t>(kLarge) / 2, 1});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(slices, 1, kLarge - 1));
  EXPECT_EQ(ToString(tensor), Text(kLarge).substr(1));
  EXPECT_EQ(slices.alive(), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes().data()) % 64, 0U);
}

TEST(TensorBytes, BeginWithinASliceAndEndInTheNext) {
  Slices slices(Text(kLarge), {static_cast<size_t>(kLarge) / 2});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor,
                       Read(slices, kLarge / 2 - 1, kLarge / 2));
  EXPECT_EQ(ToString(tensor), Text(kLarge).substr(kLarge / 2 - 1, kLarge / 2));
}

TEST(TensorBytes, SmallOnesDoNotKeepTheirSlice) {
  Slices slices(Text(kLeastBytesInPlace), {});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor,
                       Read(slices, 0, kLeastBytesInPlace - 1));
  EXPECT_EQ(slices.alive(), 0);
}

TEST(TensorBytes, DoNotKeepASliceOverFourTimesTheirSize) {
  Slices slices(Text(4 * kLarge + 4), {});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(slices, 0, kLarge));
  EXPECT_EQ(slices.alive(), 0);
  EXPECT_EQ(ToString(tensor), Text(kLarge));
}

constexpr int kHuge = 8 * kLeastBytesGatheredLater;
// A piece of every kind: large, small, and one that ends within a slice.
const std::vector<size_t> kPieces = {1000, kHuge / 2, 17, 5000, kHuge / 4};

TEST(TensorBytes, LargeOnesAreGatheredWhenItIsSaid) {
  Slices slices(Text(kHuge + 5), kPieces);
  ASSERT_OK_AND_ASSIGN(TensorBytes tensor, Read(slices, 2, kHuge));
  EXPECT_FALSE(tensor.gathered());
  EXPECT_EQ(slices.alive(), 4) << "the two that are small are let go";
  tensor.Gather();
  EXPECT_TRUE(tensor.gathered());
  EXPECT_EQ(slices.alive(), 0);
  EXPECT_EQ(ToString(tensor), Text(kHuge + 5).substr(2, kHuge));
}

TEST(TensorBytes, AreGatheredOnceMoved) {
  Slices slices(Text(kHuge), kPieces);
  ASSERT_OK_AND_ASSIGN(TensorBytes first, Read(slices, 0, kHuge));
  TensorBytes second = std::move(first);
  second.Gather();
  EXPECT_EQ(ToString(second), Text(kHuge));
}

TEST(TensorBytes, ThatNobodyGathersLetGoOfTheirSlices) {
  Slices slices(Text(kHuge), kPieces);
  { ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(slices, 0, kHuge)); }
  EXPECT_EQ(slices.alive(), 0);
}

TEST(TensorBytes, AreGatheredByAllWorkersTogether) {
  Slices large(Text(kHuge), kPieces);
  Slices larger(Text(size_t{3} * kHuge), std::vector<size_t>(40, 64 << 10));
  Slices small(Text(kLarge), {});
  ASSERT_OK_AND_ASSIGN(TensorBytes first, Read(large, 0, kHuge));
  ASSERT_OK_AND_ASSIGN(TensorBytes second, Read(larger, 0, 3 * kHuge));
  ASSERT_OK_AND_ASSIGN(TensorBytes third, Read(small, 0, kLarge));
  WorkerPool workers(3);
  GatherAll({&first, &second, &third}, &workers);
  EXPECT_EQ(ToString(first), Text(kHuge));
  EXPECT_EQ(ToString(second), Text(size_t{3} * kHuge));
  EXPECT_EQ(ToString(third), Text(kLarge));
  EXPECT_EQ(large.alive() + larger.alive(), 0);
}

TEST(TensorBytes, MayBeNone) {
  Slices slices(Text(5), {});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor, Read(slices, 5, 0));
  EXPECT_EQ(tensor.size(), 0);
}

TEST(TensorBytes, ThatAreCutAreRefused) {
  Slices slices(Text(5), {});
  EXPECT_THAT(Read(slices, 1, 5),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
}

}  // namespace
}  // namespace attention::server
