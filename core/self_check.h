#ifndef ATTENTION_CORE_SELF_CHECK_H_
#define ATTENTION_CORE_SELF_CHECK_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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
///
/// A kernel in whose place others can compute is left out where it fails, and
/// `on_left_out` told which and why; what takes its place must agree.
using OnLeftOut =
    std::function<void(absl::string_view kernel, const absl::Status& why)>;
absl::Status SelfCheck(Backend& backend, WorkerPool& workers,
                       const OnLeftOut& on_left_out);

}  // namespace attention

#endif  // ATTENTION_CORE_SELF_CHECK_H_
