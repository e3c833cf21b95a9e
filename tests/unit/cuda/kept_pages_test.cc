// Pages of sequences that stay on the device: what travels, what goes, and that
// every result has the bits of pages that are brought for each request.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/store/page_layout.h"
#include "core/store/sequence.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/packed_entries.h"
#include "tests/unit/cuda/backend_fixture.h"
#include "tests/unit/store/rows.h"

namespace attention::test {
namespace {

using store::kPageKeys;
using store::Sequence;
using store::testing::MakeSequence;

AttentionProblem WithoutNumbers(AttentionProblem problem) {
  for (KeyValueBlock& block : problem.key_value) block.page = 0;
  for (KeyValueBlocks& blocks : problem.key_value_of_entries) {
    for (KeyValueBlock& block : blocks) block.page = 0;
  }
  return problem;
}

class CudaKeptPagesTest : public CudaBackendTest {
 protected:
  std::shared_ptr<Sequence> Make() const {
    return MakeSequence({.heads = heads_,
                         .key_width = width_,
                         .value_width = width_,
                         .type = type_});
  }

  // Random rows behind the last key.
  void Append(Sequence& sequence, int64_t count) {
    const OwnedProblem rows = MakeProblem(Spec(1, count), seed_++);
    ASSERT_THAT(
        sequence.Append(0, std::nullopt, rows.problem.key_value[0]).status(),
        IsOk());
  }

  std::shared_ptr<Sequence> MakeWith(int64_t keys) {
    auto sequence = Make();
    Append(*sequence, keys);
    return sequence;
  }

  ProblemSpec Spec(int64_t rows, int64_t keys) const {
    return {.batch = 1,
            .query_heads = 2 * heads_,
            .kv_heads = heads_,
            .query_length = rows,
            .key_length = keys,
            .width = width_,
            .value_width = width_,
            .type = type_,
            .causal = Causal::kBottomRight,
            .wanted = {.weights = weights_, .lse = true}};
  }

  // Of a decoded row, or of several, over all keys of a sequence, with the bits
  // that it has where the pages are brought.
  void Attend(const Sequence& sequence, int64_t rows = 1) {
    OwnedProblem owned = MakeProblem(Spec(rows, 1), seed_++);
    const store::Snapshot keys = sequence.TakeSnapshot(0).value();
    owned.problem.key_value = keys.Blocks();
    ExpectBits(owned.problem);
  }

  void ExpectBits(const AttentionProblem& problem) {
    const absl::StatusOr<Results> kept = RunOn(*engine_, problem);
    ASSERT_THAT(kept.status(), IsOk());
    const absl::StatusOr<Results> brought =
        RunOn(*engine_, WithoutNumbers(problem));
    ASSERT_THAT(brought.status(), IsOk());
    EXPECT_TRUE(SameBits(*kept, *brought));
    EXPECT_EQ(kept->kernel, brought->kernel);
  }

  DeviceFigures Figures(size_t device = 0) const {
    return engine_->backends()[0]->ReadDevices()[device];
  }

  // Bytes of so many keys with their values.
  int64_t Bytes(int64_t keys) const {
    return keys * heads_ * 2 * width_ * ByteSize(type_);
  }

  // How many bytes of pages a request brings.
  int64_t BroughtBy(const Sequence& sequence, int64_t rows = 1) {
    const int64_t before = Figures().page_bytes_brought;
    Attend(sequence, rows);
    return Figures().page_bytes_brought - before;
  }

  DataType type_ = DataType::kFloat32;
  int64_t heads_ = 2;
  int64_t width_ = 64;
  bool weights_ = false;
  std::atomic<uint64_t> seed_ = TestSeed();
};

TEST_F(CudaKeptPagesTest, AreBroughtOnce) {
  Start({});
  const auto sequence = MakeWith(300);
  EXPECT_EQ(BroughtBy(*sequence), Bytes(300));
  EXPECT_EQ(Figures().pages, 5);
  for (const int64_t rows : {1, 3, 70}) {
    EXPECT_EQ(BroughtBy(*sequence, rows), 0);
  }
}

// Counted where they are copied, not by who copies.
TEST_F(CudaKeptPagesTest, DoNotTravelASecondTime) {
  Start({});
  const auto sequence = MakeWith(1000);
  OwnedProblem owned = MakeProblem(Spec(1, 1), TestSeed());
  const store::Snapshot keys = sequence->TakeSnapshot(0).value();
  owned.problem.key_value = keys.Blocks();
  const auto uploaded_by_a_run = [&] {
    const int64_t before = faults_[0]->uploaded;
    EXPECT_THAT(RunOn(*engine_, owned.problem).status(), IsOk());
    return faults_[0]->uploaded - before;
  };
  EXPECT_GE(uploaded_by_a_run(), Bytes(1000));
  EXPECT_LT(uploaded_by_a_run(), Bytes(4));
}

TEST_F(CudaKeptPagesTest, OfEveryTypeBringOnlyNewRows) {
  Start({});
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t width : {16, 33, 128}) {
      SCOPED_TRACE(testing::Message() << Name(type) << " " << width);
      type_ = type;
      width_ = width;
      const auto sequence = MakeWith(60);
      EXPECT_EQ(BroughtBy(*sequence), Bytes(60));
      for (const int64_t more : {1, 2, 5, 64, 130, 1}) {
        Append(*sequence, more);
        EXPECT_EQ(BroughtBy(*sequence), Bytes(more)) << more;
      }
    }
  }
}

TEST_F(CudaKeptPagesTest, HaveTheRowsOfTheirSequenceAfterACut) {
  Start({});
  const auto sequence = MakeWith(100);
  Attend(*sequence);
  // Other keys where some have been; the page's other rows are brought anew,
  // for it is another page now.
  ASSERT_THAT(sequence->Truncate(90), IsOk());
  EXPECT_EQ(BroughtBy(*sequence), 0);
  Append(*sequence, 3);
  EXPECT_EQ(BroughtBy(*sequence), Bytes(93 - kPageKeys));
  EXPECT_EQ(Figures().pages, 2);
  ASSERT_THAT(sequence->Truncate(10), IsOk());
  Append(*sequence, 100);
  EXPECT_EQ(BroughtBy(*sequence), Bytes(110));
}

TEST_F(CudaKeptPagesTest, OfForksAreSharedUntilTheyDiffer) {
  Start({});
  const auto sequence = MakeWith(100);
  Attend(*sequence);
  const auto fork = sequence->Fork(std::nullopt).value();
  EXPECT_EQ(BroughtBy(*fork), 0);
  Append(*sequence, 1);  // in the page that both have
  Append(*fork, 2);      // in a copy of it
  EXPECT_EQ(BroughtBy(*sequence), Bytes(1));
  EXPECT_EQ(BroughtBy(*fork), Bytes(102 - kPageKeys));
  EXPECT_EQ(BroughtBy(*sequence), 0);
  EXPECT_EQ(Figures().pages, 3);
}

TEST_F(CudaKeptPagesTest, OfADeletedSequenceFreeTheirMemory) {
  Start({});
  auto sequence = MakeWith(500);
  auto other = MakeWith(70);
  Attend(*sequence);
  Attend(*other);
  EXPECT_EQ(Figures().pages, 8 + 2);
  sequence->Close(absl::NotFoundError("deleted"));
  EXPECT_EQ(Figures().pages, 2);
  other.reset();
  EXPECT_EQ(Figures().pages, 0);
  EXPECT_EQ(Figures().page_bytes, 0);
}

TEST_F(CudaKeptPagesTest, StayWhereASnapshotHoldsThem) {
  Start({});
  auto sequence = MakeWith(100);
  std::optional<store::Snapshot> keys = sequence->TakeSnapshot(0).value();
  Attend(*sequence);
  sequence.reset();
  EXPECT_EQ(Figures().pages, 2);
  keys.reset();
  EXPECT_EQ(Figures().pages, 0);
}

TEST_F(CudaKeptPagesTest, ThatWereUsedLongestAgoMakeRoom) {
  Start({.memory_limit = 8 * kMiB});
  const std::vector<std::shared_ptr<Sequence>> sequences = {
      MakeWith(1600), MakeWith(1600), MakeWith(1600)};
  // Each has 25 pages, and there is room for 64.
  for (const auto& sequence : sequences) {
    EXPECT_EQ(BroughtBy(*sequence), Bytes(1600));
    EXPECT_LE(Figures().page_bytes, 4 * kMiB);
    EXPECT_LE(faults_[0]->allocated, 8 * kMiB);
  }
  EXPECT_EQ(BroughtBy(*sequences[2]), 0);
  EXPECT_EQ(BroughtBy(*sequences[1]), 0);
  EXPECT_EQ(BroughtBy(*sequences[0]), Bytes(11 * kPageKeys));
  EXPECT_EQ(BroughtBy(*sequences[1]), 0);
  EXPECT_EQ(BroughtBy(*sequences[2]), Bytes(11 * kPageKeys));
}

TEST_F(CudaKeptPagesTest, OfMoreThanTheLimitAreBroughtForEachRequest) {
  Start({.memory_limit = 8 * kMiB});
  const auto small = MakeWith(100);
  const auto large = MakeWith(4200);  // 4.1 MiB
  Attend(*small);
  EXPECT_EQ(BroughtBy(*large), 0);
  EXPECT_EQ(BroughtBy(*small), 0);  // nothing had to go for what cannot fit
}

TEST_F(CudaKeptPagesTest, MakeRoomForAJobThatNeedsTheMemory) {
  Start({.memory_limit = 8 * kMiB});
  const auto sequence = MakeWith(3900);
  Attend(*sequence);
  EXPECT_GT(Figures().page_bytes, 3 * kMiB);
  // Keys and values of 6 MiB that come with the request.
  const OwnedProblem owned = MakeProblem(Spec(1, 6100), TestSeed());
  EXPECT_THAT(RunOn(*engine_, owned.problem).status(), IsOk());
  EXPECT_LT(Figures().page_bytes, 3 * kMiB);
  Attend(*sequence);
}

// Weights, matrices and slices: where keys are wanted in one piece, pages are
// moved within the device.
TEST_F(CudaKeptPagesTest, ServeEveryWay) {
  type_ = DataType::kBFloat16;
  Start({.plan = {.least_gemm_elements = 4900, .slice_bytes = 20000}});
  const auto sequence = MakeWith(200);
  Attend(*sequence);
  for (const bool weights : {false, true}) {
    weights_ = weights;
    for (const int64_t rows : {1, 5, 130}) {
      SCOPED_TRACE(testing::Message() << weights << " " << rows);
      EXPECT_EQ(BroughtBy(*sequence, rows), 0);
    }
  }
  ProblemSpec spec = Spec(3, 1);
  spec.scoring = ScoringKind::kBilinear;
  const store::Snapshot keys = sequence->TakeSnapshot(0).value();
  spec.width = width_ - 3;  // keys are wider
  OwnedProblem bilinear = MakeProblem(spec, TestSeed());
  bilinear.problem.key_value = keys.Blocks();
  ExpectBits(bilinear.problem);
  EXPECT_EQ(Figures().page_bytes_brought, Bytes(200));
}

TEST_F(CudaKeptPagesTest, OfManyEntriesAreReadInOneLaunch) {
  std::atomic<int64_t> launches = 0;
  Start({.on_tile = [&] { ++launches; }});
  std::vector<std::shared_ptr<Sequence>> sequences;
  std::vector<store::Snapshot> snapshots;
  ProblemSpec spec = Spec(1, 1);
  spec.batch = 40;
  OwnedProblem steps = MakeProblem(spec, TestSeed());
  steps.problem.key_value.clear();
  for (int64_t n = 0; n < spec.batch; ++n) {
    // A few within their first page, some with a fork of another one.
    sequences.push_back(n % 5 == 4 ? sequences[0]->Fork(8).value()
                                   : MakeWith(10 + n * 3));
    if (n % 5 == 4) Append(*sequences.back(), 1);
    snapshots.push_back(sequences.back()->TakeSnapshot(0).value());
    steps.problem.key_value_of_entries.push_back(snapshots.back().Blocks());
  }
  ExpectBits(steps.problem);
  launches = 0;
  const int64_t copies = faults_[0]->copies;
  ASSERT_THAT(RunOn(*engine_, steps.problem).status(), IsOk());
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(faults_[0]->copies - copies, 2);
}

TEST_F(CudaKeptPagesTest, StayOnTheDeviceThatHasThem) {
  Start({.devices = 3});
  std::vector<std::shared_ptr<Sequence>> sequences;
  int64_t bytes = 0;
  for (int n = 0; n < 6; ++n) {
    sequences.push_back(MakeWith(70 + n));
    bytes += Bytes(70 + n);
  }
  for (int turn = 0; turn < 2; ++turn) {
    for (const auto& sequence : sequences) Attend(*sequence);
  }
  int64_t brought = 0;
  for (size_t n = 0; n < 3; ++n) brought += Figures(n).page_bytes_brought;
  EXPECT_EQ(brought, bytes);
}

TEST_F(CudaKeptPagesTest, OfAStoppedRequestAreBroughtByTheNext) {
  Start({});
  const auto sequence = MakeWith(200);
  OwnedProblem owned = MakeProblem(Spec(1, 1), TestSeed());
  const store::Snapshot keys = sequence->TakeSnapshot(0).value();
  owned.problem.key_value = keys.Blocks();
  owned_ = std::move(owned);
  std::stop_source stop;
  const AttentionJob job =
      RunJob(stop.get_token(), [&] { stop.request_stop(); });
  EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
  Attend(*sequence);
}

TEST_F(CudaKeptPagesTest, OfALostDeviceAreBroughtToAnother) {
  Start({.devices = 2});
  const auto sequence = MakeWith(100);
  Attend(*sequence);
  const size_t first = Figures(0).pages > 0 ? 0 : 1;
  faults_[first]->launches_left = 0;
  OwnedProblem owned = MakeProblem(Spec(1, 1), TestSeed());
  const store::Snapshot keys = sequence->TakeSnapshot(0).value();
  owned.problem.key_value = keys.Blocks();
  EXPECT_EQ(RunOn(*engine_, owned.problem).status().code(),
            absl::StatusCode::kInternal);
  Attend(*sequence);
  EXPECT_EQ(Figures(1 - first).pages, 2);
}

// A second page has room beside the first, but not in whole MiB, which is what
// the pool gives.
TEST_F(CudaKeptPagesTest, ThatHaveNoRoomInWholeMiBAreNotKept) {
  Start({.memory_limit = 7 * kMiB});
  heads_ = 20;
  width_ = 128;
  std::atomic<int64_t> frees = 0;
  // An endless search for room would end here.
  faults_[0]->before_free = [&] {
    if (++frees > 100) faults_[0]->memory = 0;
  };
  const auto sequence = MakeWith(10);
  Attend(*sequence);
  Append(*sequence, 70);
  EXPECT_EQ(BroughtBy(*sequence), 0);
  EXPECT_LT(frees, 10);
  engine_.reset();  // it frees, too
}

// Allocations of 16 pages, in each of which a copy must end.
TEST_F(CudaKeptPagesTest, GoToAllocationsThatLieEdgeToEdge) {
  Start({.memory_limit = 32 * kMiB});
  faults_[0]->edge_to_edge = true;
  const auto sequence = MakeWith(40 * kPageKeys);
  EXPECT_EQ(BroughtBy(*sequence), Bytes(40 * kPageKeys));
}

TEST_F(CudaKeptPagesTest, LieEdgeToEdgeWithRowsOnTheirWay) {
  Start({.memory_limit = 32 * kMiB});
  faults_[0]->edge_to_edge = true;
  const auto sequence = MakeWith(10 * kPageKeys + 10);
  Attend(*sequence);
  Append(*sequence, 6 * kPageKeys - 10);  // the first ones to a page's middle
  EXPECT_EQ(BroughtBy(*sequence), Bytes(6 * kPageKeys - 10));
}

// Readers of a prefix that all share, each of whom appends to a fork of its
// own, with room for some of them at once.
TEST_F(CudaKeptPagesTest, AreRightUnderManyThreads) {
  Start({.memory_limit = 6 * kMiB});
  const auto prefix = MakeWith(500);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      auto mine = prefix->Fork(500 - n * 20).value();
      for (int step = 0; step < 12; ++step) {
        Append(*mine, step % 3 == 0 ? 70 : 1);
        Attend(*mine);
        if (step % 4 == 3) {
          ASSERT_THAT(mine->Truncate(480 - n * 20 + step), IsOk());
        }
        if (step % 5 == 4) mine = prefix->Fork(490).value();
        Attend(*prefix);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Figures().pages, 8);
}

}  // namespace
}  // namespace attention::test
