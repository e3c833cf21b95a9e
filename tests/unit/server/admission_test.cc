#include "server/scheduling/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::IsOk;
using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Admission, CountsWhatItAdmits) {
  Admission admission(10, 1000);
  const auto first = admission.Admit(100);
  const auto second = admission.Admit(200);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(admission.requests(), 2);
  EXPECT_EQ(admission.bytes(), 300);
}

TEST(Admission, ATicketGivesItsPlaceBack) {
  Admission admission(1, 1000);
  {
    const auto ticket = admission.Admit(1000);
    ASSERT_THAT(ticket, IsOk());
  }
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

TEST(Admission, AMovedTicketGivesItsPlaceBackOnce) {
  Admission admission(10, 1000);
  {
    Admission::Ticket kept;
    {
      auto ticket = admission.Admit(100);
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
  Admission admission(10, 1000);
  Admission::Ticket ticket = admission.Admit(100).value();
  ticket = admission.Admit(30).value();
  EXPECT_EQ(admission.requests(), 1);
  EXPECT_EQ(admission.bytes(), 30);
}

TEST(Admission, NamesTheLimitOfRequests) {
  Admission admission(1, 1000);
  const auto ticket = admission.Admit(0);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit(0),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_requests_in_flight")));
}

TEST(Admission, NamesTheLimitOfBytes) {
  Admission admission(10, 1000);
  const auto ticket = admission.Admit(600);
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit(401),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the server is full"),
                             HasSubstr("memory_limit"))));
  EXPECT_THAT(admission.Admit(400), IsOk());
}

TEST(Admission, SaysWhatNeverFits) {
  Admission admission(10, 1000);
  EXPECT_THAT(admission.Admit(1001),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1001 bytes"), HasSubstr("never fits"),
                             HasSubstr("at most 1000, half of memory_limit"))));
  EXPECT_THAT(admission.Admit(1000), IsOk());
}

TEST(Admission, DoesNotOverflow) {
  Admission admission(10, std::numeric_limits<int64_t>::max());
  const auto ticket = admission.Admit(std::numeric_limits<int64_t>::max());
  ASSERT_THAT(ticket, IsOk());
  EXPECT_THAT(admission.Admit(std::numeric_limits<int64_t>::max()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

TEST(Admission, AdmitsNothingWhileDraining) {
  Admission admission(10, 1000);
  const auto before = admission.Admit(1);
  ASSERT_THAT(before, IsOk());
  admission.StartDraining();
  EXPECT_THAT(admission.Admit(1), StatusIs(absl::StatusCode::kUnavailable,
                                           "the server is draining"));
  EXPECT_EQ(admission.requests(), 1);
}

TEST(Admission, NeverExceedsItsLimitFromManyThreads) {
  const int64_t limit = 3;
  Admission admission(limit, 1000);
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const auto ticket = admission.Admit(1);
        EXPECT_LE(admission.requests(), limit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0);
}

}  // namespace
}  // namespace attention::server
