#ifndef ATTENTION_SERVER_WIRE_DATA_TYPES_H_
#define ATTENTION_SERVER_WIRE_DATA_TYPES_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "core/datatype.h"

/// Datatypes as attention.v1 has them.
namespace attention::server {

/// Nothing where it is unspecified or unknown.
std::optional<DataType> FromWire(v1::DataType type);
/// DATA_TYPE_UNSPECIFIED for a type that the API does not have.
v1::DataType ToWire(DataType type);

/// The type of a tensor's elements. INVALID_ARGUMENT names the field and what
/// is expected, where it is none.
absl::StatusOr<DataType> DataTypeOf(absl::string_view field,
                                    const v1::Tensor& tensor,
                                    absl::string_view expected);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_DATA_TYPES_H_
