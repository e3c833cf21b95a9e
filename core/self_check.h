#ifndef ATTENTION_CORE_SELF_CHECK_H_
#define ATTENTION_CORE_SELF_CHECK_H_

#include "absl/status/status.h"
#include "core/backend.h"
#include "core/worker_pool.h"

namespace attention {

/// Computes some small problems with `backend` and with the reference, at least
/// one for each of its kernels, on each of its devices; takes well under a
/// second on a device. OK where all results agree; INTERNAL with the first
/// that does not:
///   bf16 causal: output element 17 is 0.25 (0.3125 is expected)
/// What a backend must pass that is experimental before "auto" uses it: it
/// finds a kernel that does something else on this device, and leaves it to the
/// tests to find wrong roundings.
absl::Status SelfCheck(const Backend& backend, WorkerPool& workers);

}  // namespace attention

#endif  // ATTENTION_CORE_SELF_CHECK_H_
