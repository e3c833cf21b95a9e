#include "server/wire/tensor_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::_;

constexpr int kLarge = 4 * kLeastBytesInPlace;

std::string Text(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) {
    text[i] = static_cast<char>(i * 7 + i / 256);
  }
  return text;
}

std::string ToString(const TensorBytes& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes().data()),
          tensor.bytes().size()};
}

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
  int alive_ = 0;
  std::vector<grpc::Slice> slices_;
};

// Skips `before` bytes of the slices and reads `size`.
absl::StatusOr<TensorBytes> Read(Slices& slices, int before, int size,
                                 TensorPlace place = TensorPlace::kAnywhere) {
  SliceInputStream stream(slices.Take());
  google::protobuf::io::CodedInputStream in(&stream);
  in.PushLimit(static_cast<int>(stream.TotalBytes()));
  EXPECT_TRUE(in.Skip(before));
  absl::StatusOr<TensorBytes> read = ReadTensorBytes(stream, in, size, place);
  return read;
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

TEST(TensorBytes, AreCopiedWhereABufferIsAskedFor) {
  Slices slices(Text(kLarge), {});
  ASSERT_OK_AND_ASSIGN(const TensorBytes tensor,
                       Read(slices, 0, kLarge, TensorPlace::kBuffer));
  EXPECT_EQ(slices.alive(), 0);
  EXPECT_EQ(ToString(tensor), Text(kLarge));
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
