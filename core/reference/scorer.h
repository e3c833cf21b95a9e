#ifndef ATTENTION_CORE_REFERENCE_SCORER_H_
#define ATTENTION_CORE_REFERENCE_SCORER_H_

#include <cstdint>
#include <memory>

#include "core/reference/tile.h"
#include "core/validate.h"

namespace attention::reference {

/// The scoring function a(q, k) of one query head, in FP64.
class Scorer {
 public:
  virtual ~Scorer() = default;

  /// Takes a tile of queries, (rows, Dq), and keeps what it needs of it.
  virtual void SetQueries(const Matrix& queries) = 0;

  /// scores(i, j) = a(query i, key j) for a tile of keys, (keys, Dk). Every
  /// score depends on its own query and key alone, so NaN in one stays there.
  virtual void Score(const Matrix& keys, Matrix& scores) const = 0;
};

/// The scorer that the problem's scoring function and parameters describe.
std::unique_ptr<Scorer> MakeScorer(const ValidatedProblem& problem,
                                   int64_t query_head);

}  // namespace attention::reference

#endif  // ATTENTION_CORE_REFERENCE_SCORER_H_
