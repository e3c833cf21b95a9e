#include "core/cpu/scratch.h"

#include <cstddef>
#include <cstdint>

#include "gtest/gtest.h"

namespace attention::cpu {
namespace {

TEST(ScratchTest, CountsAsMuchAsItHandsOut) {
  Scratch count;
  EXPECT_EQ(count.Take<float>(3), nullptr);
  EXPECT_EQ(count.Take<double>(9), nullptr);
  std::byte* const memory = ThreadMemory(count.used());
  ASSERT_NE(memory, nullptr);
  Scratch scratch(memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<float>(3)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.Take<double>(9)) % 64, 0U);
  EXPECT_EQ(scratch.used(), count.used());
}

TEST(ScratchTest, SaysSoWhereMemoryCannotBeHad) {
  EXPECT_EQ(ThreadMemory(size_t{1} << 62), nullptr);
  EXPECT_NE(ThreadMemory(64), nullptr);
}

}  // namespace
}  // namespace attention::cpu
