#ifndef ATTENTION_SERVER_BASE_ROOM_TO_START_H_
#define ATTENTION_SERVER_BASE_ROOM_TO_START_H_

#include "absl/status/status.h"

namespace attention::server {

/// Tries whether the process may have so many more threads at one time, each
/// with its stack, and some memory beside them. gRPC and oneTBB end the process
/// where they are refused a thread. RESOURCE_EXHAUSTED tells how far it came,
/// and the limits of the process.
absl::Status CheckRoomToStart(int threads);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_ROOM_TO_START_H_
