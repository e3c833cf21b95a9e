#ifndef ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_
#define ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_

#include <grpcpp/support/byte_buffer.h>

#include "server/scheduling/sequence_order.h"

namespace attention::server {

/// What a serialized AttendRequest does with sequences, without reading its
/// tensors. Nothing where the bytes are no message, or where what names
/// sequences takes more than the 64 KiB that are decoded: such a message is
/// refused.
SequenceStep StepOfAttend(const grpc::ByteBuffer& message);

/// The same of a ModelInferRequest, which appends to what its sequence_id
/// names.
SequenceStep StepOfInfer(const grpc::ByteBuffer& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_
