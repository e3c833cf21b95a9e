#ifndef ATTENTION_SERVER_SERVICES_SEQUENCE_MESSAGES_H_
#define ATTENTION_SERVER_SERVICES_SEQUENCE_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"
#include "core/store/store.h"

/// KeyValueService's messages as the store's own types, and back. Errors are
/// INVALID_ARGUMENT and name the field.
namespace attention::server {

/// `idle_limit`: of a sequence that says nothing of it.
absl::StatusOr<store::NewSequence> FromWire(
    const v1::NewSequence& message, std::optional<store::Duration> idle_limit);

/// Of a file: all but the form, which the file has.
absl::StatusOr<store::NewSequence> FromWire(
    const v1::ImportSequenceRequest& message,
    std::optional<store::Duration> idle_limit);

absl::StatusOr<store::NewFork> FromWire(const v1::ForkRequest& message);

absl::StatusOr<store::ListQuery> FromWire(
    const v1::ListSequencesRequest& message);

void ToWire(const store::Description& from, uint64_t incarnation,
            v1::SequenceDescription& to);

/// A place in a list as text that callers give back as they got it.
std::string PageTokenOf(const store::ListPlace& place);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_SEQUENCE_MESSAGES_H_
