#include "core/cpu/scratch.h"

#include <cstddef>
#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace attention::cpu {
namespace {

TEST(ScratchTest, CountsAsMuchAsItHandsOut) {
  Scratch count;
  EXPECT_EQ(count.Take<float>(3), nullptr);
  EXPECT_EQ(count.Take<double>(9), nullptr);
  const ThreadMemory memory(count.used());
  ASSERT_NE(memory.get(), nullptr);
  Scratch scratch(memory.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<float>(3)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<double>(9)) % 64, 0U);
  EXPECT_EQ(scratch.used(), count.used());
}

TEST(ScratchTest, SaysSoWhereMemoryCannotBeHad) {
  EXPECT_EQ(ThreadMemory(size_t{1} << 62).get(), nullptr);
  EXPECT_NE(ThreadMemory(64).get(), nullptr);
}

TEST(ScratchTest, WorkThatATileGivesWayToHasMemoryOfItsOwn) {
  const ThreadMemory outer(64);
  const std::byte* first = nullptr;
  {
    const ThreadMemory inner(64);
    first = inner.get();
    ASSERT_NE(first, nullptr);
    EXPECT_NE(first, outer.get());
  }
  EXPECT_EQ(ThreadMemory(64).get(), first);  // kept
}

TEST(ScratchTest, WorkWithinWorkWithinWorkToo) {
  const ThreadMemory first(64);
  const ThreadMemory second(64);
  const ThreadMemory third(64);
  const ThreadMemory fourth(64);
  EXPECT_EQ(
      (std::set{first.get(), second.get(), third.get(), fourth.get()}).size(),
      4);
  EXPECT_NE(fourth.get(), nullptr);
  EXPECT_NE(third.get(), nullptr);
}

}  // namespace
}  // namespace attention::cpu
