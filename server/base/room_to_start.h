#ifndef ATTENTION_SERVER_BASE_ROOM_TO_START_H_
#define ATTENTION_SERVER_BASE_ROOM_TO_START_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace attention::server {

/// Tries whether the process may have so many more threads at one time, each
/// with its stack, and some memory beside them. gRPC ends the process where it
/// is refused a thread, and oneTBB does, or waits for ever. RESOURCE_EXHAUSTED
/// tells how far it came, and the limits of the process; `who` takes them.
absl::Status CheckRoomToStart(absl::string_view who, int threads);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_BASE_ROOM_TO_START_H_
