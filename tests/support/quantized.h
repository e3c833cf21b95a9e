#ifndef ATTENTION_TESTS_SUPPORT_QUANTIZED_H_
#define ATTENTION_TESTS_SUPPORT_QUANTIZED_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "tests/support/owned_problem.h"

namespace attention::test {

/// Adds a tensor of finite numbers, as a key or value may be: `number()` gives
/// them in row-major order. Of INT8 and FP8 each row (of the last extent) is
/// stored with the largest number of the type as its largest magnitude, and
/// `scales` set: FP32, of the other extents. Other types have none.
TensorView AddQuantized(OwnedProblem& to, DataType type, const Shape& shape,
                        Layout layout, absl::FunctionRef<double()> number,
                        std::optional<TensorView>& scales);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_QUANTIZED_H_
