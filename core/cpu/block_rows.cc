#include "core/cpu/block_rows.h"

#include <algorithm>

namespace attention::cpu {

BlockRows::BlockRows(const ValidatedProblem& problem, const Plan& plan,
                     int64_t index)
    : index_(index), query_length_(problem.query_length) {
  const int64_t group = index / plan.blocks_per_group;
  const int64_t groups_per_batch = problem.query_heads / plan.heads_per_group;
  batch_ = group / groups_per_batch;
  first_head_ = group % groups_per_batch * plan.heads_per_group;
  kv_head_ = problem.KvHead(first_head_);
  first_row_ = index % plan.blocks_per_group * plan.row_block;
  count_ = std::min(plan.row_block, plan.rows_per_group - first_row_);
}

KeyRange KeysOfRows(const ValidatedProblem& problem, const BlockRows& rows) {
  if (!HasRangeMask(problem)) return {0, problem.key_length};
  KeyRange all = {problem.key_length, 0};
  rows.ForEach([&](int64_t /*row*/, int64_t /*head*/, int64_t query) {
    Include(KeysInRange(problem, rows.batch(), query), all);
  });
  return all;
}

}  // namespace attention::cpu
