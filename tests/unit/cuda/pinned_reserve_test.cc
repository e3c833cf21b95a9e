#include "core/pinned_reserve.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/mapped_page.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

class PinnedReserveTest : public CudaBackendTest {
 protected:
  void StartWith(int64_t bytes) { Start({.pinned_bytes = bytes}); }
  std::shared_ptr<std::byte> Take(int64_t bytes) {
    return engine_->pinned().Take(bytes);
  }
};

TEST_F(PinnedReserveTest, IsPinnedOnce) {
  StartWith(4 * kMiB);
  EXPECT_EQ(faults_[0]->pinned, 1);
  EXPECT_GE(engine_->pinned().size(), 4 * kMiB);
  const auto first = Take(kMiB);
  const auto second = Take(kMiB);
  EXPECT_EQ(faults_[0]->pinned, 1);
}

TEST_F(PinnedReserveTest, BlocksAreApartAndAligned) {
  StartWith(4 * kMiB);
  std::vector<std::shared_ptr<std::byte>> blocks;
  for (const int64_t bytes : {kMiB + 1, int64_t{1}, kMiB - 7}) {
    blocks.push_back(Take(bytes));
    ASSERT_NE(blocks.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().get()) % 64, 0U);
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()),
                static_cast<size_t>(bytes));
  }
  EXPECT_EQ(std::to_integer<int>(blocks[0].get()[kMiB]), 1);
  EXPECT_EQ(std::to_integer<int>(*blocks[1]), 2);
  EXPECT_EQ(std::to_integer<int>(blocks[2].get()[kMiB - 8]), 3);
}

TEST_F(PinnedReserveTest, WhatHasNoRoomIsNull) {
  StartWith(4 * kMiB);
  EXPECT_EQ(Take(4 * kMiB), nullptr) << "its own records take some";
  EXPECT_EQ(Take(int64_t{1} << 62), nullptr);
  const auto most = Take(3 * kMiB);
  EXPECT_NE(most, nullptr);
  EXPECT_EQ(Take(kMiB), nullptr);
}

TEST_F(PinnedReserveTest, FreedBlocksBecomeOneAgain) {
  StartWith(4 * kMiB);
  std::vector<std::shared_ptr<std::byte>> blocks;
  while (auto block = Take(kMiB / 2)) blocks.push_back(std::move(block));
  ASSERT_EQ(blocks.size(), 7U);
  for (const size_t n : {3U, 1U, 2U, 5U, 0U, 6U, 4U}) blocks[n] = nullptr;
  EXPECT_NE(Take(3 * kMiB), nullptr);
}

TEST_F(PinnedReserveTest, ABlockFitsWhereOneOfItsSizeWas) {
  StartWith(4 * kMiB);
  std::vector<std::shared_ptr<std::byte>> blocks;
  while (auto block = Take(kMiB / 2)) blocks.push_back(std::move(block));
  ASSERT_GT(blocks.size(), 4U);
  const std::byte* const place = blocks[3].get();
  blocks[3] = nullptr;
  EXPECT_EQ(Take(kMiB / 2).get(), place);
}

TEST_F(PinnedReserveTest, SeveralThreadsTakeAndGiveBack) {
  StartWith(4 * kMiB);
  engine_->workers().ParallelFor(64, {}, [this](int64_t n) {
    const auto block = Take(kMiB / 8 + n);
    if (block != nullptr) *block = std::byte{1};
  });
  EXPECT_NE(Take(3 * kMiB), nullptr);
}

TEST_F(PinnedReserveTest, IsEmptyWithoutADevice) {
  EXPECT_EQ(PinnedReserve().Take(1), nullptr);
  Start({.pinned_bytes = 4 * kMiB, .backend = "cpu"});
  EXPECT_EQ(engine_->pinned().size(), 0);
  EXPECT_EQ(Take(1), nullptr);
}

// The page that a block begins in.
void* PageOf(const std::shared_ptr<std::byte>& block) {
  return block.get() - reinterpret_cast<uintptr_t>(block.get()) % 4096;
}

TEST_F(PinnedReserveTest, GoesWithItsLastBlock) {
  StartWith(4 * kMiB);
  auto block = Take(kMiB);
  void* const page = PageOf(block);
  engine_ = nullptr;
  EXPECT_EQ(faults_[0]->pinned, 1);
  *block = std::byte{1};
  block = nullptr;
  EXPECT_EQ(faults_[0]->pinned, 0);
  EXPECT_FALSE(IsMapped(page));
}

// The driver would take what is mapped there next for the reserve.
TEST_F(PinnedReserveTest, StaysMappedWhereItsDeviceIsLost) {
  StartWith(4 * kMiB);
  auto block = Take(kMiB);
  void* const page = PageOf(block);
  faults_[0]->launches_left = 0;
  ASSERT_FALSE(RunProblem().ok());
  engine_ = nullptr;
  block = nullptr;
  EXPECT_TRUE(IsMapped(page));
}

}  // namespace
}  // namespace attention::test
