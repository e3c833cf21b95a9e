#include "server/memory/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace attention::server {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kPlenty = 1024 * kMiB;

bool IsAligned(const std::byte* buffer) {
  return reinterpret_cast<uintptr_t>(buffer) % BufferPool::kAlignment == 0;
}

TEST(BufferPool, EveryBufferIsAlignedAndCanBeWritten) {
  BufferPool pool(kPlenty);
  for (const int64_t size :
       {int64_t{0}, int64_t{1}, int64_t{100}, BufferPool::kLeastPooled - 1,
        BufferPool::kLeastPooled, int64_t{100'000}, kMiB - 1, kMiB, kMiB + 1,
        7 * kMiB}) {
    std::byte* buffer = pool.Take(size);
    ASSERT_NE(buffer, nullptr) << size;
    EXPECT_TRUE(IsAligned(buffer)) << size;
    std::memset(buffer, 0xAB, static_cast<size_t>(size));
    pool.Return(buffer);
  }
}

TEST(BufferPool, GivesTheSameMemoryAgain) {
  BufferPool pool(kPlenty);
  std::byte* first = pool.Take(4 * kMiB);
  pool.Return(first);
  EXPECT_EQ(pool.kept(), 4 * kMiB);
  std::byte* second = pool.Take(4 * kMiB - 100'000);
  EXPECT_EQ(second, first) << "sizes of one class share it";
  EXPECT_EQ(pool.kept(), 0);
  pool.Return(second);
}

TEST(BufferPool, RoundsUpByAnEighthAtMost) {
  BufferPool pool(kPlenty);
  for (int64_t size = BufferPool::kLeastPooled; size < 3 * kMiB;
       size += 12'345) {
    pool.Return(pool.Take(size));
    EXPECT_GE(pool.kept(), size);
    EXPECT_LE(pool.kept(), size + size / 8);
  }
}

TEST(BufferPool, DoesNotKeepSmallBuffers) {
  BufferPool pool(kPlenty);
  pool.Return(pool.Take(BufferPool::kLeastPooled - 1));
  EXPECT_EQ(pool.kept(), 0);
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(3 * kMiB);
  std::vector<std::byte*> buffers;
  buffers.reserve(5);
  for (int i = 0; i < 5; ++i) buffers.push_back(pool.Take(kMiB));
  for (std::byte* buffer : buffers) pool.Return(buffer);
  EXPECT_EQ(pool.kept(), 3 * kMiB);
}

TEST(BufferPool, AMissGivesBackAtLeastWhatItTakes) {
  BufferPool pool(kPlenty);
  std::vector<std::byte*> buffers;
  buffers.reserve(8);
  for (int i = 0; i < 8; ++i) buffers.push_back(pool.Take(kMiB));
  for (std::byte* buffer : buffers) pool.Return(buffer);
  std::byte* large = pool.Take(4 * kMiB);
  EXPECT_EQ(pool.kept(), 4 * kMiB);
  pool.Return(large);
}

TEST(BufferPool, AMissGivesBackWhatWasAskedForLongestAgo) {
  BufferPool pool(kPlenty);
  std::byte* old = pool.Take(kMiB);
  std::byte* recent = pool.Take(2 * kMiB);
  pool.Return(recent);
  pool.Return(old);
  std::byte* missing = pool.Take(BufferPool::kLeastPooled);
  EXPECT_EQ(pool.kept(), 2 * kMiB);
  pool.Return(missing);
}

TEST(BufferPool, HasNothingForImpossibleSizes) {
  BufferPool pool(kPlenty);
  EXPECT_EQ(pool.Take(std::numeric_limits<int64_t>::max()), nullptr);
  EXPECT_EQ(pool.Take(int64_t{1} << 60), nullptr);
}

TEST(BufferPool, ThreadsDoNotGetEachOthersMemory) {
  BufferPool pool(4 * kMiB);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&pool, thread] {
      for (int i = 0; i < 200; ++i) {
        const int64_t size = BufferPool::kLeastPooled * (1 + (i + thread) % 3);
        std::byte* buffer = pool.Take(size);
        std::memset(buffer, thread, static_cast<size_t>(size));
        for (int64_t at = 0; at < size; at += 4096) {
          ASSERT_EQ(buffer[at], static_cast<std::byte>(thread));
        }
        pool.Return(buffer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

#ifdef __SANITIZE_ADDRESS__
TEST(BufferPoolDeathTest, AReturnedBufferMustNotBeRead) {
  BufferPool pool(kPlenty);
  std::byte* buffer = pool.Take(kMiB);
  pool.Return(buffer);
  EXPECT_DEATH({ *const_cast<volatile std::byte*>(buffer); }, "poison");
}
#endif

}  // namespace
}  // namespace attention::server
