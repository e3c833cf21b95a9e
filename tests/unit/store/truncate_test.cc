#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <semaphore>
#include <thread>

#include "core/store/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/store/rows.h"

namespace attention::store {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::AppendRows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeSequence;
using testing::Rows;
using testing::SmallForm;
using testing::Tags;
using testing::TagsOf;
using testing::Unlimited;

// A page of memory. Whoever first reads it waits until another thread has done
// something.
class WatchedPage {
 public:
  explicit WatchedPage(const std::function<void()>& before_read)
      : size_(static_cast<size_t>(::sysconf(_SC_PAGESIZE))),
        memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        other_([this, before_read] {
          touched_.acquire();
          before_read();
          ::mprotect(memory_, size_, PROT_READ);
          done_.release();
        }) {
    watched_ = this;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      watched_->touched_.release();
      watched_->done_.acquire();
    };
    action.sa_flags = SA_RESETHAND;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~WatchedPage() {
    touched_.release();  // where nobody has read it
    other_.join();
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(memory_, size_);
  }
  WatchedPage(const WatchedPage&) = delete;
  WatchedPage& operator=(const WatchedPage&) = delete;

  const std::byte* Fill(const std::byte* from, size_t bytes) {
    std::memcpy(memory_, from, bytes);
    ::mprotect(memory_, size_, PROT_NONE);
    return static_cast<const std::byte*>(memory_);
  }

 private:
  inline static WatchedPage* watched_ = nullptr;

  const size_t size_;
  void* const memory_;
  std::binary_semaphore touched_{0};
  std::binary_semaphore done_{0};
  struct sigaction before_ = {};
  std::thread other_;
};

TEST(StoreTruncateTest, KeepsTheFirstKeysOfAllLayers) {
  const auto sequence = MakeSequence(SmallForm(2));
  ASSERT_THAT(AppendRows(*sequence, 200, 1, 0), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 130, 2, 1), IsOk());
  EXPECT_THAT(sequence->Truncate(130), IsOk());
  EXPECT_THAT(sequence->Lengths(), ElementsAre(130, 130));
  EXPECT_THAT(sequence->Truncate(64), IsOk());
  EXPECT_EQ(TagsOf(*sequence, 0), Tags({{64, 1}}));
  EXPECT_EQ(TagsOf(*sequence, 1), Tags({{64, 2}}));
  EXPECT_THAT(sequence->Truncate(0), IsOk());
  EXPECT_THAT(sequence->Lengths(), ElementsAre(0, 0));
}

TEST(StoreTruncateTest, BeyondALayersLengthNothingIsCut) {
  const auto sequence = MakeSequence(SmallForm(2));
  ASSERT_THAT(AppendRows(*sequence, 20, 1, 0), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 10, 1, 1), IsOk());
  EXPECT_THAT(sequence->Truncate(15),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("length: 15, there are 10 keys")));
  EXPECT_THAT(
      sequence->Truncate(-1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("length: -1")));
  EXPECT_THAT(sequence->Lengths(), ElementsAre(20, 10));
}

TEST(StoreTruncateTest, OtherKeysMayComeWhereSomeWereCut) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 200, 1), IsOk());
  for (const int64_t length : {199, 128, 100, 65, 10}) {
    ASSERT_THAT(sequence->Truncate(length), IsOk());
    ASSERT_THAT(AppendRows(*sequence, 70, 2), IsOk());
    EXPECT_EQ(TagsOf(*sequence), Tags({{length, 1}, {70, 2}}));
    ASSERT_THAT(sequence->Truncate(length), IsOk());
  }
}

TEST(StoreTruncateTest, ASnapshotKeepsWhatIsCutAndOverwritten) {
  for (const int64_t length : {150, 128, 70, 3, 0}) {
    const auto sequence = MakeSequence();
    ASSERT_THAT(AppendRows(*sequence, 160, 1), IsOk());
    const Snapshot before = sequence->TakeSnapshot(0).value();
    ASSERT_THAT(sequence->Truncate(length), IsOk());
    ASSERT_THAT(AppendRows(*sequence, 100, 2), IsOk());
    EXPECT_EQ(TagsOf(before), Tags({{160, 1}}));
    EXPECT_EQ(TagsOf(*sequence), Tags({{length, 1}, {100, 2}}));
  }
}

TEST(StoreTruncateTest, ASnapshotKeepsWhatAnAppendToAClosedOneComesTooLateFor) {
  const SequenceForm form = SmallForm();
  const auto sequence = MakeSequence(form);
  ASSERT_THAT(AppendRows(*sequence, 10, 2), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 5, 1), IsOk());
  const Snapshot before = sequence->TakeSnapshot(0).value();
  const auto page = before.Block(0).page;
  ASSERT_THAT(sequence->Truncate(10), IsOk());
  // It closes while the append compares the keys that come again.
  WatchedPage watched(
      [&sequence] { sequence->Close(absl::NotFoundError("gone")); });
  const Rows rows(form, 0, 15, 2);
  KeyValueBlock block = rows.block();
  const auto bytes =
      static_cast<size_t>(form.heads * 15 * form.key_width) * sizeof(float);
  block.key.data = watched.Fill(block.key.data, bytes);
  EXPECT_THAT(sequence->Append(0, 0, block),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("gone")));
  EXPECT_EQ(TagsOf(before), Tags({{10, 2}, {5, 1}}));
  EXPECT_EQ(before.Block(0).page, page);
}

TEST(StoreTruncateTest, AForkKeepsWhatIsCutAndOverwritten) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const auto fork = sequence->Fork(std::nullopt).value();
  ASSERT_THAT(sequence->Truncate(80), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 30, 2), IsOk());
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}}));
  ASSERT_THAT(AppendRows(*fork, 5, 3), IsOk());
  EXPECT_EQ(TagsOf(*fork), Tags({{100, 1}, {5, 3}}));
  EXPECT_EQ(TagsOf(*sequence), Tags({{80, 1}, {30, 2}}));
}

TEST(StoreTruncateTest, WhereNobodyReadsThePageIsWrittenAgain) {
  const auto budget = Unlimited();
  const auto sequence = MakeSequence(SmallForm(), budget);
  ASSERT_THAT(AppendRows(*sequence, 100, 1), IsOk());
  const std::byte* page = sequence->TakeSnapshot(0)->Blocks()[1].key.data;
  ASSERT_THAT(sequence->Truncate(90), IsOk());
  ASSERT_THAT(AppendRows(*sequence, 10, 2), IsOk());
  EXPECT_EQ(sequence->TakeSnapshot(0)->Blocks()[1].key.data, page);
  EXPECT_EQ(budget->pages(), 2);
}

TEST(StoreTruncateTest, AnAppendThatWasCutIsNoRepetition) {
  const auto sequence = MakeSequence();
  ASSERT_THAT(AppendRows(*sequence, 60, 1), IsOk());
  const Rows rows(SmallForm(), 60, 10, 2);
  ASSERT_THAT(sequence->Append(0, 60, rows.block()), IsOk());
  ASSERT_THAT(sequence->Truncate(60), IsOk());
  ASSERT_OK_AND_ASSIGN(const Appended again,
                       sequence->Append(0, 60, rows.block()));
  EXPECT_EQ(again.new_keys, 10);
  EXPECT_EQ(TagsOf(*sequence), Tags({{60, 1}, {10, 2}}));
}

}  // namespace
}  // namespace attention::store
