#include "core/cpu/small_problem.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <variant>

#include "core/cpu/flush_subnormals.h"
#include "core/cpu/scoring/score_unit.h"
#include "core/cpu/tile_rows.h"

namespace attention::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Larger ones are computed faster in tiles, or worth a second thread.
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostMultiplications = int64_t{64} * 1024;

// Rows of a head that are brought into order at a time.
constexpr int64_t kRowsInOrder = kSmallKeys;

// Rows of one head as floats: where they lie, or, of several blocks or in
// another layout, side by side in a copy. Which of the two must not show in a
// result.
class SmallRows {
 public:
  SmallRows(const Kernels& kernels, const TensorView* in_one_piece,
            int64_t width)
      : kernels_(kernels),
        in_place_(in_one_piece != nullptr && AreFloats(*in_one_piece)
                      ? in_one_piece
                      : nullptr),
        stride_(in_place_ != nullptr ? in_place_->strides[2] / kFloat : width),
        width_(width) {}

  bool in_place() const { return in_place_ != nullptr; }
  int64_t stride() const { return stride_; }  // in floats
  const float* At(int64_t batch, int64_t head) const {
    return reinterpret_cast<const float*>(in_place_->At(batch, head, 0, 0));
  }
  // Asks the second-level cache for the rows of a head where they lie.
  void Prefetch(int64_t batch, int64_t head, int64_t count) const {
    if (!in_place()) return;
    for (int64_t n = 0; n < count; ++n) {
      const std::byte* const row = in_place_->At(batch, head, n, 0);
      for (int64_t at = 0; at < width_ * kFloat; at += kLine) {
        __builtin_prefetch(row + at, 0, 2);
      }
    }
  }
  // `count` rows, row `at` and those behind it, at most kRowsInOrder in all.
  const float* Copy(const RowSource& rows, int64_t at, int64_t count) {
    kernels_.widen_rows(rows, count, width_, copy_.data() + at * width_, width_,
                        width_);
    return copy_.data();
  }

 private:
  static bool AreFloats(const TensorView& view) {
    return view.strides[3] == kFloat && view.strides[0] % kFloat == 0 &&
           view.strides[1] % kFloat == 0 && view.strides[2] % kFloat == 0 &&
           reinterpret_cast<uintptr_t>(view.data) % kFloat == 0;
  }

  const Kernels& kernels_;
  const TensorView* in_place_;
  int64_t stride_;
  int64_t width_;
  std::array<float, kRowsInOrder * kSmallWidth> copy_;
};

// Keys, or values, of every head.
class SmallKeys {
 public:
  SmallKeys(const ValidatedProblem& problem, const Kernels& kernels,
            const BlockTensors& of, int64_t width)
      : problem_(problem),
        of_(of),
        rows_(kernels,
              problem.key_value.size() == 1 ? &(problem.key_value[0].*of.rows)
                                            : nullptr,
              width) {}

  int64_t stride() const { return rows_.stride(); }
  void Prefetch(int64_t batch, int64_t head) const {
    if (batch == problem_.batch) return;
    rows_.Prefetch(batch, head, problem_.key_length);
  }
  // Good until the next call.
  const float* Of(int64_t batch, int64_t head) {
    if (rows_.in_place()) return rows_.At(batch, head);
    const float* copy = nullptr;
    TileRows(problem_, of_, batch, head, {0, problem_.key_length})
        .ForEachPiece([&](const RowSource& some, int64_t at, int64_t count) {
          copy = rows_.Copy(some, at, count);
        });
    return copy;
  }

 private:
  const ValidatedProblem& problem_;
  BlockTensors of_;
  SmallRows rows_;
};

// Whether `entries` of the batch together have few rows and multiplications.
// False without rows, where a batch may have any number of heads.
bool AreFew(const ValidatedProblem& problem, int64_t entries) {
  const int64_t rows = entries * problem.query_heads * problem.query_length;
  return rows > 0 && rows <= kMostRows &&
         rows * problem.key_length *
                 (problem.key_width + problem.value_width) <=
             kMostMultiplications;
}

// All rows of a head, whose keys and values `args` has. False where a result is
// not finite.
bool AttendHead(const ValidatedProblem& problem, const Kernels& kernels,
                int64_t batch, int64_t head, SmallRows& queries,
                SmallArgs args) {
  if (queries.in_place()) {
    args.query = queries.At(batch, head);
    return kernels.attend_small(args);
  }
  for (int64_t first = 0; first < problem.query_length; first += args.rows) {
    args.rows = std::min(kRowsInOrder, problem.query_length - first);
    args.query =
        queries.Copy(RowsOf(problem.query, batch, head, first), 0, args.rows);
    if (!kernels.attend_small(args)) return false;
    args.output += args.rows * args.output_stride;
  }
  return true;
}

}  // namespace

bool HasSmallEntries(const ValidatedProblem& problem) {
  // Extents first: most problems are done with here.
  if (problem.batch == 0 || problem.key_length > kSmallKeys ||
      problem.key_length == 0 || problem.key_width > kSmallWidth ||
      problem.value_width > kSmallWidth || !AreFew(problem, 1)) {
    return false;
  }
  return std::holds_alternative<ScaledDotProduct>(problem.scoring) &&
         problem.query.type == DataType::kFloat32 &&
         problem.key_type == DataType::kFloat32 && !problem.softcap &&
         !HasRangeMask(problem) && !problem.attend_mask && !problem.bias &&
         !problem.alibi_slopes && !problem.sinks && problem.dropout.p == 0 &&
         problem.wanted.OfOneSweep() && !problem.wanted.lse;
}

bool IsSmallProblem(const ValidatedProblem& problem) {
  return HasSmallEntries(problem) && AreFew(problem, problem.batch);
}

bool ComputeSmall(const ValidatedProblem& problem, const ResultPlaces& places,
                  const Kernels& kernels, int64_t first, int64_t end) {
  const FlushSubnormals fast;
  if (places.output_row_stride() % kFloat != 0) return false;
  SmallRows queries(kernels, &problem.query, problem.query_width);
  SmallKeys keys(problem, kernels, kKeys, problem.key_width);
  SmallKeys values(problem, kernels, kValues, problem.value_width);
  SmallArgs args = {};
  args.rows = problem.query_length;
  args.keys = problem.key_length;
  args.width = problem.key_width;
  args.value_width = problem.value_width;
  args.query_stride = queries.stride();
  args.key_stride = keys.stride();
  args.value_stride = values.stride();
  args.output_stride = places.output_row_stride() / kFloat;
  args.factor = FactorOf(problem.scale * UnitOf(problem).one);
  for (int64_t batch = first; batch < end; ++batch) {
    for (int64_t head = 0; head < problem.query_heads; ++head) {
      const int64_t kv_head = problem.KvHead(head);
      args.key = keys.Of(batch, kv_head);
      args.value = values.Of(batch, kv_head);
      // Most likely this thread's next: so few keys are read in no order that
      // the processor foresees.
      keys.Prefetch(batch + 1, kv_head);
      values.Prefetch(batch + 1, kv_head);
      args.output = reinterpret_cast<float*>(places.Output(batch, head, 0));
      if (!AttendHead(problem, kernels, batch, head, queries, args)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace attention::cpu
