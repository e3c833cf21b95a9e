#ifndef ATTENTION_SERVER_REQUEST_IDLE_LIMIT_H_
#define ATTENTION_SERVER_REQUEST_IDLE_LIMIT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "core/store/records.h"

namespace attention::server {

/// An idle limit in milliseconds, above 0 and up to a hundred years; nothing:
/// not given. INVALID_ARGUMENT, beginning with idle_limit_ms, otherwise.
absl::StatusOr<std::optional<store::Duration>> IdleLimitOf(
    std::optional<int64_t> ms);

int64_t ToMs(store::Duration duration);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_IDLE_LIMIT_H_
