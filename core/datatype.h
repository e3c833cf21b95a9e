#ifndef ATTENTION_CORE_DATATYPE_H_
#define ATTENTION_CORE_DATATYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace attention {

/// Element types that tensors can have. query, key, value and bias use the
/// floating-point ones of 32 and 16 bits, key and value kInt8 and kFloat8, too;
/// valid_lens kInt32 or kInt64; attend_mask kBool or kUint8. The others exist
/// so that files and protocols that hold them can be read and refused by name.
enum class DataType : uint8_t {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  /// E4M3 of the OCP's 8-bit floating point specification, which has no
  /// infinities: up to 448, NaN for what has all bits but the sign set.
  kFloat8,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

/// Bytes of one element: 1, 2, 4 or 8.
int64_t ByteSize(DataType type);

/// The name that the Open Inference Protocol gives it: "FP32", "BF16", "BOOL".
/// It has none for kFloat8, which is "FP8" here.
absl::string_view Name(DataType type);

/// The inverse of Name(); nothing for a name that is not in the list.
std::optional<DataType> DataTypeFromName(absl::string_view name);

/// FP32, FP16 or BF16: what query, key and value may be.
bool IsAttentionType(DataType type);

/// INT8 or FP8: what key and value may be besides. Each of their rows then has
/// a scale.
bool IsScaledType(DataType type);

}  // namespace attention

#endif  // ATTENTION_CORE_DATATYPE_H_
