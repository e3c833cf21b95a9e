#ifndef ATTENTION_CORE_CPU_ZERO_ROWS_H_
#define ATTENTION_CORE_CPU_ZERO_ROWS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "core/cpu/row_id.h"
#include "core/validate.h"

namespace attention::cpu {

/// Rows whose query is all zeros, as padding is and what load generators send:
/// over the same keys they all have the same result, so that one of them is
/// computed in FP64 and the others are copies of it. Safe for several threads
/// at once.
class ZeroRows {
 public:
  explicit ZeroRows(const ValidatedProblem& problem);

  /// True where a row's result follows from its keys alone: its query is zero
  /// and no mask, bias or dropout tells it from other rows.
  bool Holds(int64_t batch, RowId row) const;

  /// What the result of such a row follows from: batch entry, key/value head,
  /// query head where parameters are a head's own, first and last key.
  using Keys = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;
  Keys KeysOf(int64_t batch, RowId row) const;

  /// A row with this result that is stored already; nothing where none is.
  std::optional<RowId> Find(const Keys& keys) const;

  /// `row`, whose result follows from `keys`, is stored.
  void Add(const Keys& keys, RowId row);

 private:
  const ValidatedProblem& problem_;
  const bool possible_;
  mutable std::mutex mutex_;
  std::map<Keys, RowId> stored_;
};

}  // namespace attention::cpu

#endif  // ATTENTION_CORE_CPU_ZERO_ROWS_H_
