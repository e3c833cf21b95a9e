#include "core/cuda/paged_keys.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"

namespace attention::cuda {
namespace {

using test::MakeProblem;
using test::OwnedProblem;
using test::TestSeed;

class PagedKeysTest : public ::testing::Test {
 protected:
  // Heads of a block lie apart by those of all blocks.
  void Make(int64_t keys, int64_t keys_per_block, int64_t batch = 1,
            int64_t heads = 1) {
    owned_ = MakeProblem({.batch = batch,
                          .query_heads = heads,
                          .kv_heads = heads,
                          .key_length = keys,
                          .keys_per_block = keys_per_block},
                         TestSeed());
  }

  // The problem, its keys and values on the device.
  ValidatedProblem OnDevice() {
    for (KeyValueBlock& block : owned_.problem.key_value) {
      block.key.space = block.value.space = MemorySpace::kCudaDevice;
    }
    return Valid();
  }
  ValidatedProblem Valid() const { return Validate(owned_.problem).value(); }

  OwnedProblem owned_;
};

TEST_F(PagedKeysTest, BlocksOfOneLengthAndAShorterLastOne) {
  Make(40, 16);
  const std::optional<PagedKeys> pages = PagedKeysOf(Valid());
  ASSERT_TRUE(pages);
  EXPECT_EQ(pages->page_keys, 16);
  EXPECT_FALSE(pages->on_device);
}

TEST_F(PagedKeysTest, NotOneBlock) {
  Make(40, 0);
  EXPECT_FALSE(PagedKeysOf(Valid()));
}

TEST_F(PagedKeysTest, NotOfABatch) {
  Make(40, 16, 2);
  EXPECT_FALSE(PagedKeysOf(Valid()));
}

TEST_F(PagedKeysTest, NotBlocksOfOtherLengths) {
  Make(40, 16);
  std::swap(owned_.problem.key_value[1], owned_.problem.key_value[2]);
  EXPECT_FALSE(PagedKeysOf(Valid()));  // 16, 8, 16
  std::swap(owned_.problem.key_value[0], owned_.problem.key_value[1]);
  EXPECT_FALSE(PagedKeysOf(Valid()));  // 8, 16, 16
}

TEST_F(PagedKeysTest, InTheDevicesMemoryAsKernelsReadThem) {
  Make(48, 16);
  const std::optional<PagedKeys> pages = PagedKeysOf(OnDevice());
  ASSERT_TRUE(pages);
  EXPECT_TRUE(pages->on_device);
}

TEST_F(PagedKeysTest, InTheDevicesMemoryNotOfHeadsThatLieApart) {
  Make(40, 16, 1, 2);
  EXPECT_FALSE(PagedKeysOf(OnDevice()));
}

TEST_F(PagedKeysTest, NotInBothMemories) {
  Make(48, 16);
  OnDevice();
  owned_.problem.key_value[1].value.space = MemorySpace::kHost;
  EXPECT_FALSE(PagedKeysOf(Valid()));
}

TEST_F(PagedKeysTest, APageThatComesAgainHasOnePlace) {
  Make(48, 16);
  const ValidatedProblem problem = Valid();
  PageUploads uploads;
  const auto first = uploads.Add(problem.key_value[0], 16);
  const int64_t bytes = uploads.bytes();
  const auto other = uploads.Add(problem.key_value[1], 16);
  EXPECT_EQ(uploads.bytes(), 2 * bytes);
  EXPECT_NE(other.key, first.key);
  const auto again = uploads.Add(problem.key_value[0], 16);
  EXPECT_EQ(again.key, first.key);
  EXPECT_EQ(again.value, first.value);
  EXPECT_EQ(uploads.bytes(), 2 * bytes);
}

}  // namespace
}  // namespace attention::cuda
