#include <cstdint>

#include "core/cuda/plan.h"
#include "core/cuda/plan_memory.h"
#include "core/validate_parts.h"

namespace attention::cuda {
namespace {

bool LiesInPlace(const TensorView& view) {
  return view.space == MemorySpace::kCudaDevice && IsRowMajor(view) &&
         reinterpret_cast<uintptr_t>(view.data) % kReadAlignment == 0;
}

// Whether its rows lie as kernels read them.
bool HasAlignedRows(const TensorView& mask) {
  const Compact compact = CompactOf(mask);
  int64_t elements = 1;
  for (const int64_t extent : compact.extents) {
    elements = Product({elements, extent});
  }
  return elements == compact.elements;
}

}  // namespace

InPlace InPlaceOf(const ValidatedProblem& problem,
                  const AttentionOutputs& outputs) {
  InPlace in_place;
  in_place.query = LiesInPlace(problem.query);
  // Several blocks are brought side by side.
  if (problem.key_value.size() == 1) {
    in_place.key = LiesInPlace(problem.key_value[0].key);
    in_place.value = LiesInPlace(problem.key_value[0].value);
  }
  in_place.bias = problem.bias && HasAlignedRows(*problem.bias) &&
                  LiesInPlace(internal::WithoutRepeats(*problem.bias));
  in_place.output = LiesInPlace(ReadOnly(outputs.output));
  in_place.weights =
      problem.wanted.weights && LiesInPlace(ReadOnly(outputs.weights));
  in_place.lse = problem.wanted.lse && LiesInPlace(ReadOnly(outputs.lse));
  return in_place;
}

}  // namespace attention::cuda
