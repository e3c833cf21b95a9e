#ifndef ATTENTION_TESTS_SUPPORT_OWNED_PROBLEM_H_
#define ATTENTION_TESTS_SUPPORT_OWNED_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "core/problem.h"
#include "core/tensor.h"
#include "core/tensor_view.h"

namespace attention::test {

/// How a tensor's elements lie in memory.
enum class Layout : uint8_t {
  kRowMajor,
  kLengthFirst,  // (B, L, H, D) for four extents, (L, B, D) for three, (D, L)
  kMisaligned,   // row-major from an odd address, each row padded by 3 bytes
  kReversed,     // row-major from the end: every stride is negative
};

/// A problem together with the memory that its views look into. Movable; the
/// views stay good.
class OwnedProblem {
 public:
  OwnedProblem() = default;
  OwnedProblem(OwnedProblem&&) noexcept = default;
  OwnedProblem& operator=(OwnedProblem&&) noexcept = default;
  OwnedProblem(const OwnedProblem&) = delete;
  OwnedProblem& operator=(const OwnedProblem&) = delete;

  AttentionProblem problem;

  /// Adds a tensor whose element at an index is `value(index)`, rounded to the
  /// type. Its memory holds not a byte more than the layout needs, so that the
  /// address sanitizer sees every read outside it.
  TensorView Add(DataType type, const Shape& shape, Layout layout,
                 absl::FunctionRef<double(absl::Span<const int64_t>)> value);

  /// The same elements as one of the problem's views, to be written to.
  static MutableTensorView Writable(const TensorView& view);

 private:
  std::vector<std::vector<std::byte>> memory_;
};

/// Calls visit(index) for every index of a shape, in row-major order.
void ForEachIndex(absl::Span<const int64_t> shape,
                  absl::FunctionRef<void(absl::Span<const int64_t>)> visit);

/// The address of an element of a view of any rank.
template <typename Byte>
Byte* ElementAddress(const BasicTensorView<Byte>& view,
                     absl::Span<const int64_t> index) {
  return view.data + std::inner_product(index.begin(), index.end(),
                                        view.strides.data(), int64_t{0});
}

/// Stores one value, rounded to the view's type.
void SetElement(const TensorView& owned, absl::Span<const int64_t> index,
                double value);

/// The same for every element.
void Fill(const TensorView& owned, double value);

/// The part of a view from `begin` up to `end` along one of its extents.
TensorView Slice(TensorView view, int extent, int64_t begin, int64_t end);

/// A row-major copy of any view.
Tensor Materialize(const TensorView& view);

/// Cuts keys and values (of one block) into blocks of at most `keys` keys, no
/// keys into one block of none.
void SplitIntoBlocks(AttentionProblem& problem, int64_t keys);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_OWNED_PROBLEM_H_
