#ifndef ATTENTION_SERVER_MEMORY_REGION_NAMES_H_
#define ATTENTION_SERVER_MEMORY_REGION_NAMES_H_

#include <string>

#include "absl/status/status.h"

namespace attention::server {

/// A region's name: 1 to 256 letters, digits and . _ - : + = @ /.
/// INVALID_ARGUMENT otherwise.
absl::Status CheckSharedMemoryName(const std::string& name);

/// A key: one '/' or none, then 1 to 255 letters, digits and . _ - : + = @,
/// without ".."; not one that begins with triton_python_backend_shm_region_,
/// which another server keeps its own memory under. INVALID_ARGUMENT otherwise.
absl::Status CheckSharedMemoryKey(const std::string& key);

/// "shared memory region 'tensors'", for messages.
std::string RegionPlace(const std::string& name);

/// UNAVAILABLE: what is said where shared memory is switched off.
absl::Status SharedMemoryIsOff();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_REGION_NAMES_H_
