#ifndef ATTENTION_CORE_CPU_ROW_ID_H_
#define ATTENTION_CORE_CPU_ROW_ID_H_

#include <cstdint>

#include "core/validate.h"

namespace attention::cpu {

/// One row of a batch entry's result.
struct RowId {
  int64_t head;
  int64_t query;
};

/// Where a row stands among all rows of the results.
inline int64_t ResultRow(const ValidatedProblem& problem, int64_t batch,
                         RowId row) {
  return (batch * problem.query_heads + row.head) * problem.query_length +
         row.query;
}

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ROW_ID_H_
