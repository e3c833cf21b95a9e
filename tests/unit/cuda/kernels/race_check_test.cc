// What the emulation says of kernels that a device would not run as they are
// meant.

#include <array>
#include <cstdint>
#include <functional>

#include "core/cuda/portable/portable.h"
#include "gtest/gtest.h"

namespace attention::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int64_t kChunk = 16;  // bytes of a copy

// On one block of two warps with a number and 16 bytes for each thread.
void RunBlock(const std::function<void()>& kernel) {
  emulation::RunGrid(1, kThreads, kThreads * (kChunk + 4), kernel);
}

int* Numbers() {
  return reinterpret_cast<int*>(SharedMemory() + kThreads * kChunk);
}
std::byte* Chunk(int thread) { return SharedMemory() + thread * kChunk; }

alignas(16) constexpr std::array<uint8_t, 16> kFrom = {1, 2, 3, 4};

using RaceCheckDeathTest = ::testing::Test;

TEST(RaceCheckTest, ReadsAfterTheBlockHasMetAreNoRace) {
  int sum = 0;
  RunBlock([&sum] {
    Numbers()[ThreadIndex()] = 1;
    SyncBlock();
    if (ThreadIndex() == 0) {
      for (int t = 0; t < kThreads; ++t) sum += Numbers()[t];
    }
  });
  EXPECT_EQ(sum, kThreads);
}

TEST(RaceCheckTest, TheNextBlockMayWriteWhereTheLastOneRead) {
  emulation::RunGrid(2, kThreads, 4, [] {
    auto* const number = reinterpret_cast<int*>(SharedMemory());
    if (ThreadIndex() == BlockIndex()) *number = 1;
  });
}

TEST(RaceCheckTest, CopiesAreThereOnceWaitedForAndMet) {
  std::array<int, 4> got = {};
  RunBlock([&got] {
    CopyAsync<16>(Chunk(ThreadIndex()), kFrom.data(), true);
    CommitCopies();
    WaitForCopies<0>();
    SyncBlock();
    if (ThreadIndex() < 4) {
      got[ThreadIndex()] = static_cast<int>(Chunk(63)[ThreadIndex()]);
    }
  });
  EXPECT_EQ(got, (std::array<int, 4>{1, 2, 3, 4}));
}

TEST(RaceCheckTest, TheNewestCopiesMayStillBeUnderWay) {
  int got = 0;
  RunBlock([&got] {
    if (ThreadIndex() != 0) return;
    CopyAsync<16>(Chunk(0), kFrom.data(), true);
    CommitCopies();
    CopyAsync<16>(Chunk(1), kFrom.data(), true);
    CommitCopies();
    WaitForCopies<1>();
    got = static_cast<int>(Chunk(0)[1]);
    WaitForCopies<0>();
  });
  EXPECT_EQ(got, 2);
}

TEST(RaceCheckDeathTest, AReadOfWhatAnotherThreadHasJustWritten) {
  EXPECT_DEATH(RunBlock([] {
                 Numbers()[ThreadIndex()] = 1;
                 Numbers()[ThreadIndex()] += Numbers()[ThreadIndex() / 2];
               }),
               "a race: thread 1 reads .* thread 0 wrote");
}

TEST(RaceCheckDeathTest, AWriteOverWhatAnotherThreadHasJustRead) {
  EXPECT_DEATH(RunBlock([] {
                 Numbers()[ThreadIndex()] = 1;
                 SyncBlock();
                 if (ThreadIndex() == 7 && Numbers()[9] != 1) return;
                 if (ThreadIndex() == 9) Numbers()[9] = 2;
               }),
               "a race: thread 9 writes .* thread 7 read");
}

TEST(RaceCheckDeathTest, AShuffleIsNoBarrier) {
  EXPECT_DEATH(RunBlock([] {
                 if (ThreadIndex() == 0) Numbers()[0] = 1;
                 ShuffleXor(1.0F, 1);
                 if (ThreadIndex() == 1) Numbers()[1] = Numbers()[0];
               }),
               "a race: thread 1 reads .* thread 0 wrote");
}

TEST(RaceCheckDeathTest, AReadOfACopyThatIsNotWaitedFor) {
  EXPECT_DEATH(RunBlock([] {
                 CopyAsync<16>(Chunk(ThreadIndex()), kFrom.data(), true);
                 CommitCopies();
                 WaitForCopies<1>();
                 Numbers()[ThreadIndex()] =
                     static_cast<int>(*Chunk(ThreadIndex()));
               }),
               "a race: thread 0 reads .* thread 0 has copied to");
}

TEST(RaceCheckDeathTest, AReadOfAnotherThreadsCopyBeforeTheBlockHasMet) {
  EXPECT_DEATH(RunBlock([] {
                 CopyAsync<16>(Chunk(ThreadIndex()), kFrom.data(), true);
                 CommitCopies();
                 WaitForCopies<0>();
                 uint32_t parts[4];
                 LoadMatrices(parts, PlaceOf(Chunk(ThreadIndex())));
               }),
               "a race: thread .* reads .* wrote");
}

TEST(RaceCheckDeathTest, ACopyThatIsNeverWaitedFor) {
  EXPECT_DEATH(RunBlock([] { CopyAsync<16>(Chunk(0), kFrom.data(), false); }),
               "a thread leaves its copies");
}

TEST(RaceCheckDeathTest, ACopyThatIsNotAligned) {
  EXPECT_DEATH(
      RunBlock([] { CopyAsync<16>(Chunk(0) + 8, kFrom.data(), true); }),
      "not aligned");
}

TEST(RaceCheckDeathTest, AShuffleWithALaneThatHasEnded) {
  EXPECT_DEATH(RunBlock([] {
                 if (ThreadIndex() != 40) ShuffleXor(1.0F, 1);
               }),
               "lane");
}

}  // namespace
}  // namespace attention::cuda
