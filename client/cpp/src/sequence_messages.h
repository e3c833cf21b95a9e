#ifndef ATTENTION_CLIENT_SEQUENCE_MESSAGES_H_
#define ATTENTION_CLIENT_SEQUENCE_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"
#include "attention_client/sequences.h"

/// Between the structs of sequences.h and the messages of KeyValueService,
/// Append aside (request_encoder.h). Nothing here checks what the server
/// checks.
namespace attention::client {

/// INVALID_ARGUMENT, naming the sequence, for an element type that the wire has
/// no name for.
absl::StatusOr<v1::CreateSequencesRequest> ToProto(
    const std::vector<NewSequence>& sequences);

v1::ForkRequest ToProto(const std::string& name, const NewFork& fork);
v1::ListSequencesRequest ToProto(const SequenceQuery& query);
v1::ImportSequenceRequest ToProto(const SequenceImport& import);

/// INTERNAL, beginning with "reply: ", for a datatype that is not known.
absl::StatusOr<SequenceDescription> FromProto(
    const v1::SequenceDescription& message);

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_SEQUENCE_MESSAGES_H_
