#ifndef ATTENTION_CORE_CUDA_DEVICE_RUNNERS_H_
#define ATTENTION_CORE_CUDA_DEVICE_RUNNERS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/cuda/device_runner.h"
#include "core/cuda/plugin.h"
#include "core/validate.h"

namespace attention::cuda {

/// The devices of a backend, of which some may be lost. Safe for several
/// threads at once.
class DeviceRunners {
 public:
  /// The limit and `grace` are each device's, as DeviceRunner has them.
  DeviceRunners(Devices devices, std::optional<int64_t> memory_limit,
                std::chrono::nanoseconds grace);

  absl::Span<const std::unique_ptr<DeviceRunner>> all() const { return all_; }

  /// That with CUDA's number `ordinal`, lost or not; null where there is none.
  DeviceRunner* Of(int64_t ordinal) const;
  /// Devices in turn, those that are lost left out; null where all are.
  DeviceRunner* Next() const;
  /// From the device at `first` on (any number); null where all are lost.
  DeviceRunner* FirstHealthy(size_t first) const;

  /// As Backend::health(): UNAVAILABLE where all are lost, INTERNAL where some
  /// are, with each one's reason.
  absl::Status Health() const;
  /// As Backend::Supports(): of the first that is not lost.
  absl::Status Supports(const ValidatedProblem& problem) const;

 private:
  std::vector<std::unique_ptr<DeviceRunner>> all_;
  mutable std::atomic<size_t> next_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_DEVICE_RUNNERS_H_
