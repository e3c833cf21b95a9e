#include <algorithm>

#include "core/element.h"
#include "core/validate.h"

namespace attention {
namespace {

// Positions reach 2^62 and windows 2^63, so their sums need more than 64 bits.
__extension__ using Int128 = __int128;

int64_t Clamp(Int128 value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : static_cast<int64_t>(value);
}

// The row's position, counted as key indices.
Int128 PositionOf(const ValidatedProblem& problem, int64_t batch, int64_t row) {
  int64_t offset = problem.query_position;
  if (const auto& offsets = problem.query_offsets) {
    offset =
        LoadInteger(offsets->type, offsets->data + batch * offsets->strides[0]);
  }
  return Int128{row} + offset - problem.key_position;
}

}  // namespace

KeyRange KeysInRange(const ValidatedProblem& problem, int64_t batch,
                     int64_t row) {
  KeyRange range{0, problem.key_length};
  if (problem.valid_lens) {
    const TensorView& lens = *problem.valid_lens;
    range.end = LoadInteger(
        lens.type, lens.data + batch * lens.strides[0] + row * lens.strides[1]);
  }
  const Int128 position = PositionOf(problem, batch, row);
  if (problem.causal != Causal::kNone) {
    range.end = Clamp(position + 1, 0, range.end);
  }
  if (problem.window.right) {
    range.end = Clamp(position + *problem.window.right + 1, 0, range.end);
  }
  if (problem.window.left) {
    range.begin = Clamp(position - *problem.window.left, 0, range.end);
  }
  range.begin = std::min(range.begin, range.end);
  return range;
}

bool HasRangeMask(const ValidatedProblem& problem) {
  return problem.valid_lens || problem.causal != Causal::kNone ||
         problem.window.left || problem.window.right;
}

double RowPosition(const ValidatedProblem& problem, int64_t batch,
                   int64_t row) {
  return static_cast<double>(PositionOf(problem, batch, row));
}

}  // namespace attention
