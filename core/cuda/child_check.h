#ifndef ATTENTION_CORE_CUDA_CHILD_CHECK_H_
#define ATTENTION_CORE_CUDA_CHILD_CHECK_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"

namespace attention::cuda {

/// What became of a plugin's self check.
struct ChildCheck {
  /// OK where the devices agree with the reference, or where there is none to
  /// be checked; otherwise INTERNAL, with what went wrong and in which case:
  /// a wrong result, a device's error, a process that ended, or one that said
  /// nothing for too long.
  absl::Status status;
  /// OK; or why Hopper's own kernels, the newest, are to be left out: with them
  /// the check failed, without them it did not.
  absl::Status without_wgmma;
  /// OK; or why no problem goes through cuBLAS.
  absl::Status without_gemm;
  /// The devices that were checked: "sm_90 (NVIDIA H200)".
  std::string devices;
};

/// Runs the self check of a plugin by the program kCheckProgram beside it. A
/// kernel that hangs holds up a process for ever, and one that faults leaves
/// CUDA unusable in the process: here neither is the caller's. After a failure
/// in which Hopper's own kernels may have run, a second process goes without
/// them.
/// FAILED_PRECONDITION where the program cannot be started.
///
/// `patience` is for one case; the first one sets up the device and may compile
/// kernels for it. A device that hangs is waited for twice as long at most:
/// less than startupProbe and start-period in deploy/ and docker/ allow.
ChildCheck CheckInChild(const std::string& plugin,
                        std::chrono::milliseconds patience);
inline constexpr char kCheckProgram[] = "attention-cuda-check";

/// Lines that the program writes, each to be followed by what it is about.
inline constexpr char kSaysDevices[] = "devices ";
/// Hopper's own kernels may run from here on.
inline constexpr char kSaysWgmma[] = "wgmma";
inline constexpr char kSaysNoGemm[] = "no-gemm ";
inline constexpr char kSaysCase[] = "case ";
inline constexpr char kSaysFailed[] = "failed ";
inline constexpr char kSaysDone[] = "done";
/// Its argument after the plugin.
inline constexpr char kWithoutWgmma[] = "--without-wgmma";

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CHILD_CHECK_H_
