#ifndef ATTENTION_CORE_ELEMENT_H_
#define ATTENTION_CORE_ELEMENT_H_

#include <cstddef>
#include <cstdint>

#include "core/datatype.h"

namespace attention {

/// One element at `address` (any alignment, host memory), widened exactly; the
/// 64-bit integers are rounded.
double LoadElement(DataType type, const std::byte* address);

/// `value` rounded to the nearest of `type` (ties to even), stored at `address`
/// (any alignment). For the integer types value must be in range; BOOL stores
/// value != 0. FP8 has no infinities: what rounds to more than 448 is NaN.
void StoreElement(DataType type, double value, std::byte* address);

/// One integer element of any integer type, exactly; UINT64 beyond 2^63 - 1
/// gives 2^63 - 1.
int64_t LoadInteger(DataType type, const std::byte* address);

}  // namespace attention

#endif  // ATTENTION_CORE_ELEMENT_H_
