// Several threads at once; the thread sanitizer runs this, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/store/sequence.h"
#include "tests/support/random.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::Random;
using testing::MakeSequence;
using testing::Rows;
using testing::SmallForm;
using testing::TagsOf;
using testing::Unlimited;

using TagList = std::vector<uint32_t>;

bool IsPrefix(const TagList& part, const TagList& whole) {
  return part.size() <= whole.size() &&
         std::equal(part.begin(), part.end(), whole.begin());
}

// Runs body(0) ... body(count - 1), each on a thread.
template <typename Body>
void OnThreads(int count, const Body& body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
}

// The tags that appends at positions must have left, in order of what was
// acknowledged.
class Journal {
 public:
  void Add(int64_t position, int64_t count, uint32_t tag) {
    const std::lock_guard lock(mutex_);
    const auto end = static_cast<size_t>(position + count);
    if (tags_.size() < end) tags_.resize(end);
    std::fill(tags_.begin() + position, tags_.begin() + position + count, tag);
  }
  const TagList& tags() const { return tags_; }

 private:
  std::mutex mutex_;
  TagList tags_;
};

// Each of several threads appends at the length that it sees, some rows of its
// own tag: one wins, the others are told so.
void AppendInARace(Sequence& sequence, uint32_t tag, Journal& journal) {
  Random random(tag);
  for (int i = 0; i < 100; ++i) {
    const int64_t length = sequence.Lengths()[0];
    const int64_t count = random.Between(1, 40);
    const Rows rows(sequence.form(), length, count, tag);
    const auto result = sequence.Append(0, length, rows.block());
    if (result.ok()) {
      EXPECT_EQ(result->new_keys, count);
      journal.Add(length, count, tag);
    } else {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kAborted);
    }
  }
}

TEST(StoreThreadsTest, RacingAppendsWinOrAreAbortedAndReadersSeePrefixes) {
  const auto sequence = MakeSequence();
  Journal journal;
  std::vector<std::vector<TagList>> seen(2);
  std::atomic<int> appending = 3;
  OnThreads(5, [&](int thread) {
    if (thread < 3) {
      AppendInARace(*sequence, static_cast<uint32_t>(thread + 1), journal);
      --appending;
      return;
    }
    while (appending > 0) {
      TagList tags = TagsOf(*sequence);
      if (seen[static_cast<size_t>(thread - 3)].size() < 50) {
        seen[static_cast<size_t>(thread - 3)].push_back(std::move(tags));
      }
    }
  });
  EXPECT_EQ(TagsOf(*sequence), journal.tags());
  for (const auto& reader : seen) {
    for (const TagList& tags : reader) {
      EXPECT_TRUE(IsPrefix(tags, journal.tags()));
    }
  }
}

// What one thread does with a fork of its own, beside what it expects to find.
class ForkedModel {
 public:
  ForkedModel(const Sequence& base, uint32_t tag)
      : fork_(base.Fork(std::nullopt).value()), tag_(tag) {
    tags_ = TagsOf(*fork_);
    for (const uint32_t of_base : tags_) EXPECT_EQ(of_base, 1U);
  }

  void Append(int64_t count) {
    const auto length = static_cast<int64_t>(tags_.size());
    const Rows rows(fork_->form(), length, count, tag_);
    EXPECT_THAT(fork_->Append(0, length, rows.block()), IsOk());
    tags_.insert(tags_.end(), static_cast<size_t>(count), tag_);
  }
  void Truncate(int64_t length) {
    EXPECT_THAT(fork_->Truncate(length), IsOk());
    tags_.resize(static_cast<size_t>(length));
  }
  // One of several steps, by chance.
  void Step(Random& random) {
    if (random.Chance(0.2)) {
      kept_.emplace_back(fork_->TakeSnapshot(0).value(), tags_);
    }
    if (random.Chance(0.3)) {
      Truncate(random.Between(0, static_cast<int64_t>(tags_.size())));
    }
    Append(random.Between(1, 50));
    EXPECT_EQ(TagsOf(*fork_), tags_);
  }
  void CheckKept() const {
    for (const auto& [snapshot, tags] : kept_) {
      EXPECT_EQ(TagsOf(snapshot), tags);
    }
  }

 private:
  const std::shared_ptr<Sequence> fork_;
  const uint32_t tag_;
  TagList tags_;
  std::vector<std::pair<Snapshot, TagList>> kept_;
};

TEST(StoreThreadsTest, ForksOfAGrowingSequenceGoTheirOwnWays) {
  const auto budget = Unlimited();
  {
    const auto base = MakeSequence(SmallForm(), budget);
    std::atomic<int> forking = 4;
    OnThreads(5, [&](int thread) {
      Random random(static_cast<uint64_t>(thread));
      if (thread == 4) {
        while (forking > 0 && base->Lengths()[0] < 2000) {
          EXPECT_THAT(testing::AppendRows(*base, random.Between(1, 9), 1),
                      IsOk());
        }
        return;
      }
      for (uint32_t round = 0; round < 4; ++round) {
        ForkedModel model(*base, 2 + round);
        for (int step = 0; step < 8; ++step) model.Step(random);
        model.CheckKept();
      }
      --forking;
    });
    for (const uint32_t tag : TagsOf(*base)) EXPECT_EQ(tag, 1U);
  }
  EXPECT_EQ(budget->held(), 0);
}

TEST(StoreThreadsTest, ClosingEndsAppendsAndLeavesSnapshots) {
  const auto budget = Unlimited();
  for (int round = 0; round < 20; ++round) {
    const auto sequence = MakeSequence(SmallForm(), budget);
    OnThreads(3, [&](int thread) {
      if (thread == 2) {
        sequence->Close(absl::NotFoundError("gone"));
        return;
      }
      for (int64_t position = 0;; position += 10) {
        const Rows rows(sequence->form(), position, 10, 1);
        const auto result = sequence->Append(0, position, rows.block());
        if (!result.ok()) {
          EXPECT_EQ(result.status().message(), "gone");
          return;
        }
        if (const auto snapshot = sequence->TakeSnapshot(0); snapshot.ok()) {
          EXPECT_GE(static_cast<int64_t>(TagsOf(*snapshot).size()),
                    position + 10);
        }
      }
    });
    EXPECT_EQ(budget->pages(), 0);
  }
  EXPECT_EQ(budget->held(), 0);
}

TEST(StoreThreadsTest, WhoMustNotWaitIsToldOfAnAppend) {
  const auto sequence = MakeSequence(SmallForm(2), Unlimited());
  EXPECT_FALSE(sequence->IsChanging(0));
  const Rows rows(SmallForm(2), 0, 10'000, 1);
  std::atomic<bool> is_seen = false;
  {
    const std::jthread appends([&] {
      while (!is_seen) {
        EXPECT_THAT(sequence->Append(0, {}, rows.block()), IsOk());
        EXPECT_THAT(sequence->Truncate(0), IsOk());
      }
    });
    while (!sequence->IsChanging(0)) std::this_thread::yield();
    is_seen = true;
    EXPECT_FALSE(sequence->IsChanging(1));
    EXPECT_FALSE(sequence->IsChanging(2));  // there is none
  }
  EXPECT_FALSE(sequence->IsChanging(0));
}

}  // namespace
}  // namespace attention::store
