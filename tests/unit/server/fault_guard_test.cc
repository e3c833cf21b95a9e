#include "server/memory/fault_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::SharedMemoryObject;

using ::attention::test::StatusIs;
using ::testing::HasSubstr;

constexpr size_t kPages = 8;

// Reads that the compiler neither drops nor moves.
std::byte Read(const std::byte* address) {
  return *static_cast<const volatile std::byte*>(address);
}
void Write(std::byte* address) {
  *static_cast<volatile std::byte*>(address) = std::byte{1};
}

class FaultGuardTest : public ::testing::Test {
 protected:
  std::byte* Page(size_t index) {
    return object_.bytes() + index * SharedMemoryObject::PageSize();
  }
  absl::StatusOr<FaultGuard> Guard() {
    return FaultGuard::Create(object_.bytes(),
                              kPages * SharedMemoryObject::PageSize());
  }

  SharedMemoryObject object_{kPages * SharedMemoryObject::PageSize()};
};

// By this name they run first, while the process has one thread.
using FaultGuardDeathTest = FaultGuardTest;

TEST_F(FaultGuardTest, MemoryThatIsThereStaysTheOwners) {
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  Write(Page(3));
  EXPECT_EQ(Read(Page(3)), std::byte{1});
  EXPECT_FALSE(guard.faulted());
}

TEST_F(FaultGuardTest, ReadingWhatIsGoneGivesZeros) {
  Write(Page(5));
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  object_.Truncate(SharedMemoryObject::PageSize());
  EXPECT_EQ(Read(Page(5)), std::byte{0});
  EXPECT_TRUE(guard.faulted());
}

TEST_F(FaultGuardTest, WritingToWhatIsGoneGoesOn) {
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  object_.Truncate(0);
  for (size_t page = 0; page < kPages; ++page) Write(Page(page));
  EXPECT_TRUE(guard.faulted());
}

TEST_F(FaultGuardTest, ThreadsThatFaultTogetherAllGoOn) {
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  object_.Truncate(0);
  constexpr int kThreads = 4;
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      together.arrive_and_wait();
      for (size_t page = 0; page < kPages; ++page) Read(Page(page));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(guard.faulted());
}

TEST_F(FaultGuardTest, OneGuardsFaultIsNotTheNextOnes) {
  {
    ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
    object_.Truncate(0);
    Read(Page(0));
    EXPECT_TRUE(guard.faulted());
  }
  ASSERT_OK_AND_ASSIGN(const FaultGuard next, Guard());
  EXPECT_FALSE(next.faulted());
}

TEST_F(FaultGuardTest, AMovedGuardStillGuards) {
  ASSERT_OK_AND_ASSIGN(FaultGuard guard, Guard());
  const FaultGuard moved(std::move(guard));
  object_.Truncate(0);
  Read(Page(0));
  EXPECT_TRUE(moved.faulted());
}

TEST_F(FaultGuardDeathTest, AFaultAtAnotherAddressEndsTheProcess) {
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  SharedMemoryObject unguarded(SharedMemoryObject::PageSize());
  unguarded.Truncate(0);
  EXPECT_DEATH(Read(unguarded.bytes()), "");
}

TEST_F(FaultGuardDeathTest, AFaultAfterTheGuardIsGoneEndsTheProcess) {
  { ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard()); }
  object_.Truncate(0);
  EXPECT_DEATH(Read(Page(0)), "");
}

TEST_F(FaultGuardDeathTest, ABusErrorThatSomebodySendsEndsTheProcess) {
  ASSERT_OK_AND_ASSIGN(const FaultGuard guard, Guard());
  EXPECT_DEATH(raise(SIGBUS), "");
}

TEST_F(FaultGuardTest, ThereAreOnlySoMany) {
  std::vector<FaultGuard> guards;
  absl::StatusOr<FaultGuard> guard = Guard();
  while (guard.ok()) {
    guards.push_back(*std::move(guard));
    ASSERT_LE(guards.size(), size_t{FaultGuard::kMostGuards});
    guard = FaultGuard::Create(Page(0), SharedMemoryObject::PageSize());
  }
  EXPECT_THAT(
      guard, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4096")));
}

}  // namespace
}  // namespace attention::server
