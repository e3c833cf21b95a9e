#include "core/self_check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/element.h"
#include "core/reference/reference_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace attention {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::HasSubstr;

// The reference, whose results are changed before anybody sees them.
class Altered final : public Backend {
 public:
  explicit Altered(std::function<void(AttentionJob&)> alter)
      : alter_(std::move(alter)) {}

  absl::string_view name() const override { return "altered"; }
  std::string instruction_set() const override { return "none"; }
  absl::Status Supports(const ValidatedProblem& problem) const override {
    return reference_->Supports(problem);
  }
  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    reference_->Run(jobs, context);
    for (AttentionJob& job : jobs) alter_(job);
  }

 private:
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
  const std::function<void(AttentionJob&)> alter_;
};

const std::thread::id kMain = std::this_thread::get_id();

absl::Status CheckAltered(const std::function<void(AttentionJob&)>& alter) {
  WorkerPool workers(2);
  Altered backend(alter);
  return SelfCheck(backend, workers);
}

// Exchanges the first two elements of a tensor.
void Exchange(const MutableTensorView& view) {
  const auto size = static_cast<size_t>(ByteSize(view.type));
  std::swap_ranges(view.data, view.data + size, view.data + size);
}

TEST(SelfCheck, PassesWhatTheReferenceComputes) {
  EXPECT_THAT(CheckAltered([](AttentionJob&) {}), IsOk());
}

TEST(SelfCheck, FindsElementsInTheWrongPlace) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    const absl::Status status = CheckAltered([type](AttentionJob& job) {
      if (job.problem->query.type == type) Exchange(job.outputs.output);
    });
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                                 HasSubstr("output element 0 is ")));
  }
}

TEST(SelfCheck, FindsWrongWeights) {
  EXPECT_THAT(CheckAltered([](AttentionJob& job) {
                if (job.problem->wanted.weights) Exchange(job.outputs.weights);
              }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("weights")));
}

TEST(SelfCheck, FindsNaN) {
  EXPECT_THAT(
      CheckAltered([](AttentionJob& job) {
        StoreElement(job.outputs.lse.type, NAN, job.outputs.lse.data);
      }),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("lse element 0 is nan")));
}

TEST(SelfCheck, GivesOnWhatABackendSays) {
  EXPECT_THAT(
      CheckAltered([](AttentionJob& job) {
        job.status = absl::InternalError("no more memory");
      }),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("no more memory")));
}

TEST(SelfCheck, NamesTheCaseAndTheKernelThatFailed) {
  EXPECT_THAT(CheckAltered([](AttentionJob& job) {
                if (job.problem->query.type != DataType::kBFloat16) return;
                job.kernel = "fast";
                Exchange(job.outputs.output);
              }),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("BF16 causal: kernel fast: output element 0 "
                                 "is ")));
}

TEST(SelfCheck, FindsNanThatReachesRowsFromKeysThatTakeNoPart) {
  EXPECT_THAT(CheckAltered([](AttentionJob& job) {
                const MutableTensorView& output = job.outputs.output;
                if (!job.problem->valid_lens) return;
                StoreElement(output.type, NAN, output.data);
              }),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("NaN behind the length: ")));
}

TEST(SelfCheck, FindsWhatIsWrongOnlyWhileOthersCompute) {
  std::atomic<int> running = 0;
  EXPECT_THAT(
      CheckAltered([&](AttentionJob& job) {
        if (job.problem->attend_mask && std::this_thread::get_id() != kMain) {
          ++running;
          Exchange(job.outputs.output);
        }
      }),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("mask, width ")));
  EXPECT_GT(running, 0);
}

TEST(SelfCheck, FindsWhatIsWrongOnlyInPages) {
  EXPECT_THAT(
      CheckAltered([](AttentionJob& job) {
        if (job.problem->key_value.size() > 1) {
          Exchange(job.outputs.output);
        }
      }),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("output element 0 is ")));
}

TEST(SelfCheck, TellsOfEachCaseBeforeItIsComputed) {
  WorkerPool workers(2);
  std::vector<std::string> names;
  Altered backend([&](AttentionJob&) { EXPECT_FALSE(names.empty()); });
  ASSERT_THAT(
      SelfCheck(backend, workers,
                [&](absl::string_view name) { names.emplace_back(name); }),
      IsOk());
  EXPECT_THAT(names, ::testing::Contains("BF16 causal"));
  EXPECT_EQ(names.back(), "several at once");
}

}  // namespace
}  // namespace attention
