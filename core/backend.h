#ifndef ATTENTION_CORE_BACKEND_H_
#define ATTENTION_CORE_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/device_memory.h"
#include "core/problem.h"
#include "core/validate.h"
#include "core/worker_pool.h"

namespace attention {

/// One problem on its way through a backend: what is asked, where results go,
/// who may stop it, and what became of it.
struct AttentionJob {
  const ValidatedProblem* problem = nullptr;
  AttentionOutputs outputs;
  std::stop_token stop;
  /// Called before each tile, and between parts of one that takes long, from
  /// any of the workers, where set. It may compute another job on that thread
  /// meanwhile (a large job then gives way to a small one). Not called where a
  /// device computes.
  std::function<void()> before_tile = {};
  /// Called before each launch on a device and again and again while it, its
  /// memory or another job's pages are waited for, from the thread that waits,
  /// where set. It may request a stop, and must not compute: the job holds
  /// memory of the device that another one could wait for.
  std::function<void()> look = {};

  // Written by Backend::Run.
  /// OK, or CANCELLED where `stop` was requested before the last tile; results
  /// are then unspecified.
  absl::Status status;
  absl::string_view backend;  // static text
  absl::string_view kernel;   // static text, the kernel that answered
  int64_t tiles_total = 0;    // tiles that the whole problem has
  int64_t tiles_computed = 0;
};

/// What a backend runs on.
struct RunContext {
  WorkerPool& workers;
  /// Called after every tile, from any of the workers, where set. Tests count
  /// tiles with it; a service leaves it empty.
  std::function<void()> on_tile = {};
};

/// An accelerator.
struct BackendDevice {
  std::string name;
  int64_t memory = 0;  // bytes
};

/// What an accelerator is doing, at the moment when it was asked.
struct DeviceFigures {
  int index = 0;  // as CUDA counts the devices of this process
  std::string name;
  bool healthy = true;                // false: nothing runs on it any more
  int64_t memory = 0;                 // bytes, all that it has
  std::optional<int64_t> free = {};   // bytes that no process has taken
  int64_t held = 0;                   // bytes that this backend has taken
  std::optional<int64_t> limit = {};  // bytes that it takes at most
  int64_t pages = 0;                  // of keys that stay, copied to it
  int64_t page_bytes = 0;             // what these take, a part of `held`
  int64_t page_bytes_brought = 0;     // rows of pages that were copied to it
  int64_t problems = 0;               // computed on it
};

/// One way to compute attention. Implementations keep no state between runs
/// that a result could depend on, and may be used from several threads at once.
class Backend {
 public:
  virtual ~Backend() = default;

  /// "reference", "cpu", "cuda": what --backend and the replies call it.
  virtual absl::string_view name() const = 0;
  /// What its kernels were compiled for and chosen at run time, for people.
  virtual std::string instruction_set() const = 0;
  /// True where its kernels have not yet run on real hardware of their kind:
  /// "auto" uses it where its self check passes.
  virtual bool experimental() const { return false; }
  /// True where Run() waits for something other than the calling thread, such
  /// as a device: even the smallest problem is then for a worker.
  virtual bool waits() const { return false; }
  /// OK, or what has broken since the backend was made, in words: UNAVAILABLE
  /// where it computes nothing any more, INTERNAL where a part of it goes on.
  virtual absl::Status health() const { return absl::OkStatus(); }
  /// The accelerators that it computes on.
  virtual std::vector<BackendDevice> devices() const { return {}; }
  /// What they are doing. It asks the devices, which takes a moment: for who
  /// watches a server, not for each request. What is not known is left out:
  /// before its first problem, a device is not asked what is free.
  virtual std::vector<DeviceFigures> ReadDevices() const { return {}; }

  /// True where it reads and writes memory of CUDA devices beside the host's.
  virtual bool reaches_devices() const { return false; }
  /// Maps memory of another process on CUDA device `device`: `bytes` of what
  /// `handle`, the 64 bytes of a cudaIpcMemHandle_t, stands for.
  /// INVALID_ARGUMENT, which names raw_handle, device_id or byte_size, where
  /// there is no such memory; UNIMPLEMENTED where it does not reach devices.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> MapDeviceMemory(
      absl::string_view handle, int64_t device, int64_t bytes) const;

  /// Lets its devices reach `memory`, whole pages that stay mapped until the
  /// result is released: worth while for tensors that come from there again and
  /// again. Null where there is no device, or where the system does not allow
  /// it: such memory is then copied as any other is.
  virtual std::unique_ptr<PinnedMemory> PinHostMemory(
      absl::Span<std::byte> /*memory*/) const {
    return nullptr;
  }

  /// OK, or UNIMPLEMENTED with the reason: the next backend is then asked.
  virtual absl::Status Supports(const ValidatedProblem& problem) const = 0;

  /// Whether it has copies of all of a problem's keys and values after the
  /// first request that reads them, because they lie in pages that stay
  /// (KeyValueBlock::page) and it has room for them. The next one then brings
  /// only what was appended since. Where many such problems together have no
  /// room, it brings them again, and this does not say so: it is the same
  /// whatever others ask for.
  virtual bool KeepsKeys(const ValidatedProblem& /*problem*/) const {
    return false;
  }

  /// How many times Run() begins anew for problems that it is given together,
  /// each time with what even the smallest problem costs: those that a device
  /// computes in one launch count once. It follows from extents and options,
  /// and from whether keys stay.
  virtual int64_t CountLaunches(
      absl::Span<const ValidatedProblem* const> problems) const {
    return static_cast<int64_t>(problems.size());
  }

  /// Bytes of host memory that Run() takes for such problems together, at
  /// most: beside their tensors and results, beside the kThreadBytes that each
  /// worker may keep, and beside a device's staging buffers. Known from extents
  /// and options, as costly as planning.
  virtual int64_t WorkingBytes(absl::Span<const ValidatedProblem> /*problems*/,
                               const RunContext& /*context*/) const {
    return 0;
  }
  static constexpr int64_t kThreadBytes = 4 << 20;

  /// Computes every job, each of them supported. A job's failure is its own.
  /// The same job gives the same bits alone, beside others and with any number
  /// of workers.
  virtual void Run(absl::Span<AttentionJob> jobs,
                   const RunContext& context) const = 0;
};

inline absl::StatusOr<std::unique_ptr<DeviceMemory>> Backend::MapDeviceMemory(
    absl::string_view, int64_t, int64_t) const {
  return absl::UnimplementedError("no device memory");
}

}  // namespace attention

#endif  // ATTENTION_CORE_BACKEND_H_
