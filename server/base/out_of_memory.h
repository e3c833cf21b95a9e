#ifndef ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
#define ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"

namespace attention::server {

/// What std::bad_alloc is to a caller: RESOURCE_EXHAUSTED.
inline absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("the server is out of memory");
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

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
