// Memory that runs out while a store makes, forks or looks for sequences: the
// first allocation fails, then the second, until none is left that does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/store/store.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/a_store.h"
#include "tests/unit/store/rows.h"

namespace {

// How many more allocations succeed before one throws; below 0: all.
thread_local int64_t until_throw = -1;

}  // namespace

void* operator new(size_t size) {
  const bool fails = until_throw == 0;
  if (until_throw >= 0) --until_throw;
  if (fails) throw std::bad_alloc();
  void* const memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace attention::store {
namespace {

using std::chrono::seconds;
using test::IsOk;
using test::StatusIs;
using testing::AStore;
using testing::kExhausted;
using testing::kNotFound;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;

constexpr int64_t kMostAllocations = 1000;  // far more than there are

// Calls act() with one allocation after the other that fails, which it throws
// or says, and once more, where none does. After each failure, unchanged().
void ForEachThrow(const std::function<absl::Status()>& act,
                  const std::function<void()>& unchanged) {
  for (int64_t number = 0; number < kMostAllocations; ++number) {
    SCOPED_TRACE(absl::StrCat("without allocation ", number));
    absl::Status status;
    until_throw = number;
    try {
      status = act();
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("thrown");
    }
    const bool failed = until_throw < 0;
    until_throw = -1;
    if (!failed) {
      EXPECT_THAT(status, IsOk());
      EXPECT_GT(number, 0);
      return;
    }
    EXPECT_THAT(status, StatusIs(kExhausted, ::testing::_));
    unchanged();
    if (::testing::Test::HasFailure()) return;
  }
  FAIL() << "it never has all its memory";
}

// Longer than what a string has room for itself.
std::string LongName(int number) {
  return absl::StrCat(std::string(40, 'n'), number);
}

// Each of them, with an idle limit of 10 s, is found, appended to and deleted,
// and what is left expires.
void ExpectInOrder(AStore& s, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    ASSERT_THAT(s.Append("", name, 70, 1), IsOk());
    EXPECT_EQ(TagsOf(*s.store.Find("", name, s.now).value()), Tags({{70, 1}}));
  }
  EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), names.size());
  EXPECT_THAT(s.store.Delete("", names.front()), IsOk());
  s.now += seconds(10);
  EXPECT_EQ(s.store.Expire(s.now).sequences,
            static_cast<int64_t>(names.size()) - 1);
  EXPECT_EQ(s.store.budget().held(), 0);
}

TEST(StoreWithoutMemoryTest, ASequenceIsMadeOrNot) {
  AStore s;
  const std::string name = LongName(0);
  ForEachThrow(
      [&] { return s.Create("", name, "label", seconds(10)).status(); },
      [&] {
        EXPECT_THAT(s.store.Find("", name, s.now),
                    StatusIs(kNotFound, ::testing::_));
        EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), 0U);
        EXPECT_EQ(s.Figures("").created, 0);
        EXPECT_EQ(s.store.budget().held(), 0);
      });
  EXPECT_EQ(s.Figures("").created, 1);
  ExpectInOrder(s, {name});
}

TEST(StoreWithoutMemoryTest, SeveralAreMadeOrNone) {
  AStore s;
  std::vector<std::string> names;
  std::vector<NewSequence> wanted;
  for (int n = 0; n < 3; ++n) {
    names.push_back(LongName(n));
    wanted.push_back({SmallForm(), names.back(), "label", seconds(10)});
  }
  ForEachThrow([&] { return s.store.Create("", wanted, s.now).status(); },
               [&] {
                 EXPECT_EQ(s.store.List("", {}, s.now)->sequences.size(), 0U);
                 EXPECT_EQ(s.Figures("").created, 0);
                 EXPECT_EQ(s.store.budget().held(), 0);
               });
  EXPECT_EQ(s.Figures("").created, 3);
  ExpectInOrder(s, names);
}

TEST(StoreWithoutMemoryTest, AForkIsMadeOrNot) {
  AStore s;
  const std::string name = LongName(0);
  const std::string fork = LongName(1);
  ASSERT_THAT(s.Create("", name, "label", seconds(10)), IsOk());
  const int64_t held = s.store.budget().held();
  ForEachThrow(
      [&] { return s.store.Fork("", name, {.name = fork}, s.now).status(); },
      [&] {
        EXPECT_THAT(s.store.Find("", fork, s.now),
                    StatusIs(kNotFound, ::testing::_));
        EXPECT_EQ(s.Figures("").forks, 0);
        EXPECT_EQ(s.Figures("").created, 1);
        EXPECT_EQ(s.store.budget().held(), held);
      });
  EXPECT_EQ(s.Figures("").created, 2);
  ExpectInOrder(s, {name, fork});
}

// It comes to its place among those that will expire.
TEST(StoreWithoutMemoryTest, WhatWasUsedExpiresLater) {
  AStore s;
  ASSERT_THAT(s.Create("", "a", "", seconds(10)), IsOk());
  s.now += seconds(9);
  ASSERT_THAT(s.store.Find("", "a", s.now), IsOk());
  s.now += seconds(9);
  until_throw = 0;
  const int64_t expired = s.store.Expire(s.now).sequences;
  until_throw = -1;
  EXPECT_EQ(expired, 0);
  s.now += seconds(1);
  EXPECT_EQ(s.store.Expire(s.now).sequences, 1);
}

// Each would have a thousand allocations of its own.
TEST(StoreWithoutMemoryTest, OfSequencesThatDoNotAllFitNoneIsBuilt) {
  constexpr int64_t kLayers = 4096;
  AStore s({.memory_limit = 3 * Sequence::OwnBytes(SmallForm(kLayers))});
  const std::vector<NewSequence> wanted(3, {SmallForm(kLayers)});
  until_throw = kMostAllocations;
  const auto made = s.store.Create("", wanted, s.now);
  const int64_t left = until_throw;
  until_throw = -1;
  EXPECT_THAT(made, StatusIs(kExhausted, ::testing::HasSubstr("3 sequences")));
  EXPECT_GT(left, kMostAllocations - 100);
}

}  // namespace
}  // namespace attention::store
