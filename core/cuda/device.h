#ifndef ATTENTION_CORE_CUDA_DEVICE_H_
#define ATTENTION_CORE_CUDA_DEVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/cuda/kernels/kernel_table.h"

/// What the host code of the CUDA backend needs of a device. There are two: a
/// real one (cuda_device.h, in the plugin) and one emulated in host memory
/// (tests alone), so that everything above this line is the same for both.
namespace attention::cuda {

/// What plans follow from, beside the problem.
struct DeviceProperties {
  std::string name;            // "NVIDIA H200"
  int ordinal = 0;             // among the process's devices, as CUDA counts
  int compute_capability = 0;  // 10 * major + minor: 90
  int multiprocessors = 0;
  int64_t shared_memory_per_block = 0;  // bytes, the most a kernel may ask for
  bool wgmma = false;                   // whether attend_wgmma runs on it
  int64_t memory = 0;                   // bytes
};

/// Bytes of what another process's memory is known by: a cudaIpcMemHandle_t.
inline constexpr int64_t kSharedHandleBytes = 64;

/// Element types of matrix products.
enum class GemmType : uint8_t { kFloat32, kFloat16, kBfloat16 };

/// c = a * op(b) for each of `batch` row-major matrices: a (m, k), b (k, n), or
/// (n, k) where it is transposed, c (m, n) in FP32. Sums are FP32 (no TF32).
/// Strides are in elements.
struct Gemm {
  GemmType type = GemmType::kFloat32;  // of a and b
  bool transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  float* c = nullptr;
  int64_t a_row = 0, b_row = 0, c_row = 0;  // from one row to the next
  int64_t batch = 1;
  int64_t a_matrix = 0, b_matrix = 0, c_matrix = 0;  // to the next matrix
  /// kWorkspaceBytes of device memory that nothing else uses meanwhile.
  std::byte* workspace = nullptr;
};

/// What cuBLAS recommends for Hopper. Always of one size, because the algorithm
/// that it chooses may follow from it.
inline constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

/// The most blocks of a launch: a grid's extent along x.
inline constexpr int64_t kMostGridBlocks = std::numeric_limits<int32_t>::max();

/// What a thread does while it waits for a device. Once a stop was requested,
/// the device has `grace` to come back, and again after each mark that any of
/// its streams reaches: this one's work may stand behind others'. Without any
/// for so long, or after `patience`, it is given up.
struct Watch {
  std::function<void()> look = {};  // called again and again, where set
  std::stop_token stop = {};
  std::chrono::nanoseconds grace = std::chrono::seconds(10);
  std::chrono::nanoseconds patience = std::chrono::minutes(5);
  /// How many marks the device's streams were seen to reach: counted on, where
  /// set. To outlive the stream's waiting.
  std::atomic<int64_t>* marks = nullptr;
};

/// Work of one device in order, for one thread at a time. Copies go through
/// staging buffers of pinned host memory: kBuffers of them, so that one is
/// filled while another is copied. Every call may fail with INTERNAL, which
/// names the call and the driver's error, and may report what went wrong in
/// earlier work.
class Stream {
 public:
  static constexpr int kBuffers = 2;
  static constexpr int64_t kBufferBytes = int64_t{4} << 20;

  /// Waits for its work, unless the device is lost: what that was to read and
  /// write is then never freed.
  virtual ~Stream() = default;

  /// What the kernel table's launches take, from the calling thread and at
  /// once.
  virtual void* handle() const = 0;

  /// Staging buffer 0 ... kBuffers - 1, aligned to 256 bytes. To be written to
  /// or read after Wait(index).
  virtual std::byte* buffer(int index) const = 0;

  /// Begin a copy of `bytes` between a staging buffer, from `offset`, and
  /// device memory.
  virtual absl::Status Upload(int index, int64_t offset, std::byte* to,
                              int64_t bytes) = 0;
  virtual absl::Status Download(int index, int64_t offset,
                                const std::byte* from, int64_t bytes) = 0;
  /// Whether the device reaches `bytes` of host memory from `begin` on, because
  /// of Device::PinHost(). The next two take such memory.
  virtual bool Reaches(const std::byte* begin, int64_t bytes) const = 0;
  /// Begin a copy of `bytes` between pinned host memory and device memory.
  virtual absl::Status UploadPinned(const std::byte* from, std::byte* to,
                                    int64_t bytes) = 0;
  virtual absl::Status DownloadPinned(const std::byte* from, std::byte* to,
                                      int64_t bytes) = 0;
  /// Begins to set `bytes` of device memory to `value`.
  virtual absl::Status Fill(std::byte* to, uint8_t value, int64_t bytes) = 0;

  /// A word of host memory that kernels can write to (AttentionArgs::marked).
  /// To be read after Synchronize().
  virtual int32_t* marked() const = 0;

  /// Marks this point of the stream with mark `index`, of which there are
  /// kBuffers and kEndMark.
  virtual absl::Status Mark(int index) = 0;
  static constexpr int kEndMark = kBuffers;
  /// Whether the mark's last point is reached. It does not wait.
  virtual absl::StatusOr<bool> Reached(int index) = 0;

  /// Who is asked while this stream is waited for, from now on.
  void SetWatch(Watch watch);
  /// Returns when the mark's last point is reached. Where the device is given
  /// up, it is lost from then on, and the result CANCELLED.
  absl::Status Wait(int index);
  /// The same when all work is done.
  absl::Status Synchronize();

  /// What a launch's error code means; OK for 0.
  virtual absl::Status Launched(absl::string_view kernel, int code) = 0;

  virtual absl::Status Multiply(const Gemm& product) = 0;

 protected:
  /// Marks the device as lost, with the reason.
  virtual void Lose(absl::string_view reason) = 0;

 private:
  absl::Status GiveUp();

  Watch watch_;
  bool given_up_ = false;
};

/// One device. May be used from several threads at once.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceProperties& properties() const = 0;
  virtual const KernelTable& kernels() const = 0;

  /// Bytes of device memory that are free now, in all processes' eyes.
  virtual absl::StatusOr<int64_t> FreeMemory() = 0;

  /// Memory aligned to 256 bytes; RESOURCE_EXHAUSTED where there is none.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;

  /// Maps memory that another process has allocated and shares; `handle` is a
  /// cudaIpcMemHandle_t (kSharedHandleBytes). INVALID_ARGUMENT, which names
  /// raw_handle or byte_size, where it stands for no such memory or for less
  /// than `bytes`. What is mapped stays mapped until CloseShared().
  virtual absl::StatusOr<std::byte*> OpenShared(absl::string_view handle,
                                                int64_t bytes) = 0;
  virtual void CloseShared(std::byte* memory) = 0;

  /// Lets every device of the process copy from and to host memory by itself,
  /// until UnpinHost(): whole pages. Whatever the system says where it cannot;
  /// of UnpinHost(), the memory must then stay mapped (PinnedMemory).
  virtual absl::Status PinHost(absl::Span<std::byte> memory) = 0;
  virtual absl::Status UnpinHost(absl::Span<std::byte> memory) = 0;

  /// Copies `bytes` to host memory, and waits for it.
  virtual absl::Status CopyToHost(const std::byte* from, std::byte* to,
                                  int64_t bytes) = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;

  /// OK where Stream::Multiply() can be called, or UNAVAILABLE with the reason:
  /// there is no cuBLAS. The first call loads it.
  virtual absl::Status LoadGemm() = 0;

  /// OK, or UNAVAILABLE with the error after which nothing can be computed on
  /// it any more, until the process starts anew.
  virtual absl::Status Health() const = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_DEVICE_H_
