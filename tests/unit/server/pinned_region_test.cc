// Regions that a device copies by itself, which raises no signal where memory
// is gone.

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "core/cuda/cuda_backend.h"
#include "core/cuda/emulation/emulated_device.h"
#include "core/engine.h"
#include "server/memory/system_memory_region.h"
#include "tests/support/mapped_page.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/support/shared_memory_object.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsMapped;
using ::attention::test::IsOk;
using ::attention::test::SharedMemoryObject;
using ::attention::test::StatusIs;
using ::testing::HasSubstr;

constexpr size_t kSize = 40'000;  // not a whole number of pages

class PinnedRegionTest : public ::testing::Test {
 protected:
  PinnedRegionTest() {
    cuda::Devices devices;
    devices.push_back(
        cuda::MakeEmulatedDevice(cuda::EmulatedProperties(), faults_));
    EngineOptions options;
    options.threads = 1;
    options.backend = "cuda_test";
    options.more_backends.push_back(MakeCudaBackend(
        std::move(devices), {.name = "cuda_test", .experimental = false}));
    engine_ = Engine::Create(std::move(options)).value();
    region_ =
        SystemMemoryRegion::Map({"tensors", object_.key(), 0, kSize}).value();
  }

  SharedMemoryObject object_{kSize};
  std::shared_ptr<cuda::Faults> faults_ = std::make_shared<cuda::Faults>();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<SystemMemoryRegion> region_;
};

TEST_F(PinnedRegionTest, IsIntactAsLongAsItsObjectIs) {
  region_->Pin(*engine_);
  ASSERT_EQ(faults_->pinned, 1);
  EXPECT_THAT(region_->CheckIntact(), IsOk());
}

TEST_F(PinnedRegionTest, ATruncatedOneIsLostThoughNobodyTouchesIt) {
  region_->Pin(*engine_);
  object_.Truncate(0);
  EXPECT_THAT(
      region_->CheckIntact(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("truncated")));
}

TEST_F(PinnedRegionTest, OneThatLostItsLastPageIsLost) {
  region_->Pin(*engine_);
  object_.Truncate(kSize / 2);
  EXPECT_THAT(region_->Bytes(0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("register it again")));
}

TEST_F(PinnedRegionTest, IsUnmappedInTheEnd) {
  region_->Pin(*engine_);
  std::byte* const begin = region_->Bytes(0, 1).value().data();
  ASSERT_TRUE(IsMapped(begin));
  region_.reset();
  EXPECT_FALSE(IsMapped(begin));
}

// The driver would take what is mapped there next for the region.
TEST_F(PinnedRegionTest, StaysMappedWhereItsDeviceIsLost) {
  region_->Pin(*engine_);
  std::byte* const begin = region_->Bytes(0, 1).value().data();
  faults_->launches_left = 0;
  const test::OwnedProblem owned = test::MakeProblem({}, test::TestSeed());
  ASSERT_FALSE(test::RunOn(*engine_, owned.problem).ok());
  region_.reset();
  EXPECT_TRUE(IsMapped(begin));
}

TEST_F(PinnedRegionTest, OneThatIsNotPinnedIsNotTouched) {
  object_.Truncate(0);
  EXPECT_THAT(region_->CheckIntact(), IsOk());
}

}  // namespace
}  // namespace attention::server
