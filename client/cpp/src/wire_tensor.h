#ifndef ATTENTION_CLIENT_WIRE_TENSOR_H_
#define ATTENTION_CLIENT_WIRE_TENSOR_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "core/tensor.h"

namespace attention::client {

/// The wire's name of an element type, DATA_TYPE_UNSPECIFIED where it has none;
/// and back.
v1::DataType ToWire(DataType type);
std::optional<DataType> FromWire(v1::DataType wire);

/// Whether the wire has a name for this element type.
bool HasWireType(DataType type);

/// Sets type and shape, not the bytes. The type must have a name on the wire.
void DescribeTensor(const Tensor& tensor, v1::Tensor& message);

/// `bytes`, of any type and shape, as what `description` says that they are:
/// its data is not looked at. INTERNAL, beginning with "reply: <field>", where
/// the type is not known or the bytes do not fit the shape.
absl::StatusOr<Tensor> AsDescribed(absl::string_view field,
                                   const v1::Tensor& description, Tensor bytes);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_WIRE_TENSOR_H_
