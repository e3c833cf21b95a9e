#ifndef ATTENTION_CORE_STORE_GIVEN_BACK_H_
#define ATTENTION_CORE_STORE_GIVEN_BACK_H_

#include <cstdint>
#include <map>

#include "core/store/page.h"

namespace attention::store {

/// What a change of a sequence takes of its budget.
struct Growth {
  int64_t bytes = 0;
  /// A page that is copied, in these bytes, because others have it, too; null
  /// where none is.
  const Page* copied = nullptr;
};

/// What sequences give back to their budgets where all of them end: of a page
/// that several hold, nothing until all its holders are among them. Not while
/// somebody uses them.
class GivenBack {
 public:
  /// Makes room for a change, whose sequence stays: where all others that hold
  /// its copied page end, there is no need of a copy.
  explicit GivenBack(const Growth& change) {
    if (change.copied != nullptr) holders_[change.copied] = 1;
  }

  int64_t bytes() const { return bytes_; }

  /// What a sequence takes itself.
  void AddOwn(int64_t bytes) { bytes_ += bytes; }
  /// The table of a layer and the first `pages` of it. The layer and the caller
  /// hold it; where a snapshot does, too, nothing of it is given back.
  void AddTable(const PageTable& table, int64_t pages);

 private:
  int64_t bytes_ = 0;
  std::map<const Page*, int64_t> holders_;  // that end, of those with several
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_GIVEN_BACK_H_
