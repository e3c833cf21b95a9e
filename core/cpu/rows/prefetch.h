#ifndef ATTENTION_CORE_CPU_ROWS_PREFETCH_H_
#define ATTENTION_CORE_CPU_ROWS_PREFETCH_H_

#include "core/cpu/block_rows.h"
#include "core/cpu/plan.h"
#include "core/cpu/rows/key_tile.h"
#include "core/result_places.h"
#include "core/validate.h"

namespace attention::cpu {

/// Has the kernels ask, while they compute `tile` for `rows`, for what is read
/// after it: the next tile of `keys`, or the next block of rows, which most
/// likely the same thread computes, and where this one's results go.
void SetPrefetch(const ValidatedProblem& problem, const ResultPlaces& places,
                 const Plan& plan, const BlockRows& rows, const KeyRange& keys,
                 const KeyTile& tile, Prefetch& prefetch);

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROWS_PREFETCH_H_
