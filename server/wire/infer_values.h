#ifndef ATTENTION_SERVER_WIRE_INFER_VALUES_H_
#define ATTENTION_SERVER_WIRE_INFER_VALUES_H_

#include <google/protobuf/map.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "inference/grpc_service.pb.h"
#include "server/memory/shared_memory_registry.h"
#include "server/request/request_builder.h"

namespace attention::server {

using InferParameters =
    google::protobuf::Map<std::string, inference::InferParameter>;

/// Sets what a request's parameters say. The protocol's reserved keys are
/// passed over. INVALID_ARGUMENT for a key that is unknown, which lists the
/// known ones, and for what SetOption() refuses.
absl::Status ReadParameters(const InferParameters& parameters,
                            RequestBuilder& builder);

/// What the sequence extension says in a request.
struct InferSequence {
  std::string id;     // with its kind: the number 7 is not the text "7"
  SequenceLife life;  // its names, where NamesOf() has given them
};

/// Nothing where there is no sequence_id, or one of 0 or without text.
/// INVALID_ARGUMENT for another type, for an id of more than 100 bytes, and for
/// a start or an end without an id.
absl::StatusOr<std::optional<InferSequence>> ReadSequence(
    const InferParameters& parameters);

/// What the names of the store's sequences of that id and model begin with; no
/// others do.
std::string NamesOf(const InferSequence& sequence, absl::string_view model);

/// The store's sequences of a batch of `entries`, which the request appends to
/// and reads. `sequence` has its names.
std::vector<SequenceLayer> SequencesOf(const InferSequence& sequence,
                                       int64_t entries);

/// Whether parameters of an input or an output name a region; an empty name is
/// none.
bool NamesRegion(const InferParameters& parameters);

/// Where an input or an output lies, as its own parameters say; without a
/// region where they name none. `field` is its name, `regions` are those
/// that the caller may use. INVALID_ARGUMENT for a key that is unknown, a
/// wrong type, a size without a region, or bytes that do not lie in it;
/// NOT_FOUND for an unknown region, UNAVAILABLE where they are switched off,
/// PERMISSION_DENIED where they are not for this caller.
absl::StatusOr<RegionBytes> ReadRegion(absl::string_view field,
                                       const InferParameters& parameters,
                                       SharedMemoryAccess regions);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_VALUES_H_
