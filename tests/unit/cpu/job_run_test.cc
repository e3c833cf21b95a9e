// The keys from among which blocks take a centre: found once for a job, not by
// each block anew, which would be quadratic in the number of queries.

#include "core/cpu/job_run.h"

#include <cstdint>
#include <vector>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/targets.h"
#include "core/validate.h"
#include "core/worker_pool.h"
#include "gtest/gtest.h"
#include "tests/support/owned_problem.h"
#include "tests/support/random.h"
#include "tests/support/random_problem.h"
#include "tests/support/results.h"
#include "tests/unit/cpu/side_by_side.h"

namespace attention::cpu {
namespace {

constexpr int64_t kQueries = 1'000'000;
constexpr int64_t kKeys = 64;

// Two batch entries, each with its own length for every row. Views of queries,
// keys and values have no memory: nobody reads them before the first piece.
struct Lengths {
  Lengths() : lens(2 * kQueries, 1) {
    const auto view = [](int64_t rows) {
      return ContiguousView(DataType::kFloat32, {2, 1, rows, 32}, nullptr);
    };
    problem.query = view(kQueries);
    problem.key_value.push_back({view(kKeys), view(kKeys)});
    problem.scoring = Gaussian{};
    problem.masks.valid_lens =
        ContiguousView(DataType::kInt32, {2, kQueries},
                       reinterpret_cast<const std::byte*>(lens.data()));
  }

  std::vector<int32_t> lens;
  AttentionProblem problem;
};

TEST(KeysForCentreTest, AreThoseOfAllRowsOfTheEntry) {
  Lengths made;
  made.lens[17] = 40;
  made.lens[kQueries + 999'999] = 50;
  const ValidatedProblem problem = *Validate(made.problem);
  WorkerPool workers(1);
  AttentionJob job;
  job.problem = &problem;
  const RunContext context{workers};
  JobRun run(job, context, Targets()[0]);
  run.Begin();
  for (const int64_t batch : {0, 1}) {
    const KeyRange keys = run.KeysForCentre(batch, {0, 1});
    EXPECT_EQ(keys.begin, 0);
    EXPECT_EQ(keys.end, batch == 0 ? 40 : 50);
  }
}

// Whatever the lengths have become: no row's is looked at again.
TEST(KeysForCentreTest, AreKnownFromTheBeginning) {
  Lengths made;
  made.lens[17] = 40;
  const ValidatedProblem problem = *Validate(made.problem);
  WorkerPool workers(1);
  AttentionJob job;
  job.problem = &problem;
  const RunContext context{workers};
  JobRun run(job, context, Targets()[0]);
  run.Begin();
  made.lens.assign(made.lens.size(), 64);
  EXPECT_EQ(run.KeysForCentre(0, {0, 64}).end, 40);
  EXPECT_EQ(run.KeysForCentre(1, {0, 64}).end, 1);
}

class BlockLengthsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 1500;

  BlockLengthsTest() {
    owned_ = test::MakeProblem({.batch = 1,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .query_length = kRows,
                                .key_length = kKeys,
                                .width = 32,
                                .value_width = 8,
                                .scoring = test::ScoringKind::kGaussian},
                               test::TestSeed());
    owned_.problem.masks.valid_lens =
        ContiguousView(DataType::kInt32, {1, kRows},
                       reinterpret_cast<const std::byte*>(lens_.data()));
    // Most blocks attend but some of the keys: a centre of theirs would show.
    for (int64_t row = 0; row < kRows; ++row) {
      lens_[static_cast<size_t>(row)] =
          1 + static_cast<int32_t>(row * kKeys / kRows);
    }
  }

  std::vector<int32_t> lens_ = std::vector<int32_t>(kRows);
  test::OwnedProblem owned_;
};

// Every block's rows are the same where, from the job's beginning on, all other
// rows' lengths are gone.
TEST_F(BlockLengthsTest, ABlockReadsThoseOfItsOwnRowsAlone) {
  const FlushSubnormals flush;
  const std::vector<int32_t> lens = lens_;
  const ValidatedProblem problem = *Validate(owned_.problem);
  const ValidatedBatch batch = *ValidateBatch(owned_.problem);
  for (const Kernels& kernels : Targets()) {
    SCOPED_TRACE(kernels.name);
    const auto run_all = [&](bool hide) {
      test::Results results =
          *test::UnwrittenResults(owned_.problem.wanted, batch);
      WorkerPool workers(1);
      AttentionJob job;
      job.problem = &problem;
      job.outputs = test::OutputsOf(results);
      const RunContext context{workers};
      JobRun run(job, context, kernels);
      const int64_t pieces = run.Begin();
      EXPECT_GT(pieces, 3);
      const int64_t block = run.plan().row_block;
      for (int64_t piece = 0; piece < pieces; ++piece) {
        for (int64_t row = 0; hide && row < kRows; ++row) {
          const auto r = static_cast<size_t>(row);
          lens_[r] = row / block == piece ? lens[r] : 0;
        }
        run.ComputePiece(piece);
      }
      lens_ = lens;
      run.End();
      EXPECT_TRUE(job.status.ok()) << job.status;
      return results.output.ToDoubles();
    };
    EXPECT_EQ(run_all(false), run_all(true));
  }
}

// One entry of eight kv groups, a token's heads side by side: what of it is one
// piece of work.
class PiecesInTurnTest : public ::testing::Test {
 protected:
  static constexpr int64_t kGroups = 8;

  // Among jobs that attend `all_by_this` times what it does.
  int64_t Pieces(int threads, double all_by_this) {
    const TensorView keys =
        HeadsSideBySide(DataType::kFloat32, keys_, kGroups, 64);
    AttentionProblem problem;
    problem.query =
        ContiguousView(DataType::kFloat32, {1, kGroups, 1, 64}, nullptr);
    problem.key_value.push_back({keys, keys});
    problem.masks.valid_lens = ContiguousView(
        DataType::kInt32, {1}, reinterpret_cast<const std::byte*>(&attended_));
    const ValidatedProblem valid = *Validate(problem);
    WorkerPool workers(threads);
    AttentionJob job;
    job.problem = &valid;
    const RunContext context{workers};
    JobRun run(job, context, Targets()[0]);
    return run.Begin(all_by_this * run.Attended());
  }

  int64_t keys_ = 1000;
  int32_t attended_ = 1000;
};

TEST_F(PiecesInTurnTest, OfOneThreadAreEntries) { EXPECT_EQ(Pieces(1, 1), 1); }

TEST_F(PiecesInTurnTest, OfSeveralThreadsAreEnoughForThem) {
  EXPECT_EQ(Pieces(4, 1), kGroups);
}

TEST_F(PiecesInTurnTest, AreEntriesAmongManyOthers) {
  EXPECT_EQ(Pieces(4, 1000), 1);
}

TEST_F(PiecesInTurnTest, AreSmallerWhereOneEntryIsMostOfAll) {
  EXPECT_EQ(Pieces(4, 1.5), kGroups);
}

TEST_F(PiecesInTurnTest, FollowFromTheKeysThatAreAttended) {
  keys_ = 131072;
  EXPECT_EQ(Pieces(4, 1), kGroups);
}

}  // namespace
}  // namespace attention::cpu
