#include "core/cuda/memory_pool.h"

#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "core/cuda/emulation/emulated_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace attention::cuda {
namespace {

using ::attention::test::IsOk;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryPoolTest : public ::testing::Test {
 protected:
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::shared_ptr<Device> device_ =
      MakeEmulatedDevice(EmulatedProperties(), faults_);
  std::stop_source stop_;
};

TEST_F(MemoryPoolTest, KeepsWhatAJobGivesBackForTheNext) {
  MemoryPool pool(device_, 100 * kMiB);
  std::byte* first = nullptr;
  {
    ASSERT_OK_AND_ASSIGN(const auto block, pool.Take(kMiB, stop_.get_token()));
    first = block.data();
  }
  EXPECT_EQ(pool.bytes_held(), kMiB);
  ASSERT_OK_AND_ASSIGN(const auto block,
                       pool.Take(kMiB - 5, stop_.get_token()));
  EXPECT_EQ(block.data(), first);
  EXPECT_EQ(faults_->allocated, kMiB);
}

TEST_F(MemoryPoolTest, ABlockThatIsFarTooLargeIsNotTaken) {
  MemoryPool pool(device_, 100 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto block, pool.Take(50 * kMiB, stop_.get_token())); }
  ASSERT_OK_AND_ASSIGN(const auto block, pool.Take(kMiB, stop_.get_token()));
  EXPECT_EQ(block.bytes(), kMiB);
  EXPECT_EQ(pool.bytes_held(), 51 * kMiB);
}

TEST_F(MemoryPoolTest, WhatIsKeptMakesRoomForWhatIsNeeded) {
  MemoryPool pool(device_, 100 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto block, pool.Take(30 * kMiB, stop_.get_token())); }
  ASSERT_OK_AND_ASSIGN(const auto block,
                       pool.Take(90 * kMiB, stop_.get_token()));
  EXPECT_EQ(pool.bytes_held(), 90 * kMiB);
}

TEST_F(MemoryPoolTest, MoreThanTheLimitIsRefusedWithBothNumbers) {
  MemoryPool pool(device_, 10 * kMiB);
  const absl::Status status =
      pool.Take(10 * kMiB + 1, stop_.get_token()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      static_cast<std::string>(status.message()),
      AllOf(HasSubstr("needs 10485761 bytes"), HasSubstr("limit of 10485760"),
            HasSubstr("--cuda-memory-limit")));
}

TEST_F(MemoryPoolTest, ALimitThatIsNoWholeNumberOfGranulesCanBeTaken) {
  MemoryPool pool(device_, kMiB + 100);
  EXPECT_THAT(pool.Take(kMiB + 100, stop_.get_token()).status(), IsOk());
}

TEST_F(MemoryPoolTest, ADeviceThatIsFullIsTold) {
  faults_->memory = 5 * kMiB;
  MemoryPool pool(device_, 10 * kMiB);
  const absl::Status status = pool.Take(8 * kMiB, stop_.get_token()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(static_cast<std::string>(status.message()),
              HasSubstr("the device has no more"));
}

TEST_F(MemoryPoolTest, WhatIsKeptIsGivenBackToADeviceThatIsFull) {
  faults_->memory = 9 * kMiB;
  MemoryPool pool(device_, 20 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto block, pool.Take(3 * kMiB, stop_.get_token())); }
  EXPECT_THAT(pool.Take(8 * kMiB, stop_.get_token()).status(), IsOk());
}

TEST_F(MemoryPoolTest, TheDefaultIsAShareOfWhatIsFree) {
  faults_->memory = 100 * kMiB;
  MemoryPool pool(device_, std::nullopt);
  EXPECT_EQ(pool.limit(), std::nullopt);
  EXPECT_THAT(pool.Take(80 * kMiB, stop_.get_token()).status(), IsOk());
  EXPECT_EQ(pool.Take(81 * kMiB, stop_.get_token()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.limit(), 80 * kMiB);
}

TEST_F(MemoryPoolTest, AJobWaitsForTheMemoryOfAnother) {
  MemoryPool pool(device_, 10 * kMiB);
  auto first = pool.Take(8 * kMiB, stop_.get_token());
  ASSERT_THAT(first.status(), IsOk());
  std::latch begun(1);
  absl::Status second;
  std::thread waiting([&] {
    begun.count_down();
    second = pool.Take(8 * kMiB, stop_.get_token()).status();
  });
  begun.wait();
  { const MemoryPool::Block gone = *std::move(first); }
  waiting.join();
  EXPECT_THAT(second, IsOk());
}

TEST_F(MemoryPoolTest, AJobThatWaitsCanBeStopped) {
  MemoryPool pool(device_, 10 * kMiB);
  const auto first = pool.Take(8 * kMiB, std::stop_token());
  ASSERT_THAT(first.status(), IsOk());
  absl::Status second;
  std::thread waiting(
      [&] { second = pool.Take(8 * kMiB, stop_.get_token()).status(); });
  stop_.request_stop();
  waiting.join();
  EXPECT_EQ(second.code(), absl::StatusCode::kCancelled);
}

// As where it has computed for too long.
TEST_F(MemoryPoolTest, AJobThatWaitsIsLookedAt) {
  MemoryPool pool(device_, 10 * kMiB);
  ASSERT_OK_AND_ASSIGN(const auto first, pool.Take(8 * kMiB, {}));
  const auto look = [&] { stop_.request_stop(); };
  EXPECT_EQ(pool.Take(8 * kMiB, stop_.get_token(), look).status().code(),
            absl::StatusCode::kCancelled);
}

// A kernel that hangs holds it up for ever.
TEST_F(MemoryPoolTest, BlocksAreGivenBackWhileTheDeviceFreesOthers) {
  std::counting_semaphore<> frees(0);
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  auto lent = pool.Take(kMiB, stop_.get_token());
  ASSERT_THAT(lent.status(), IsOk());
  { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(8 * kMiB, stop_.get_token())); }
  faults_->before_free = [&] {
    frees.release();
    ended.wait();
  };
  auto taken = std::async(std::launch::async, [&] {
    return pool.Take(9 * kMiB, stop_.get_token()).status();
  });
  frees.acquire();
  auto given_back = std::async(std::launch::async, [&] {
    const MemoryPool::Block gone = *std::move(lent);
  });
  EXPECT_EQ(given_back.wait_for(std::chrono::seconds(10)),
            std::future_status::ready);
  ended.count_down();
  EXPECT_THAT(taken.get(), IsOk());
}

// Nobody else asks whether it has computed for too long.
TEST_F(MemoryPoolTest, AJobThatWaitsForTheDeviceToFreeIsLookedAt) {
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(8 * kMiB, {})); }
  faults_->before_free = [&] { ended.wait(); };
  const auto look = [&] { stop_.request_stop(); };
  EXPECT_EQ(pool.Take(9 * kMiB, stop_.get_token(), look).status().code(),
            absl::StatusCode::kCancelled);
  ended.count_down();
  EXPECT_THAT(pool.Take(9 * kMiB, {}).status(), IsOk());
}

TEST_F(MemoryPoolTest, AJobThatWaitsForTheDeviceToAllocateIsLookedAt) {
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  std::optional<MemoryPool::Block> lent = pool.Take(kMiB, {}).value();
  faults_->before_allocate = [&] { ended.wait(); };
  // Another one's memory comes back meanwhile.
  const auto look = [&] {
    lent.reset();
    stop_.request_stop();
  };
  EXPECT_EQ(pool.Take(9 * kMiB, stop_.get_token(), look).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_FALSE(lent);
  ended.count_down();
}

TEST_F(MemoryPoolTest, WhatTheDeviceAllocatesTooLateIsKeptForTheNext) {
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  faults_->before_allocate = [&] { ended.wait(); };
  const auto look = [&] { stop_.request_stop(); };
  EXPECT_FALSE(pool.MakeRoom(9 * kMiB, stop_.get_token(), look));
  ended.count_down();
  // It counts as lent until it is there.
  ASSERT_OK_AND_ASSIGN(const auto block, pool.Take(9 * kMiB, {}));
  EXPECT_EQ(faults_->allocated, 9 * kMiB);
  EXPECT_EQ(pool.bytes_held(), 9 * kMiB);
}

// What hangs there is never done.
TEST_F(MemoryPoolTest, ALostDeviceIsNotWaitedForInTheEnd) {
  const auto ended = std::make_shared<std::latch>(1);
  {
    MemoryPool pool(device_, 10 * kMiB);
    { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(8 * kMiB, {})); }
    faults_->before_free = [ended] { ended->wait(); };
    const auto look = [&] { stop_.request_stop(); };
    EXPECT_FALSE(pool.MakeRoom(9 * kMiB, stop_.get_token(), look));
    ASSERT_OK_AND_ASSIGN(const auto stream, device_->NewStream());
    faults_->launches_left = 0;
    EXPECT_FALSE(stream->Launched("attend", 0).ok());
  }
  ended->count_down();
}

// The device has it until it is free: another one would find it full.
TEST_F(MemoryPoolTest, AJobWaitsForMemoryThatIsBeingFreed) {
  std::counting_semaphore<> frees(0);
  std::latch ended(1);
  faults_->memory = 10 * kMiB;
  MemoryPool pool(device_, 10 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(9 * kMiB, stop_.get_token())); }
  faults_->before_free = [&] {
    frees.release();
    ended.wait();
  };
  auto first = std::async(std::launch::async,
                          [&] { return pool.Take(3 * kMiB, {}).status(); });
  frees.acquire();
  auto second = std::async(std::launch::async,
                           [&] { return pool.Take(3 * kMiB, {}).status(); });
  stop_.request_stop();
  EXPECT_EQ(pool.Take(3 * kMiB, stop_.get_token()).status().code(),
            absl::StatusCode::kCancelled);
  ended.count_down();
  EXPECT_THAT(first.get(), IsOk());
  EXPECT_THAT(second.get(), IsOk());
}

TEST_F(MemoryPoolTest, AJobTakesWhatComesBackWhileTheDeviceFreesOthers) {
  std::counting_semaphore<> frees(0);
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  std::optional<MemoryPool::Block> lent = pool.Take(3 * kMiB, {}).value();
  { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(6 * kMiB, {})); }
  faults_->before_free = [&] {
    frees.release();
    ended.wait();
  };
  auto first = std::async(std::launch::async,
                          [&] { return pool.Take(2 * kMiB, {}).status(); });
  frees.acquire();
  int looks = 0;
  const auto look = [&] {
    lent.reset();
    if (++looks == 10) stop_.request_stop();
  };
  EXPECT_THAT(pool.Take(3 * kMiB, stop_.get_token(), look).status(), IsOk());
  ended.count_down();
  EXPECT_THAT(first.get(), IsOk());
}

TEST_F(MemoryPoolTest, AJobThatWaitsForOthersToMakeRoomCanBeStopped) {
  std::counting_semaphore<> frees(0);
  std::latch ended(1);
  MemoryPool pool(device_, 10 * kMiB);
  { ASSERT_OK_AND_ASSIGN(auto kept, pool.Take(9 * kMiB, {})); }
  faults_->before_free = [&] {
    frees.release();
    ended.wait();
  };
  auto first = std::async(std::launch::async,
                          [&] { return pool.MakeRoom(3 * kMiB, {}, {}); });
  frees.acquire();
  const auto look = [&] { stop_.request_stop(); };
  EXPECT_FALSE(pool.MakeRoom(3 * kMiB, stop_.get_token(), look));
  EXPECT_TRUE(stop_.stop_requested());
  ended.count_down();
  EXPECT_TRUE(first.get());
}

TEST_F(MemoryPoolTest, EverythingGoesBackToTheDeviceInTheEnd) {
  {
    MemoryPool pool(device_, 100 * kMiB);
    ASSERT_OK_AND_ASSIGN(auto a, pool.Take(3 * kMiB, stop_.get_token()));
    ASSERT_OK_AND_ASSIGN(auto b, pool.Take(5 * kMiB, stop_.get_token()));
  }
  EXPECT_EQ(faults_->allocated, 0);
}

}  // namespace
}  // namespace attention::cuda
