#ifndef ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_
#define ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_

#include <grpcpp/support/byte_buffer.h>

#include "server/scheduling/sequence_order.h"

namespace attention::server {

/// What a serialized AttendRequest does with sequences, without reading its
/// tensors. Of bytes that are no message, what is found up to there: they are
/// refused when they are decoded.
SequenceStep StepOfAttend(const grpc::ByteBuffer& message);

/// The same of a ModelInferRequest, which appends to what its sequence_id
/// names.
SequenceStep StepOfInfer(const grpc::ByteBuffer& message);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_SEQUENCE_STEPS_H_
