#ifndef ATTENTION_CORE_CUDA_TRANSFER_H_
#define ATTENTION_CORE_CUDA_TRANSFER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/cuda/device.h"
#include "core/tensor_view.h"
#include "core/worker_pool.h"

/// Copies between the caller's memory and the device, through a stream's
/// staging buffers: while one buffer is on its way, the other one is filled or
/// emptied. What is pinned already, and large, is copied from or to where it
/// lies. After a failure nothing more is done.
namespace attention::cuda {

/// Less goes through staging buffers in any case, where it shares a copy with
/// what else is small.
inline constexpr int64_t kLeastPinnedCopy = int64_t{64} << 10;

/// Two tensors with fewer bytes between them in device memory go in one copy.
inline constexpr int64_t kMostPadding = 256;

/// So many bytes of a staging buffer are filled by one worker at a time, and
/// by several where there are at least kLeastShared: with less, they would wait
/// for each other for longer than one copies.
inline constexpr int64_t kSharedPiece = int64_t{256} << 10;
inline constexpr int64_t kLeastShared = 4 * kSharedPiece;

/// Gathers tensors, whatever their strides, into row-major device memory.
class Uploader {
 public:
  /// `workers`, where set, take part in what is large.
  explicit Uploader(Stream& stream, WorkerPool* workers = nullptr)
      : stream_(stream), workers_(workers) {}

  /// What is appended from here on goes to `to` ... in device memory.
  void Begin(std::byte* to);
  /// The same, where the bytes up to `to` belong to nobody if they are fewer
  /// than kMostPadding after the end of the tensor before: both then go in one
  /// copy, which for small tensors takes no longer than one of them.
  void BeginNext(std::byte* to);
  /// `bytes` as they lie in host memory. Pinned ones must stay as they are
  /// until the next Synchronize() of the stream returns.
  void Append(const void* data, int64_t bytes);
  /// The elements of a view of any rank, row-major.
  void AppendView(const TensorView& view);
  /// Begins the copies that are left.
  absl::Status Finish();

 private:
  // Room in the buffer for some of `bytes`, at least one `unit`; how many of
  // them is returned. 0 after a failure.
  int64_t Room(int64_t bytes, int64_t unit);
  std::byte* Place() const { return stream_.buffer(index_) + end_; }
  // Elements, or rows of fewer bytes than kLeastPinnedCopy.
  void AppendStrided(const std::byte* data, int64_t count, int64_t stride,
                     int64_t size);
  void AppendFrom(const TensorView& view, size_t extent, const std::byte* data);
  // Calls fill(first, count) for all of `count` units of `size` bytes, by the
  // workers where that pays.
  void Share(int64_t count, int64_t size,
             absl::FunctionRef<void(int64_t first, int64_t count)> fill) const;
  // Begins the copy of what the buffer holds of this tensor.
  void Flush();

  Stream& stream_;
  WorkerPool* const workers_;
  absl::Status status_;
  std::byte* to_ = nullptr;
  int index_ = 0;
  int64_t begin_ = 0;  // of what is not copied yet, in the buffer
  int64_t end_ = 0;
};

/// Brings results to host memory.
class Downloader {
 public:
  explicit Downloader(Stream& stream) : stream_(stream) {}

  /// Copies `bytes` from device memory to `to`, before the next Synchronize()
  /// of the stream returns. What follows the bytes before, with fewer than
  /// kMostPadding between them in the same allocation, goes in one copy with
  /// them.
  void Copy(const std::byte* from, std::byte* to, int64_t bytes);
  absl::Status Finish();

 private:
  struct Piece {
    std::byte* to;
    int64_t offset;  // in the buffer
    int64_t bytes;
  };

  // What is copied next is at `from`; goes on with the copy before or begins
  // another one.
  void Begin(const std::byte* from);
  // Begins the copy that is put together.
  void Flush();
  // Turns to the other buffer once its pieces lie where they belong.
  void Turn();
  void Empty(int index);

  Stream& stream_;
  absl::Status status_;
  const std::byte* from_ = nullptr;
  int index_ = 0;
  int64_t begin_ = 0;  // of what is not copied yet, in the buffer
  int64_t end_ = 0;
  std::array<std::vector<Piece>, Stream::kBuffers> pieces_;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_TRANSFER_H_
