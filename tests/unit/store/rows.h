#ifndef ATTENTION_TESTS_UNIT_STORE_ROWS_H_
#define ATTENTION_TESTS_UNIT_STORE_ROWS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/problem.h"
#include "core/store/page_budget.h"
#include "core/store/sequence.h"
#include "core/store/sequence_form.h"
#include "core/store/snapshot.h"
#include "core/tensor.h"

namespace attention::store::testing {

/// Keys and values whose bits follow from where they stand and from a tag, a
/// number below 65536 (256 for types of one byte) that can be read back: a test
/// says what a sequence holds as a list of tags, one for each key.
class Rows {
 public:
  /// Of positions first ... first + count - 1; key (Hkv, count, Dk), value
  /// (Hkv, count, Dv), with scales (Hkv, count) where the type has some.
  Rows(const SequenceForm& form, int64_t first, int64_t count, uint32_t tag);

  KeyValueBlock block() const;

 private:
  Tensor key_;
  Tensor value_;
  std::optional<Tensor> key_scale_;
  std::optional<Tensor> value_scale_;
};

/// The tags of a snapshot's keys. Fails the test where any bit is another than
/// its tag and its place say.
std::vector<uint32_t> TagsOf(const Snapshot& snapshot);
/// Of one layer as it is now.
std::vector<uint32_t> TagsOf(const Sequence& sequence, int64_t layer = 0);

/// {(5, 2), (3, 1)}: 2, 2, 2, 2, 2, 1, 1, 1.
struct Run {
  int64_t count;
  uint32_t tag;
};
std::vector<uint32_t> Tags(const std::vector<Run>& runs);

/// A form with two heads and small, uneven widths, and a budget without a
/// limit.
SequenceForm SmallForm(int64_t layers = 1);
std::shared_ptr<PageBudget> Unlimited();

/// A new sequence. Ends the process where that fails.
std::shared_ptr<Sequence> MakeSequence(
    const SequenceForm& form = SmallForm(),
    const std::shared_ptr<PageBudget>& budget = Unlimited());

/// Appends `count` keys of one tag behind the last key of a layer.
absl::StatusOr<Appended> AppendRows(Sequence& sequence, int64_t count,
                                    uint32_t tag, int64_t layer = 0);

}  // namespace attention::store::testing

#endif  // ATTENTION_TESTS_UNIT_STORE_ROWS_H_
