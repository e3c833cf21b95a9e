#include "core/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

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

absl::Status CheckAltered(const std::function<void(AttentionJob&)>& alter) {
  WorkerPool workers(2);
  return SelfCheck(Altered(alter), workers);
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

}  // namespace
}  // namespace attention
