// Jobs that are given together: in how many launches, and with which bits.

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/packed_entries.h"
#include "tests/support/packed_problem.h"
#include "tests/unit/cuda/backend_fixture.h"

namespace attention::test {
namespace {

class CudaEntriesTest : public CudaBackendTest {
 protected:
  void StartCounting(Options options = {}) {
    options.on_tile = [this] { ++launches_; };
    Start(options);
  }

  // Runs a packed batch; every entry has the bits that it has alone. How many
  // launches the batch took.
  int64_t LaunchesOf(const PackedProblem& all) {
    launches_ = 0;
    const absl::StatusOr<Results> together =
        RunOn(*engine_, all.packed.problem);
    const int64_t launches = launches_;
    EXPECT_THAT(together.status(), IsOk());
    if (!together.ok()) return launches;
    for (size_t n = 0; n < all.entries.size(); ++n) {
      const absl::StatusOr<Results> alone =
          RunOn(*engine_, all.entries[n].problem);
      EXPECT_THAT(alone.status(), IsOk());
      EXPECT_TRUE(SameBits(ResultsOfEntry(all.packed.problem,
                                          static_cast<int64_t>(n), *together),
                           *alone))
          << "entry " << n;
    }
    return launches;
  }

  std::atomic<int64_t> launches_ = 0;
};

ProblemSpec Spec() {
  return {.query_heads = 4,
          .kv_heads = 2,
          .width = 16,
          .value_width = 16,
          .wanted = {.weights = false, .lse = true}};
}

// One row each, of any number of keys below `keys`.
std::vector<EntryLengths> Steps(int64_t count, int64_t keys) {
  std::vector<EntryLengths> lengths;
  lengths.reserve(static_cast<size_t>(count));
  for (int64_t n = 0; n < count; ++n) {
    lengths.push_back({1, keys - n * 37 % keys});
  }
  return lengths;
}

TEST_F(CudaEntriesTest, SixtyFourStepsOfDecodingAreOneLaunch) {
  StartCounting();
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    ProblemSpec spec = Spec();
    spec.type = type;
    EXPECT_EQ(LaunchesOf(MakePackedProblem(spec, Steps(64, 120), TestSeed())),
              1);
  }
}

TEST_F(CudaEntriesTest, StepsOverKeysThatAreSplitAreTwo) {
  StartCounting();
  EXPECT_EQ(LaunchesOf(MakePackedProblem(Spec(), Steps(7, 700), TestSeed())),
            2);
}

// Those of few rows, of up to 64, of more; of FP32, of up to 127, of more.
TEST_F(CudaEntriesTest, LengthsOfEveryKernelTakeALaunchForEach) {
  StartCounting();
  for (const auto& [type, launches] :
       {std::pair(DataType::kBFloat16, 3), std::pair(DataType::kFloat32, 2)}) {
    ProblemSpec spec = Spec();
    spec.type = type;
    spec.causal = Causal::kBottomRight;
    EXPECT_EQ(
        LaunchesOf(MakePackedProblem(
            spec, {{130, 150}, {1, 90}, {20, 30}, {4, 100}, {90, 90}, {3, 3}},
            TestSeed())),
        launches);
  }
}

TEST_F(CudaEntriesTest, RowsThatAreNotFiniteTakeOneMore) {
  StartCounting();
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
    ProblemSpec spec = Spec();
    spec.type = type;
    spec.causal = Causal::kTopLeft;
    PackedProblem all =
        MakePackedProblem(spec, {{3, 20}, {3, 70}, {2, 9}}, TestSeed());
    // A key of the second entry that takes part in no row.
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto spoil = [&](TensorView values, int extent, int64_t row) {
      const auto at = static_cast<size_t>(extent);
      values.data += row * values.strides[at];
      values.shape[at] = 1;
      Fill(values, nan);
    };
    spoil(all.entries[1].problem.key_value[0].value, 2, 5);
    spoil(all.packed.problem.key_value[0].value, 0, 25);
    EXPECT_EQ(LaunchesOf(all), 2);
  }
}

TEST_F(CudaEntriesTest, NoLaunchHasMoreThanItsBytes) {
  StartCounting({.plan = {.launch_bytes = 1}});
  EXPECT_EQ(LaunchesOf(MakePackedProblem(Spec(), Steps(5, 90), TestSeed())), 5);
}

TEST_F(CudaEntriesTest, WhatDoesNotFitTogetherIsComputedAlone) {
  StartCounting({.memory_limit = int64_t{64} << 10});
  EXPECT_EQ(LaunchesOf(MakePackedProblem(Spec(), Steps(64, 90), TestSeed())),
            64);
}

TEST_F(CudaEntriesTest, AStopIsForAllOfThem) {
  Start({});
  const PackedProblem all =
      MakePackedProblem(Spec(), Steps(3, 700), TestSeed());
  const ValidatedBatch batch = ValidateBatch(all.packed.problem).value();
  Results results = UnwrittenResults(all.packed.problem.wanted, batch).value();
  // So that memory is at hand, for which jobs are looked at, too.
  ASSERT_THAT(RunOn(*engine_, all.packed.problem).status(), IsOk());
  std::stop_source stop;
  int64_t looks = 0;
  std::vector<AttentionJob> jobs(3);
  for (size_t n = 0; n < jobs.size(); ++n) {
    jobs[n].problem = &batch.problems[n];
    jobs[n].outputs = batch.OutputsOf(n, OutputsOf(results));
    jobs[n].stop = stop.get_token();
    jobs[n].look = [&] {
      if (++looks == 2) stop.request_stop();
    };
  }
  EXPECT_EQ(engine_->Run(absl::MakeSpan(jobs)).code(),
            absl::StatusCode::kCancelled);
  for (const AttentionJob& job : jobs) {
    EXPECT_EQ(job.status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(job.tiles_computed, 1);
  }
}

TEST_F(CudaEntriesTest, AnErrorIsThatOfAllOfThem) {
  Start({.launches_of_the_last = 0});
  const PackedProblem all = MakePackedProblem(Spec(), Steps(3, 70), TestSeed());
  EXPECT_EQ(RunOn(*engine_, all.packed.problem).status().code(),
            absl::StatusCode::kInternal);
  EXPECT_THAT(engine_->backends()[0]->health(),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
}

// A batch of steps, each over blocks of its own or those of entry 0.
AttentionProblem WithBlocks(const OwnedProblem& steps,
                            const std::vector<OwnedProblem>& keys,
                            bool shared) {
  AttentionProblem batch = steps.problem;
  batch.key_value.clear();
  for (const OwnedProblem& of_entry : keys) {
    batch.key_value_of_entries.push_back(
        (shared ? keys[0] : of_entry).problem.key_value);
  }
  return batch;
}

class CudaPagesTest : public CudaEntriesTest {
 protected:
  static constexpr int64_t kEntries = 4;

  // Keys of each entry in blocks of `keys_per_block`, and as one.
  void Make(ProblemSpec spec, int64_t keys_per_block) {
    spec.batch = kEntries;
    steps_ = MakeProblem(spec, TestSeed());
    spec.batch = 1;
    for (uint64_t n = 0; n < kEntries; ++n) {
      spec.keys_per_block = 0;
      whole_.push_back(MakeProblem(spec, TestSeed() + n));
      spec.keys_per_block = keys_per_block;
      paged_.push_back(MakeProblem(spec, TestSeed() + n));
    }
  }

  int64_t HeldBytes() const {
    return engine_->backends()[0]->ReadDevices()[0].held;
  }

  OwnedProblem steps_;
  std::vector<OwnedProblem> whole_;
  std::vector<OwnedProblem> paged_;
};

TEST_F(CudaPagesTest, HaveTheBitsOfOnePiece) {
  Start({});
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t rows : {1, 70}) {
      std::optional<Results> whole;
      for (const int64_t page : {1, 16, 64, 100}) {
        SCOPED_TRACE(testing::Message()
                     << Name(type) << " " << page << " " << rows);
        whole_.clear();
        paged_.clear();
        ProblemSpec spec = Spec();
        spec.type = type;
        spec.query_length = rows;
        spec.key_length = 330;
        spec.causal = Causal::kBottomRight;
        Make(spec, page);
        ASSERT_OK_AND_ASSIGN(
            const Results paged,
            RunOn(*engine_, WithBlocks(steps_, paged_, false)));
        if (!whole) {
          ASSERT_OK_AND_ASSIGN(
              whole, RunOn(*engine_, WithBlocks(steps_, whole_, false)));
        }
        EXPECT_TRUE(SameBits(paged, *whole));
      }
    }
  }
}

TEST_F(CudaPagesTest, ThatEntriesShareAreBroughtOnce) {
  ProblemSpec spec = Spec();
  spec.width = spec.value_width = 64;
  spec.query_length = 1;
  spec.key_length = 2048;
  Make(spec, 64);
  const int64_t bytes = int64_t{2} * 2048 * 2 * 64 * 4;  // of one entry's
  Start({});
  ASSERT_THAT(RunOn(*engine_, WithBlocks(steps_, paged_, true)).status(),
              IsOk());
  EXPECT_GT(HeldBytes(), bytes);
  EXPECT_LT(HeldBytes(), 2 * bytes);
  Start({});
  ASSERT_THAT(RunOn(*engine_, WithBlocks(steps_, paged_, false)).status(),
              IsOk());
  EXPECT_GT(HeldBytes(), kEntries * bytes);
}

TEST_F(CudaPagesTest, InTheDevicesMemoryAreReadThere) {
  for (const int64_t page : {16, 100}) {
    SCOPED_TRACE(page);
    whole_.clear();
    paged_.clear();
    ProblemSpec spec = Spec();
    spec.kv_heads = 1;
    spec.width = spec.value_width = 64;
    spec.query_length = 1;
    spec.key_length = 4000;
    Make(spec, page);
    AttentionProblem paged = paged_[0].problem;
    for (KeyValueBlock& block : paged.key_value) {
      block.key.space = block.value.space = MemorySpace::kCudaDevice;
    }
    StartCounting();
    ASSERT_OK_AND_ASSIGN(const Results whole,
                         RunOn(*engine_, whole_[0].problem));
    StartCounting();
    launches_ = 0;
    ASSERT_OK_AND_ASSIGN(const Results in_place, RunOn(*engine_, paged));
    EXPECT_TRUE(SameBits(in_place, whole));
    EXPECT_EQ(launches_, 2);  // of split keys
    EXPECT_LT(HeldBytes(), int64_t{2} * 4000 * 64 * 4);
  }
}

}  // namespace
}  // namespace attention::test
