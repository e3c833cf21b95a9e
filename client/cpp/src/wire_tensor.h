#ifndef ATTENTION_CLIENT_WIRE_TENSOR_H_
#define ATTENTION_CLIENT_WIRE_TENSOR_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "attention/v1/attention.pb.h"
#include "core/tensor.h"

namespace attention::client {

/// Whether the wire has a name for this element type.
bool HasWireType(DataType type);

/// Copies type, shape and bytes. The type must have a name on the wire.
void WriteTensor(const Tensor& tensor, v1::Tensor& message);

/// INTERNAL, beginning with "reply: <field>", where the tensor is not
/// `present`, its type is not known or its bytes do not fit its shape;
/// RESOURCE_EXHAUSTED where there is no memory for it.
absl::StatusOr<Tensor> ReadTensor(absl::string_view field, bool present,
                                  const v1::Tensor& message);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_WIRE_TENSOR_H_
