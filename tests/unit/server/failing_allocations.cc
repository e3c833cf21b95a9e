#include "tests/unit/server/failing_allocations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

constexpr int64_t kMost = 1000;  // far more than a request makes

// How many more allocations succeed before one fails; below 0: all.
thread_local int64_t until_failure = -1;

bool Fails() {
  const bool fails = until_failure == 0;
  if (until_failure >= 0) --until_failure;
  return fails;
}

}  // namespace

void FailAllocation(int64_t number) { until_failure = number; }

Came EndFailing() {
  const bool failed = until_failure < 0;
  until_failure = -1;
  return failed ? Came::kToItsEndWithout : Came::kToItsEnd;
}

Came WithoutAllocation(int64_t number, const std::function<void()>& act) {
  FailAllocation(number);
  try {
    act();
  } catch (const std::bad_alloc&) {
    EndFailing();
    return Came::kOut;
  }
  return EndFailing();
}

void ForEachAllocation(const std::function<Came(int64_t number)>& act) {
  for (const char* round : {"first", "second"}) {
    int64_t number = 0;
    while (act(number) != Came::kToItsEnd) {
      SCOPED_TRACE(absl::StrCat(round, " round, without allocation ", number));
      ASSERT_LT(++number, kMost);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(number, 0);
  }
}

}  // namespace attention::server

void* operator new(size_t size) {
  if (attention::server::Fails()) throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
