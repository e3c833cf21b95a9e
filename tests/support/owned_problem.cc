#include "tests/support/owned_problem.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/element.h"

namespace attention::test {
namespace {

// Extents from the outermost in memory to the innermost.
std::vector<int> MemoryOrder(int rank, Layout layout) {
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout == Layout::kLengthFirst && rank >= 2) {
    const int last = rank == 2 ? 1 : rank - 2;
    std::swap(order[last - 1], order[last]);
  }
  return order;
}

}  // namespace

TensorView OwnedProblem::Add(
    DataType type, const Shape& shape, Layout layout,
    absl::FunctionRef<double(absl::Span<const int64_t>)> value) {
  const int rank = static_cast<int>(shape.size());
  const bool misaligned = layout == Layout::kMisaligned;
  TensorView view{.type = type, .shape = shape, .strides = Shape(rank)};
  int64_t bytes = ByteSize(type);
  const std::vector<int> order = MemoryOrder(rank, layout);
  for (auto extent = order.rbegin(); extent != order.rend(); ++extent) {
    view.strides[*extent] = bytes;
    bytes *= shape[*extent];
    if (misaligned && extent == order.rbegin()) bytes += 3;
  }
  const int64_t offset = misaligned ? 1 : 0;
  std::vector<std::byte>& memory = memory_.emplace_back(offset + bytes);
  view.data = memory.data() + offset;
  if (layout == Layout::kReversed && bytes > 0) {
    for (int extent = 0; extent < rank; ++extent) {
      view.data += (shape[extent] - 1) * view.strides[extent];
      view.strides[extent] = -view.strides[extent];
    }
  }
  std::byte* const first = const_cast<std::byte*>(view.data);
  const int64_t* const strides = view.strides.data();
  ForEachIndex(shape, [&](absl::Span<const int64_t> index) {
    StoreElement(type, value(index),
                 first + std::inner_product(index.begin(), index.end(), strides,
                                            int64_t{0}));
  });
  return view;
}

MutableTensorView OwnedProblem::Writable(const TensorView& view) {
  return {.type = view.type,
          .shape = view.shape,
          .strides = view.strides,
          // The memory is a vector's of our own and not const.
          .data = const_cast<std::byte*>(view.data),
          .space = view.space};
}

void ForEachIndex(absl::Span<const int64_t> shape,
                  absl::FunctionRef<void(absl::Span<const int64_t>)> visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  // Plain pointers: sanitizers' builds, which inline nothing, spend most of a
  // test here.
  std::vector<int64_t> index(shape.size(), 0);
  int64_t* const at = index.data();
  const int64_t* const extents = shape.data();
  while (true) {
    visit(index);
    int extent = static_cast<int>(shape.size()) - 1;
    while (extent >= 0 && ++at[extent] == extents[extent]) at[extent--] = 0;
    if (extent < 0) return;
  }
}

void SetElement(const TensorView& owned, absl::Span<const int64_t> index,
                double value) {
  // As in Writable(), of which the copied shape would cost more than all else.
  StoreElement(owned.type, value,
               const_cast<std::byte*>(ElementAddress(owned, index)));
}

void Fill(const TensorView& owned, double value) {
  ForEachIndex(owned.shape, [&](absl::Span<const int64_t> index) {
    SetElement(owned, index, value);
  });
}

TensorView Slice(TensorView view, int extent, int64_t begin, int64_t end) {
  // A tensor without elements has no memory.
  if (end > begin && view.data != nullptr) {
    view.data += begin * view.strides[extent];
  }
  view.shape[extent] = end - begin;
  return view;
}

Tensor Materialize(const TensorView& view) {
  Tensor tensor = Tensor::Create(view.type, view.shape).value();
  std::byte* target = tensor.data();
  const int64_t size = ByteSize(view.type);
  ForEachIndex(view.shape, [&](absl::Span<const int64_t> index) {
    std::memcpy(target, ElementAddress(view, index), size);
    target += size;
  });
  return tensor;
}

void SplitIntoBlocks(AttentionProblem& problem, int64_t keys) {
  const KeyValueBlock whole = problem.key_value.at(0);
  const int extent = whole.key.rank() - 2;
  const int64_t count = whole.key.shape[extent];
  problem.key_value.clear();
  // No keys are one block of none: it still says how wide they would be.
  int64_t begin = 0;
  do {
    const int64_t end = std::min(count, begin + keys);
    KeyValueBlock block = {Slice(whole.key, extent, begin, end),
                           Slice(whole.value, extent, begin, end)};
    if (whole.key_scale) {
      block.key_scale = Slice(*whole.key_scale, extent, begin, end);
      block.value_scale = Slice(*whole.value_scale, extent, begin, end);
    }
    problem.key_value.push_back(block);
    begin = end;
  } while (begin < count);
}

}  // namespace attention::test
