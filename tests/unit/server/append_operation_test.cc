// An append by what it does to its sequence.
#include "server/wire/append_operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/store/store.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {
namespace {

using test::IsOk;

constexpr int64_t kWidth = 1024;

class AppendOperationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const store::NewSequence wanted{
        {.heads = 1, .key_width = kWidth, .value_width = kWidth}, "s"};
    ASSERT_THAT(store_.Create("", wanted, store::Clock::now()), IsOk());
    sequence_ = store_.Find("", "s", store::Clock::now()).value();
  }

  // Ready to run: 8 MiB of keys and values.
  std::unique_ptr<AppendOperation> Planned() {
    constexpr int64_t kKeys = 1024;
    const std::string rows(size_t{kKeys * kWidth * sizeof(float)}, '\0');
    v1::AppendRequest request;
    request.set_name("s");
    SetTensor(*request.mutable_key(), v1::DATA_TYPE_FP32, {1, kKeys, kWidth},
              rows);
    SetTensor(*request.mutable_value(), v1::DATA_TYPE_FP32, {1, kKeys, kWidth},
              rows);
    auto operation = std::make_unique<AppendOperation>(ResidentAccess{&store_},
                                                       int64_t{1} << 20);
    EXPECT_THAT(
        operation->Decode(
            std::vector<grpc::Slice>{grpc::Slice(request.SerializeAsString())},
            HoldUncounted, facts_),
        IsOk());
    EXPECT_THAT(operation->Plan(facts_), IsOk());
    operation->Gather(nullptr);
    return operation;
  }

  store::Store store_{store::StoreOptions{}};
  std::shared_ptr<store::Sequence> sequence_;
  RequestFacts facts_;
};

// Its idle time begins when the append has ended: not when it began, as it may
// wait for others and take a while.
TEST_F(AppendOperationTest, ASequenceIsInUseUntilItsAppendEnds) {
  store::Time at_work;  // since it was seen to be the first time
  int times = 0;
  for (int tries = 0; tries < 1000 && times < 2; ++tries) {
    times = 0;
    ASSERT_THAT(store_.Truncate("", "s", 0, store::Clock::now()), IsOk());
    const auto operation = Planned();
    std::atomic<bool> ended = false;
    const std::jthread appends([&] {
      EXPECT_THAT(operation->Run(std::stop_token(), {}, facts_), IsOk());
      ended = true;
    });
    while (!ended) {
      const store::Time now = store::Clock::now();
      if (!sequence_->IsChanging(0)) continue;
      at_work = now;
      ++times;
    }
  }
  ASSERT_GE(times, 2) << "it was never seen at work";
  const store::Time now = store::Clock::now();
  ASSERT_OK_AND_ASSIGN(const store::Description s,
                       store_.Describe("", "s", now));
  EXPECT_GE(now - s.idle, at_work);
}

}  // namespace
}  // namespace attention::server
