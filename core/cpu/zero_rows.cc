#include "core/cpu/zero_rows.h"

#include <variant>

#include "core/element.h"

namespace attention::cpu {

ZeroRows::ZeroRows(const ValidatedProblem& problem)
    : problem_(problem),
      possible_(!problem.attend_mask && !problem.bias &&
                problem.dropout.p == 0) {}

bool ZeroRows::Holds(int64_t batch, RowId row) const {
  if (!possible_) return false;
  for (int64_t i = 0; i < problem_.query_width; ++i) {
    const double element = LoadElement(
        problem_.query.type, problem_.query.At(batch, row.head, row.query, i));
    if (element != 0) return false;
  }
  return true;
}

ZeroRows::Keys ZeroRows::KeysOf(int64_t batch, RowId row) const {
  const bool own_parameters =
      std::holds_alternative<Additive>(problem_.scoring) ||
      std::holds_alternative<Bilinear>(problem_.scoring);
  const KeyRange range = KeysInRange(problem_, batch, row.query);
  return {batch, problem_.KvHead(row.head), own_parameters ? row.head : 0,
          range.begin, range.end};
}

std::optional<RowId> ZeroRows::Find(const Keys& keys) const {
  const std::lock_guard lock(mutex_);
  const auto found = stored_.find(keys);
  if (found == stored_.end()) return std::nullopt;
  return found->second;
}

void ZeroRows::Add(const Keys& keys, RowId row) {
  const std::lock_guard lock(mutex_);
  stored_.emplace(keys, row);
}

}  // namespace attention::cpu
