#include "server/memory/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"

namespace attention::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A machine of 1000 MiB whose control groups are in a folder of their own.
class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest() {
    sources_.groups.mount = folder_.path() + "/cgroup";
    sources_.groups.own = folder_.path() + "/own";
    sources_.physical = 1000 * kMiB;
  }

  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  int64_t Bound() const { return SmallestBound(sources_).bytes; }

  MemorySources sources_;
  const test::TemporaryFolder folder_;
};

TEST_F(MemoryLimitTest, IsTheMachinesWhereNothingElseIsSaid) {
  const MemoryBound bound = SmallestBound(sources_);
  EXPECT_EQ(bound.bytes, 1000 * kMiB);
  EXPECT_EQ(bound.of, "the machine's memory");
}

TEST_F(MemoryLimitTest, IsTheAddressSpacesWhereThatIsLess) {
  sources_.address_space = 900 * kMiB;
  EXPECT_EQ(Bound(), 900 * kMiB);
}

TEST_F(MemoryLimitTest, IsTheGroupsOfVersion2) {
  Write("own", "0::/system.slice/attention.service");
  Write("cgroup/system.slice/attention.service/memory.max", "536870912");
  Write("cgroup/system.slice/memory.max", "max");
  const MemoryBound bound = SmallestBound(sources_);
  EXPECT_EQ(bound.bytes, 512 * kMiB);
  EXPECT_EQ(bound.of, "the control group's memory");
}

TEST_F(MemoryLimitTest, IsThatOfAGroupAboveWhereThatIsLess) {
  Write("own", "0::/a/b/c");
  Write("cgroup/a/b/c/memory.max", "536870912");
  Write("cgroup/a/memory.max", "268435456");
  EXPECT_EQ(Bound(), 256 * kMiB);
}

TEST_F(MemoryLimitTest, IsThatOfAContainersRoot) {
  Write("own", "0::/");
  Write("cgroup/memory.max", "268435456");
  EXPECT_EQ(Bound(), 256 * kMiB);
}

TEST_F(MemoryLimitTest, IsTheGroupsOfVersion1AmongOthers) {
  Write("own",
        "12:pids:/other\n"
        "7:cpu,memory:/docker/0123\n"
        "0::/init.scope");
  Write("cgroup/memory/docker/0123/memory.limit_in_bytes", "268435456");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(Bound(), 256 * kMiB);
}

// What a container of version 1 sees: its group's name outside, and its group
// where the root would be.
TEST_F(MemoryLimitTest, IsThatOfTheRootWhereTheGroupIsNotThere) {
  Write("own", "7:memory:/docker/0123");
  Write("cgroup/memory/memory.limit_in_bytes", "268435456");
  EXPECT_EQ(Bound(), 256 * kMiB);
}

TEST_F(MemoryLimitTest, IgnoresWhatIsNoNumberAndNoGroup) {
  Write("own", "0::/a\nnonsense\n7:memory:/../b\n\n");
  Write("cgroup/a/memory.max", "plenty");
  EXPECT_EQ(Bound(), 1000 * kMiB);
}

TEST_F(MemoryLimitTest, IsBelowTheMachinesByDefault) {
  EXPECT_EQ(DefaultMemoryLimit({1000 * kMiB, ""}), 800 * kMiB);
}

TEST(MemorySourcesTest, OfThisProcessHaveTheMachinesMemory) {
  const MemorySources sources = MemorySources::OfProcess(/*threads=*/20);
  EXPECT_GT(sources.physical, 64 * kMiB);
  EXPECT_LT(sources.physical, MemorySources::kUnlimited);
}

}  // namespace
}  // namespace attention::server
