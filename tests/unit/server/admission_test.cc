#include "server/scheduling/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool HasRetryInfo(const absl::Status& status) {
  return status.GetPayload("type.googleapis.com/google.rpc.RetryInfo")
      .has_value();
}

TEST(Admission, CountsWhatItAdmits) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto first = admission.Admit({"a"}, 100);
  const auto second = admission.Admit({"a"}, 200);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(admission.requests(), 2);
  EXPECT_EQ(admission.bytes(), 300);
}

TEST(Admission, ATicketGivesItsPlaceBack) {
  Ledger ledger;
  Admission admission(ledger, 1, 1000);
  {
    const auto ticket = admission.Admit({"a"}, 1000);
    ASSERT_THAT(ticket, IsOk());
  }
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(Admission, ARequestThatGrowsIsOneRequestOfAllItsBytes) {
  Ledger ledger;
  Admission admission(ledger, 1, 1000);
  {
    auto ticket = admission.Admit({"a"}, 100);
    ASSERT_THAT(ticket, IsOk());
    // More than half: its caller has no other one.
    EXPECT_THAT(admission.Grow(*ticket, 900), IsOk());
    EXPECT_EQ(admission.requests(), 1);
    EXPECT_EQ(admission.bytes(), 1000);
  }
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(Admission, ARequestThatCannotGrowStaysAsItIs) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto other = admission.Admit({"b"}, 600);
  auto ticket = admission.Admit({"a"}, 100);
  ASSERT_THAT(ticket, IsOk());
  const absl::Status full = admission.Grow(*ticket, 301);
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("needs 401 bytes")));
  EXPECT_TRUE(HasRetryInfo(full));
  const absl::Status never = admission.Grow(*ticket, 901);
  EXPECT_THAT(never, StatusIs(absl::StatusCode::kResourceExhausted,
                              HasSubstr("never fits")));
  EXPECT_FALSE(HasRetryInfo(never));
  EXPECT_EQ(admission.bytes(), 700);
}

TEST(Admission, WhatARequestGrowsByIsOfItsCallersQuota) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits limits = {.max_bytes_per_second = 100};
  const auto now = std::chrono::steady_clock::now();
  auto ticket = admission.Admit({"a"}, 50, limits, nullptr, now);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Grow(*ticket, 49, limits, nullptr, now), IsOk());
  EXPECT_THAT(admission.Admit({"a"}, 1, limits, nullptr, now), IsOk());
  EXPECT_THAT(admission.Admit({"a"}, 1, limits, nullptr, now),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_bytes_per_second")));
}

TEST(Admission, ARequestThatWasLetInGrowsBeyondTheQuotaAndOwesIt) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits limits = {.max_requests_per_second = 100,
                               .max_bytes_per_second = 100};
  const auto now = std::chrono::steady_clock::now();
  auto ticket = admission.Admit({"a"}, 150, limits, nullptr, now);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Grow(*ticket, 150, limits, nullptr, now), IsOk());
  const auto next = [&](std::chrono::milliseconds after) {
    return admission.Admit({"a"}, 100, limits, nullptr, now + after).status();
  };
  EXPECT_FALSE(next(std::chrono::milliseconds(2990)).ok());
  EXPECT_THAT(next(std::chrono::milliseconds(3010)), IsOk());
}

TEST(Admission, AMovedTicketGivesItsPlaceBackOnce) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  {
    Admission::Ticket kept;
    {
      auto ticket = admission.Admit({"a"}, 100);
      ASSERT_THAT(ticket, IsOk());
      kept = *std::move(ticket);
    }
    EXPECT_EQ(admission.requests(), 1);
    const Admission::Ticket moved = std::move(kept);
    EXPECT_EQ(admission.bytes(), 100);
  }
  EXPECT_EQ(admission.requests(), 0);
}

TEST(Admission, ReplacingATicketGivesTheOldPlaceBack) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  Admission::Ticket ticket = admission.Admit({"a"}, 100).value();
  ticket = admission.Admit({"a"}, 30).value();
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.bytes(), 30);
}

using std::chrono::milliseconds;
constexpr TokenBucket::Clock::time_point kStart{std::chrono::hours(1)};

TEST(Admission, AQuotaOfRequestsFillsUpAgain) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits two{.max_requests_per_second = 2};
  const auto admit = [&](const char* caller, milliseconds after) {
    Refusal refusal = Refusal::kNone;
    absl::Status status =
        admission.Admit({caller}, 0, two, &refusal, kStart + after).status();
    EXPECT_EQ(refusal, status.ok() ? Refusal::kNone : Refusal::kCallerRate);
    return status;
  };
  EXPECT_THAT(admit("a", milliseconds(0)), IsOk());
  EXPECT_THAT(admit("a", milliseconds(0)), IsOk());
  const absl::Status spent = admit("a", milliseconds(0));
  EXPECT_THAT(spent, StatusIs(absl::StatusCode::kResourceExhausted,
                              AllOf(HasSubstr("2 requests a second"),
                                    HasSubstr("max_requests_per_second"))));
  EXPECT_TRUE(HasRetryInfo(spent));
  EXPECT_THAT(admit("b", milliseconds(0)), IsOk());
  EXPECT_FALSE(admit("a", milliseconds(499)).ok());
  EXPECT_THAT(admit("a", milliseconds(600)), IsOk());
  EXPECT_FALSE(admit("a", milliseconds(600)).ok());
  EXPECT_THAT(admit("a", milliseconds(5000)), IsOk());
}

TEST(Admission, AQuotaOfBytesTakesALargeRequestAndThenWaits) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits limits{.max_bytes_per_second = 100};
  const auto admit = [&](int64_t bytes, milliseconds after) {
    return admission.Admit({"a"}, bytes, limits, nullptr, kStart + after)
        .status();
  };
  EXPECT_THAT(admit(400, milliseconds(0)), IsOk());
  EXPECT_THAT(admit(1, milliseconds(2999)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_bytes_per_second")));
  EXPECT_THAT(admit(1, milliseconds(3100)), IsOk());
}

// Else a caller could have the server forget what it took.
TEST(Admission, ManyCallersDoNotMakeItForgetAQuota) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits one{.max_requests_per_second = 1};
  ASSERT_THAT(admission.Admit({"a"}, 0, one, nullptr, kStart), IsOk());
  for (int i = 0; i < 3000; ++i) {
    ASSERT_THAT(
        admission.Admit({absl::StrCat("other ", i)}, 0, {}, nullptr, kStart),
        IsOk());
  }
  EXPECT_FALSE(admission.Admit({"a"}, 0, one, nullptr, kStart).ok());
}

TEST(Admission, NamesTheLimitOfRequests) {
  Ledger ledger;
  Admission admission(ledger, 1, 1000);
  const auto ticket = admission.Admit({"a"}, 0);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit({"a"}, 0),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_requests_in_flight")));
}

TEST(Admission, NamesTheLimitOfBytes) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto ticket = admission.Admit({"a"}, 600);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit({"a"}, 401),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the server is full"),
                             HasSubstr("memory_limit"))));
  EXPECT_THAT(admission.Admit({"b"}, 400), IsOk());
}

TEST(Admission, ACallerHasHalfOfTheRequests) {
  Ledger ledger;
  Admission admission(ledger, 4, 1000);
  const auto first = admission.Admit({"a"}, 0);
  const auto second = admission.Admit({"a"}, 0);
  const auto third = admission.Admit({"a"}, 0);
  EXPECT_THAT(third, StatusIs(absl::StatusCode::kResourceExhausted,
                              HasSubstr("half of max_requests_in_flight")));
  EXPECT_THAT(admission.Admit({"b"}, 0), IsOk());
}

TEST(Admission, ACallerHasHalfOfTheBytes) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto first = admission.Admit({"a"}, 300);
  EXPECT_THAT(admission.Admit({"a"}, 201),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("a quarter of memory_limit")));
  EXPECT_THAT(admission.Admit({"b"}, 500), IsOk());
}

TEST(Admission, TheConnectionsOfAnAddressHaveThreeQuartersOfTheRequests) {
  Ledger ledger;
  Admission admission(ledger, 4, 1000);
  const auto first = admission.Admit({"a:1", "a"}, 0);
  const auto second = admission.Admit({"a:2", "a"}, 0);
  const auto third = admission.Admit({"a:3", "a"}, 0);
  EXPECT_THAT(third, IsOk());
  EXPECT_THAT(admission.Admit({"a:4", "a"}, 0),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("three quarters of max_requests_in_flight")));
  EXPECT_THAT(admission.Admit({"b:1", "b"}, 0), IsOk());
}

TEST(Admission, TheConnectionsOfAnAddressHaveThreeQuartersOfTheBytes) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto first = admission.Admit({"a:1", "a"}, 500);
  EXPECT_THAT(admission.Admit({"a:2", "a"}, 251),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("three eighths of memory_limit")));
  EXPECT_THAT(admission.Admit({"b:1", "b"}, 500), IsOk());
}

TEST(Admission, TheConnectionsOfAnAddressHaveOneQuota) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits one{.max_requests_per_second = 1};
  const auto admit = [&](const Admission::Holder& holder) {
    return admission.Admit(holder, 0, one, nullptr, kStart).status();
  };
  EXPECT_THAT(admit({"a:1", "a"}), IsOk());
  EXPECT_FALSE(admit({"a:2", "a"}).ok());
  EXPECT_THAT(admit({"b:1", "b"}), IsOk());
}

TEST(Admission, ACallersOnlyRequestMayBeLargerThanItsShare) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  EXPECT_THAT(admission.Admit({"a"}, 900), IsOk());
}

TEST(Admission, SaysWhenToTryAgain) {
  Ledger ledger;
  Admission admission(ledger, 1, 1000);
  const auto ticket = admission.Admit({"a"}, 0);
  EXPECT_TRUE(HasRetryInfo(admission.Admit({"b"}, 0).status()));
}

TEST(Admission, WhatNeverFitsIsNotWorthASecondTry) {
  Ledger ledger;
  Admission admission(ledger, 1, 1000);
  const absl::Status status = admission.Admit({"a"}, 1001).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(HasRetryInfo(status));
}

TEST(Admission, CountsManyCallersThatComeAndGo) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto kept = admission.Admit({"kept"}, 100);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_THAT(admission.Admit({absl::StrCat("caller", i)}, 900), IsOk());
  }
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.bytes(), 100);
}

TEST(Admission, SaysWhatNeverFits) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  EXPECT_THAT(admission.Admit({"a"}, 1001),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1001 bytes"), HasSubstr("never fits"),
                             HasSubstr("at most 1000, half of memory_limit"))));
  EXPECT_THAT(admission.Admit({"a"}, 1000), IsOk());
}

TEST(Admission, DoesNotOverflow) {
  Ledger ledger;
  Admission admission(ledger, 10, std::numeric_limits<int64_t>::max());
  const auto ticket =
      admission.Admit({"a"}, std::numeric_limits<int64_t>::max());
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit({"a"}, std::numeric_limits<int64_t>::max()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

TEST(Admission, AdmitsNothingWhileDraining) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const auto before = admission.Admit({"a"}, 1);
  ASSERT_THAT(before, IsOk());
  admission.StartDraining();
  EXPECT_THAT(
      admission.Admit({"a"}, 1),
      StatusIs(absl::StatusCode::kUnavailable, "the server is draining"));
  EXPECT_EQ(admission.requests(), 1);
}

TEST(Admission, NeverExceedsItsLimitFromManyThreads) {
  const int64_t limit = 3;
  Ledger ledger;
  Admission admission(ledger, limit, 1000);
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, caller = absl::StrCat(thread)] {
      for (int i = 0; i < 1000; ++i) {
        const auto ticket = admission.Admit({caller}, 1);
        EXPECT_LE(admission.requests(), limit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(AdmissionTest, ACallersOwnLimitsStandInPlaceOfHalf) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const CallerLimits limits{.max_requests_in_flight = 7,
                            .max_bytes_in_flight = 900};
  std::vector<Admission::Ticket> tickets;
  for (int i = 0; i < 7; ++i) {
    auto ticket = admission.Admit({"a"}, 100, limits);
    ASSERT_THAT(ticket, IsOk());
    tickets.push_back(*std::move(ticket));
  }
  EXPECT_THAT(admission.Admit({"a"}, 1, limits),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("its max_requests_in_flight")));
  tickets.pop_back();
  EXPECT_THAT(admission.Admit({"a"}, 301, limits),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("its max_bytes_in_flight")));
  EXPECT_THAT(admission.Admit({"a"}, 300, limits), IsOk());
}

TEST(AdmissionTest, WhatNeverFitsACallersBytesIsToldSo) {
  Ledger ledger;
  Admission admission(ledger, 10, 1000);
  const absl::Status status =
      admission.Admit({"a"}, 101, {.max_bytes_in_flight = 100}).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("never fits")));
  EXPECT_FALSE(HasRetryInfo(status));
}

}  // namespace
}  // namespace attention::server
