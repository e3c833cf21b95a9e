// Pages of sequences in a device's memory, without a backend around them: who
// waits for whom.

#include "core/cuda/device_pages.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <stop_token>

#include "core/cuda/memory_pool.h"
#include "core/store/sequence.h"
#include "core/store/snapshot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/backend_fixture.h"
#include "tests/unit/store/rows.h"

namespace attention::test {
namespace {

using store::Sequence;
using store::testing::MakeSequence;

// The blocks of a sequence with so many keys.
class PagesOf {
 public:
  explicit PagesOf(int64_t keys)
      : sequence_(
            MakeSequence({.heads = 2, .key_width = 64, .value_width = 64})) {
    EXPECT_THAT(store::testing::AppendRows(*sequence_, keys, 1).status(),
                IsOk());
    snapshot_ = sequence_->TakeSnapshot(0).value();
    owned_ = MakeProblem({.batch = 1,
                          .query_heads = 2,
                          .query_length = 1,
                          .width = 64,
                          .value_width = 64},
                         TestSeed());
    owned_.problem.key_value = snapshot_->Blocks();
    valid_.emplace(Validate(owned_.problem).value());
  }

  absl::Span<const ValidatedProblem::Block> blocks() const {
    return valid_->key_value;
  }

 private:
  const std::shared_ptr<Sequence> sequence_;
  std::optional<store::Snapshot> snapshot_;
  OwnedProblem owned_;
  std::optional<ValidatedProblem> valid_;
};

class DevicePagesTest : public ::testing::Test {
 protected:
  // Keeps 3 MiB in the pool that nobody has, and from now on the device frees
  // nothing until `ended_` is counted down.
  void HoldUpFrees() {
    { ASSERT_OK_AND_ASSIGN(const auto kept, pool_.Take(3 * kMiB, {})); }
    faults_->before_free = [&] {
      frees_.release();
      ended_.wait();
    };
  }

  std::counting_semaphore<> frees_{0};  // that have begun
  std::latch ended_{1};
  const std::shared_ptr<cuda::Faults> faults_ =
      std::make_shared<cuda::Faults>();
  const std::shared_ptr<cuda::Device> device_ =
      cuda::MakeEmulatedDevice(cuda::EmulatedProperties(), faults_);
  cuda::MemoryPool pool_{device_, 4 * kMiB};
  cuda::DevicePages pages_{pool_};
};

// A kernel that hangs holds it up for ever; who reads pages goes on.
TEST_F(DevicePagesTest, AreLetGoWhileTheDeviceFreesMemory) {
  const PagesOf first(100);
  const PagesOf second(1000);
  std::optional<cuda::DevicePages::Hold> held =
      pages_.Take(first.blocks(), {}, {});
  ASSERT_TRUE(held);
  HoldUpFrees();
  auto taken = std::async(std::launch::async, [&] {
    return pages_.Take(second.blocks(), {}, {}).has_value();
  });
  frees_.acquire();
  auto let_go = std::async(std::launch::async, [&] { held.reset(); });
  EXPECT_EQ(let_go.wait_for(std::chrono::seconds(10)),
            std::future_status::ready);
  ended_.count_down();
  EXPECT_TRUE(taken.get());
}

// Others that nobody holds stay.
TEST_F(DevicePagesTest, AwaitMemoryThatIsBeingFreed) {
  const PagesOf first(100);
  const PagesOf second(1000);
  const auto held = pages_.Take(first.blocks(), {}, {});
  ASSERT_TRUE(held);
  HoldUpFrees();
  auto freeing = std::async(std::launch::async,
                            [&] { return pool_.MakeRoom(kMiB, {}, {}); });
  frees_.acquire();
  std::once_flag once;
  const auto end = [&] { std::call_once(once, [&] { ended_.count_down(); }); };
  EXPECT_TRUE(pages_.Take(second.blocks(), {}, end));
  end();
  EXPECT_TRUE(freeing.get());
}

// As where it has computed for too long.
TEST_F(DevicePagesTest, ThatAnotherBringsAreWaitedForWithLooks) {
  const PagesOf of(100);
  const auto first = pages_.Take(of.blocks(), {}, {});
  const auto second = pages_.Take(of.blocks(), {}, {});
  ASSERT_TRUE(first && second);
  std::latch brings(1);
  std::latch brought(1);
  auto bringing = std::async(std::launch::async, [&] {
    const cuda::DevicePages::Hold* const hold = &*first;
    return pages_.Bring({&hold, 1}, {}, {}, [&](auto) {
      brings.count_down();
      brought.wait();
      return absl::OkStatus();
    });
  });
  brings.wait();
  std::stop_source stop;
  const cuda::DevicePages::Hold* const hold = &*second;
  const absl::Status status = pages_.Bring(
      {&hold, 1}, stop.get_token(), [&] { stop.request_stop(); },
      [](auto) { return absl::InternalError("brought twice"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  brought.count_down();
  EXPECT_THAT(bringing.get(), IsOk());
}

}  // namespace
}  // namespace attention::test
