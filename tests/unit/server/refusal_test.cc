#include "server/telemetry/refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/scheduling/admission.h"

namespace attention::server {
namespace {

// Why a second request of `bytes` is refused, beside one of another caller, or
// of the same one.
Refusal WhyNot(int64_t max_requests, int64_t held, int64_t bytes,
               const std::string& caller) {
  Ledger ledger;
  Admission admission(ledger, max_requests, /*max_bytes=*/1000);
  const auto first = admission.Admit({"first"}, held);
  EXPECT_TRUE(first.ok());
  Refusal why = Refusal::kNone;
  const bool admitted = admission.Admit({caller}, bytes, {}, &why).ok();
  EXPECT_EQ(admitted, why == Refusal::kNone);
  return why;
}

TEST(RefusalTest, AdmissionTellsWhichLimitIsReached) {
  EXPECT_EQ(WhyNot(10, 100, 100, "second"), Refusal::kNone);
  EXPECT_EQ(WhyNot(10, 100, 1001, "second"), Refusal::kTooLarge);
  EXPECT_EQ(WhyNot(1, 100, 100, "second"), Refusal::kServerRequests);
  EXPECT_EQ(WhyNot(10, 600, 401, "second"), Refusal::kServerMemory);
  EXPECT_EQ(WhyNot(2, 100, 100, "first"), Refusal::kCallerRequests);
  EXPECT_EQ(WhyNot(10, 300, 201, "first"), Refusal::kCallerMemory);
}

TEST(RefusalTest, ADrainingServersReasonIsThat) {
  Ledger ledger;
  Admission admission(ledger, 1, 1);
  admission.StartDraining();
  Refusal why = Refusal::kNone;
  EXPECT_FALSE(admission.Admit({"a"}, 0, {}, &why).ok());
  EXPECT_EQ(why, Refusal::kDraining);
}

TEST(RefusalTest, AStatusSaysTheRest) {
  EXPECT_EQ(RefusalOf(absl::InvalidArgumentError("")), Refusal::kInvalid);
  EXPECT_EQ(RefusalOf(absl::NotFoundError("")), Refusal::kInvalid);
  EXPECT_EQ(RefusalOf(absl::ResourceExhaustedError("")), Refusal::kTooLarge);
  EXPECT_EQ(RefusalOf(absl::DeadlineExceededError("")), Refusal::kDeadline);
  EXPECT_EQ(RefusalOf(absl::CancelledError("")), Refusal::kCancelled);
  EXPECT_EQ(RefusalOf(absl::InternalError("")), Refusal::kOther);
}

TEST(RefusalTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < kRefusalReasons; ++i) {
    names.insert(NameOf(static_cast<Refusal>(i)));
  }
  EXPECT_EQ(names.size(), kRefusalReasons);
  EXPECT_EQ(names.count(""), 0);
}

}  // namespace
}  // namespace attention::server
