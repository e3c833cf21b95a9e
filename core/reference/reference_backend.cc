#include "core/reference/reference_backend.h"

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/element.h"
#include "core/reference/row_tile.h"
#include "core/reference/tile.h"

namespace attention {
namespace {

using reference::RowTile;
using reference::TileSizes;

// What the row tiles of one job share while they are computed. A piece of work
// is one of them, or, where weights are summed over a head's rows, all of that
// head: their order is then the same whatever the threads do.
class JobRun {
 public:
  JobRun(AttentionJob& job, const RunContext& context)
      : job_(job),
        problem_(*job.problem),
        context_(context),
        sizes_(reference::ChooseTileSizes(problem_)),
        row_tiles_per_head_((problem_.query_length + sizes_.rows - 1) /
                            sizes_.rows),
        places_(problem_, job.outputs) {}

  void Run() {
    if (problem_.query_length > 0 && problem_.batch > 0) {
      const int64_t row_tiles =
          problem_.batch * problem_.query_heads * row_tiles_per_head_;
      job_.tiles_total = row_tiles * KeyTiles();
      const int64_t of_piece =
          problem_.wanted.key_weights ? row_tiles_per_head_ : 1;
      context_.workers.ParallelFor(row_tiles / of_piece, job_.stop,
                                   [this, of_piece](int64_t index) {
                                     ComputePiece(index * of_piece, of_piece);
                                   });
    } else if (problem_.wanted.key_weights && problem_.key_length > 0) {
      // Without keys no byte bounds the number of heads.
      context_.workers.ParallelFor(
          problem_.batch * problem_.query_heads, job_.stop,
          [this](int64_t head) { ComputePiece(head, 0); });
    }
    job_.tiles_computed = computed_;
    job_.status = absl::OkStatus();
    if (out_of_memory_) {
      job_.status = absl::ResourceExhaustedError("no memory for a tile");
    } else if (stopped_ || job_.stop.stop_requested()) {
      job_.status = absl::CancelledError(
          absl::StrCat("stopped after ", job_.tiles_computed, " of at most ",
                       job_.tiles_total, " tiles"));
    }
  }

 private:
  // Tiles of keys that a row tile visits when no mask leaves any out.
  int64_t KeyTiles() const {
    int64_t tiles = 0;
    for (const auto& block : problem_.key_value) {
      tiles += (block.key_count + sizes_.keys - 1) / sizes_.keys;
    }
    return tiles * (1 + (problem_.wanted.AnyOfWeights() ? 1 : 0) +
                    (problem_.wanted.scores ? 1 : 0));
  }

  void ComputePiece(int64_t first, int64_t count) {
    try {
      std::vector<double> key_sums;
      if (problem_.wanted.key_weights) {
        key_sums.resize(static_cast<size_t>(problem_.key_length));
      }
      for (int64_t index = first; index < first + count; ++index) {
        ComputeRowTile(index, key_sums);
      }
      if (problem_.wanted.key_weights) {
        StoreKeyWeights(first / std::max<int64_t>(1, row_tiles_per_head_),
                        key_sums);
      }
    } catch (const std::bad_alloc&) {
      out_of_memory_ = true;
    }
  }

  void ComputeRowTile(int64_t index, std::vector<double>& key_sums) {
    const int64_t first = index % row_tiles_per_head_ * sizes_.rows;
    const int64_t head_index = index / row_tiles_per_head_;
    RowTile tile(problem_, sizes_, head_index / problem_.query_heads,
                 head_index % problem_.query_heads, first,
                 std::min(sizes_.rows, problem_.query_length - first));
    const bool finished =
        tile.Run(places_, key_sums, [this] { return BeginTile(); });
    if (!finished) stopped_ = true;
  }

  void StoreKeyWeights(int64_t head_index, const std::vector<double>& sums) {
    std::byte* to = places_.KeyWeights(head_index / problem_.query_heads,
                                       head_index % problem_.query_heads);
    for (const double sum : sums) {
      StoreElement(DataType::kFloat32, sum, to);
      to += sizeof(float);
    }
  }

  bool BeginTile() {
    if (job_.stop.stop_requested()) return false;
    ++computed_;
    if (context_.on_tile) context_.on_tile();
    if (job_.before_tile) job_.before_tile();
    return true;
  }

  AttentionJob& job_;
  const ValidatedProblem& problem_;
  const RunContext& context_;
  TileSizes sizes_;
  int64_t row_tiles_per_head_;
  const ResultPlaces places_;
  std::atomic<int64_t> computed_ = 0;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> out_of_memory_ = false;
};

class ReferenceBackend final : public Backend {
 public:
  absl::string_view name() const override { return "reference"; }

  std::string instruction_set() const override {
    return Eigen::SimdInstructionSetsInUse();
  }

  absl::Status Supports(const ValidatedProblem&) const override {
    return absl::OkStatus();  // the engine asks nobody for memory out of reach
  }

  int64_t WorkingBytes(absl::Span<const ValidatedProblem> problems,
                       const RunContext& context) const override {
    int64_t most = 0;
    for (const ValidatedProblem& problem : problems) {
      const int64_t row_tiles = problem.batch * problem.query_heads *
                                problem.query_length;  // or fewer
      const int64_t bytes =
          std::min<int64_t>(context.workers.threads(), row_tiles) *
          std::max<int64_t>(0, reference::RowTileBytes(problem) - kThreadBytes);
      most = std::max(most, bytes);  // one after the other
    }
    return most;
  }

  void Run(absl::Span<AttentionJob> jobs,
           const RunContext& context) const override {
    for (AttentionJob& job : jobs) {
      job.kernel = "fp64_tiles";
      JobRun(job, context).Run();
    }
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace attention
