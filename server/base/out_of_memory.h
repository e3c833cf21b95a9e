#ifndef ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
#define ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_

#include "absl/status/status.h"

namespace attention::server {

/// What std::bad_alloc is to a caller: RESOURCE_EXHAUSTED.
inline absl::Status OutOfMemory() {
  return absl::ResourceExhaustedError("the server is out of memory");
}

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_OUT_OF_MEMORY_H_
