#include "core/control_groups.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/worker_pool.h"
#include "tests/support/temporary_folder.h"

namespace attention {
namespace {

// A process that may run on 64 processors, with control groups of its own.
class ProcessorsTest : public ::testing::Test {
 protected:
  ProcessorsTest() {
    groups_.mount = folder_.path() + "/cgroup";
    groups_.own = folder_.path() + "/own";
  }

  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  int Processors() const { return ProcessorsWithin(groups_, 64); }

  ControlGroups groups_;
  const test::TemporaryFolder folder_;
};

TEST_F(ProcessorsTest, AreAllThatAreAllowedWithoutGroups) {
  EXPECT_EQ(Processors(), 64);
}

// docker run --cpus 2, as the container sees it.
TEST_F(ProcessorsTest, FollowTheQuotaOfVersion2) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(Processors(), 2);
}

TEST_F(ProcessorsTest, FollowTheQuotaOfVersion1) {
  Write("own", "12:pids:/other\n4:cpu,cpuacct:/docker/0123\n0::/init.scope");
  Write("cgroup/cpu/docker/0123/cpu.cfs_quota_us", "300000");
  Write("cgroup/cpu/docker/0123/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Processors(), 3);
}

// What a container of version 1 sees: its group's name outside, and its group
// where the root would be.
TEST_F(ProcessorsTest, FollowTheRootsQuotaWhereTheGroupIsNotThere) {
  Write("own", "4:cpu,cpuacct:/docker/0123");
  Write("cgroup/cpu/cpu.cfs_quota_us", "400000");
  Write("cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Processors(), 4);
}

TEST_F(ProcessorsTest, FollowTheSmallestQuotaOfTheGroupsAbove) {
  Write("own", "0::/a/b/c");
  Write("cgroup/a/b/c/cpu.max", "800000 100000");
  Write("cgroup/a/b/cpu.max", "max 100000");
  Write("cgroup/a/cpu.max", "250000 50000");
  EXPECT_EQ(Processors(), 5);
}

TEST_F(ProcessorsTest, FollowAGroupWithDotsInItsName) {
  Write("own", "0::/a/app..v2.service");
  Write("cgroup/a/cpu.max", "600000 100000");
  EXPECT_EQ(Processors(), 6);
}

TEST_F(ProcessorsTest, AreRoundedUp) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "210000 100000");
  EXPECT_EQ(Processors(), 3);
}

TEST_F(ProcessorsTest, AreAtLeastOne) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "1000 100000");
  EXPECT_EQ(Processors(), 1);
}

TEST_F(ProcessorsTest, AreNoMoreThanAllowed) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(ProcessorsWithin(groups_, 1), 1);
}

TEST_F(ProcessorsTest, AreAllWhereNoGroupHasAQuota) {
  Write("own", "0::/a\n4:cpu,cpuacct:/b");
  Write("cgroup/a/cpu.max", "max 100000");
  Write("cgroup/cpu/b/cpu.cfs_quota_us", "-1");
  Write("cgroup/cpu/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Processors(), 64);
}

TEST_F(ProcessorsTest, PassByWhatIsNoQuota) {
  Write("own", "0::/a\nnonsense\n4:cpu:/../b\n4:cpu:/..\n\n");
  Write("cgroup/a/cpu.max", "plenty of it");
  Write("cgroup/cpu.max", "200000");
  EXPECT_EQ(Processors(), 64);
}

TEST_F(ProcessorsTest, AreTheThreadsOfAPoolThatIsNotToldHowMany) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(WorkerPool::ThreadsFor(0, groups_), 1);
}

TEST_F(ProcessorsTest, AreNotAskedForWhereAPoolIsToldHowMany) {
  Write("own", "0::/");
  Write("cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(WorkerPool::ThreadsFor(7, groups_), 7);
}

}  // namespace
}  // namespace attention
