#include "core/self_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
  Altered backend(alter);
  return SelfCheck(backend, workers,
                   [](absl::string_view, const absl::Status&) {});
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

// One whose BF16 results are wrong as long as its fast kernel computes them.
class WithWrongKernel final : public Backend {
 public:
  absl::string_view name() const override { return "wrong"; }
  std::string instruction_set() const override { return "none"; }
  absl::Status Supports(const ValidatedProblem& problem) const override {
    return reference_->Supports(problem);
  }
  bool LeaveOut(absl::string_view kernel) override {
    if (!fast_ || kernel != "fast") return false;
    fast_ = false;
    return true;
  }
  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    reference_->Run(jobs, context);
    for (AttentionJob& job : jobs) {
      if (!fast_ || job.problem->query.type != DataType::kBFloat16) continue;
      job.kernel = "fast";
      Exchange(job.outputs.output);
    }
  }

 private:
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
  bool fast_ = true;
};

TEST(SelfCheck, GoesOnWithoutAKernelThatCanBeLeftOut) {
  WorkerPool workers(2);
  WithWrongKernel backend;
  std::vector<std::string> left_out;
  EXPECT_THAT(
      SelfCheck(backend, workers,
                [&](absl::string_view kernel, const absl::Status& why) {
                  left_out.push_back(absl::StrCat(kernel, ": ", why.message()));
                }),
      IsOk());
  EXPECT_THAT(left_out, ::testing::ElementsAre(
                            HasSubstr("fast: BF16 causal: kernel fast: output "
                                      "element 0 is ")));
}

}  // namespace
}  // namespace attention
