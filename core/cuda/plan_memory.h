#ifndef ATTENTION_CORE_CUDA_PLAN_MEMORY_H_
#define ATTENTION_CORE_CUDA_PLAN_MEMORY_H_

#include <cstdint>
#include <initializer_list>

#include "core/cuda/plan.h"
#include "core/tensor_view.h"
#include "core/validate.h"

/// The parts of MakePlan() that say what lies where in the job's block of
/// device memory. They are called in this order; PlaceScratch() needs the
/// method and the splits.
namespace attention::cuda {

/// Whatever has a place in device memory begins at a multiple of so many bytes.
inline constexpr int64_t kPlaceAlignment = 256;
/// Kernels move so many bytes at a time.
inline constexpr int64_t kReadAlignment = 16;

/// The product of factors >= 0, or 2^62 where it is more.
int64_t Product(std::initializer_list<int64_t> factors);

/// A mask or bias of four extents as kernels read it: its elements once,
/// row-major, but rows that begin at multiples of 16 bytes.
struct Compact {
  int64_t extents[4];  // 1 where broadcast
  int64_t strides[4];  // elements; 0 where broadcast
  int64_t elements;    // with what lies between rows
};
Compact CompactOf(const TensorView& view);

/// Extents and options of a problem with keys; places for query, key and value.
Plan PlanOfInputs(const ValidatedProblem& problem, const InPlace& in_place);
/// Scoring, with what it makes of queries and keys.
void SetScoring(const ValidatedProblem& problem, Plan& plan);
void SetMasks(const ValidatedProblem& problem, Plan& plan);
void PlaceScratch(const ValidatedProblem& problem, const PlanOptions& options,
                  Plan& plan);
void PlaceResults(const ValidatedProblem& problem, Plan& plan);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PLAN_MEMORY_H_
