// A store that several threads use at once, with memory for a part of what they
// want; the thread sanitizer runs this, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <latch>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/store/store.h"
#include "tests/support/random.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/a_store.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::Random;
using testing::AStore;
using testing::Rows;
using testing::SmallForm;
using testing::SmallPage;
using testing::TagsOf;

using TagList = std::vector<uint32_t>;

// One thread's sequences, of names that nobody else uses, and what each must
// hold as long as it is there. The others' memory may drive them out.
class Caller {
 public:
  Caller(Store& store, int number)
      : store_(store),
        random_(static_cast<uint64_t>(number)),
        prefix_(absl::StrCat("thread", number, "/")) {}

  void Step() {
    now_ += std::chrono::milliseconds(10);
    const std::string name = absl::StrCat(prefix_, random_.Below(6));
    const double kind = random_.Uniform();
    if (kind < 0.55) {
      Append(name);
    } else if (kind < 0.65) {
      Truncate(name);
    } else if (kind < 0.75) {
      Fork(name, absl::StrCat(prefix_, random_.Below(6)));
    } else if (kind < 0.80) {
      if (Allows(store_.Delete("", name), name)) expected_.erase(name);
    } else if (kind < 0.85) {
      store_.Expire(now_);
    } else if (kind < 0.90) {
      EXPECT_LE(store_.List("", {}, now_)->sequences.size(), 100U);
    } else {
      Read(name);
    }
  }

 private:
  // True for OK. A sequence that is not there is forgotten: it was deleted, or
  // the store says what became of it. Memory may be out.
  bool Allows(const absl::Status& status, const std::string& name) {
    if (status.ok()) return true;
    if (absl::IsNotFound(status)) {
      const bool expected = expected_.erase(name) > 0;
      if (expected) {
        EXPECT_THAT(std::string(status.message()),
                    ::testing::AnyOf(::testing::HasSubstr("was evicted"),
                                     ::testing::HasSubstr("has expired")));
      }
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    }
    return false;
  }

  void Append(const std::string& name) {
    if (!expected_.contains(name)) {
      const NewSequence wanted{SmallForm(), name, "", std::chrono::seconds(1)};
      const auto made = store_.Create("", wanted, now_);
      if (!Allows(made.status(), name)) return;
      expected_[name] = {};
    }
    TagList& tags = expected_[name];
    const auto length = static_cast<int64_t>(tags.size());
    const auto tag = static_cast<uint32_t>(random_.Between(1, 65535));
    const Rows rows(SmallForm(), length, random_.Between(1, 100), tag);
    const auto done = store_.Append("", name, 0, length, rows.block(), now_);
    if (!Allows(done.status(), name)) return;
    tags.resize(static_cast<size_t>(done->length), tag);
  }

  void Truncate(const std::string& name) {
    if (!expected_.contains(name)) return;
    const auto length = static_cast<int64_t>(expected_[name].size() / 2);
    if (Allows(store_.Truncate("", name, length, now_), name)) {
      expected_[name].resize(static_cast<size_t>(length));
    }
  }

  void Fork(const std::string& name, const std::string& to) {
    if (!expected_.contains(name)) return;
    // What has gone from here may still be in the way, and the reverse.
    if (expected_.contains(to)) return;
    const auto fork = store_.Fork("", name, {.name = to}, now_);
    if (Allows(fork.status(), name)) expected_[to] = expected_[name];
  }

  void Read(const std::string& name) {
    const auto found = store_.Find("", name, now_);
    if (!Allows(found.status(), name)) return;
    const auto snapshot = (*found)->TakeSnapshot(0);
    if (!Allows(snapshot.status(), name)) return;
    EXPECT_EQ(TagsOf(*snapshot), expected_[name]);
  }

  Store& store_;
  Random random_;
  const std::string prefix_;
  Time now_;
  std::map<std::string, TagList> expected_;
};

TEST(StoreThreadsTest, AStoreThatIsFullNeverGivesAWrongAnswer) {
  Store store({.memory_limit = 40 * SmallPage(), .evict = true});
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&store, i] {
        Caller caller(store, i);
        for (int step = 0; step < 500; ++step) caller.Step();
      });
    }
  }
  const OwnerFigures figures = store.Figures().at(0);
  EXPECT_GT(figures.evictions, 0);
  EXPECT_LE(figures.bytes, 40 * SmallPage());
  const ListedPage all = store.List("", {}, {}).value();
  EXPECT_EQ(static_cast<int64_t>(all.sequences.size()), figures.sequences);
  for (const Description& one : all.sequences) {
    EXPECT_TRUE(store.Delete("", one.name).ok());
  }
  EXPECT_EQ(store.budget().held(), 0);
  EXPECT_EQ(store.budget().pages(), 0);
}

// Room for all of them is made by the first one.
TEST(StoreThreadsTest, ThoseWhoLackMemoryAtOnceDriveOutNoMoreThanOneAlone) {
  constexpr int kThreads = 4;
  constexpr int64_t kOnePage = 64;
  const auto fill = [](AStore& s) {
    ASSERT_TRUE(s.Create("", "large").ok());
    ASSERT_TRUE(s.Append("", "large", 64 * kOnePage, 1).ok());
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(s.Create("", absl::StrCat("small", i)).ok());
      ASSERT_TRUE(s.Append("", absl::StrCat("small", i), kOnePage, 1).ok());
    }
    for (int i = 0; i < kThreads; ++i) {
      ASSERT_TRUE(s.Create("", absl::StrCat("grows", i)).ok());
    }
  };
  AStore measured;
  fill(measured);
  const int64_t full = measured.store.budget().held();
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    AStore s({.memory_limit = full, .evict = true});
    fill(s);
    std::latch together(kThreads);
    {
      std::vector<std::jthread> threads;
      threads.reserve(kThreads);
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          together.arrive_and_wait();
          EXPECT_TRUE(s.Append("", absl::StrCat("grows", i), kOnePage, 1).ok());
        });
      }
    }
    EXPECT_EQ(s.Figures("").evictions, 1);
  }
}

}  // namespace
}  // namespace attention::store
