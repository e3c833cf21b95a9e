#ifndef ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
#define ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"

namespace attention::server {

/// What std::bad_alloc is to a caller: RESOURCE_EXHAUSTED. A copy of a status
/// takes no memory.
inline absl::Status OutOfMemory() {
  static const auto& status = *new absl::Status(
      absl::StatusCode::kResourceExhausted, "the server is out of memory");
  return status;
}

/// What `function` gives, an absl::Status or StatusOr, or `otherwise` where it
/// raises std::bad_alloc: the one exception that running out of memory in a
/// library can raise here, which ends the request and not the process.
template <typename Function, typename Otherwise = absl::Status (*)()>
auto WithoutBadAlloc(Function function, Otherwise otherwise = OutOfMemory)
    -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return otherwise();
  }
}

/// For what nobody is refused for: where it raises std::bad_alloc, the rest of
/// it is left out.
template <typename Function>
void IfMemoryAllows(Function function) {
  const auto done = [&function] {
    function();
    return absl::OkStatus();
  };
  WithoutBadAlloc(done, absl::OkStatus).IgnoreError();
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
