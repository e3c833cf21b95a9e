// Pages of sequences that stay on a real device: the part of the self check
// that is about them, as requests are computed and in the ways of large ones.

#include <string>
#include <utility>

#include "core/cuda/kept_check.h"
#include "core/cuda/loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace attention::cuda {
namespace {

using test::IsOk;

void CheckEveryDevice(const PlanOptions& plan) {
  ASSERT_OK_AND_ASSIGN(Devices devices, OpenDevices());
  for (auto& device : devices) {
    std::string last;
    EXPECT_THAT(CheckKeptPages(
                    std::move(device), plan,
                    [&](absl::string_view name) { last = std::string(name); }),
                IsOk())
        << last;
  }
}

TEST(KeptPagesTest, AgreeWithTheReference) { CheckEveryDevice({}); }

TEST(KeptPagesTest, InSlicesAgreeWithTheReference) {
  CheckEveryDevice({.slice_bytes = 1, .slice_work = 1});
}

}  // namespace
}  // namespace attention::cuda
