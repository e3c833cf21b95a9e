#ifndef ATTENTION_CORE_CUDA_CUDA_STREAM_H_
#define ATTENTION_CORE_CUDA_CUDA_STREAM_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/cuda/cublas_library.h"
#include "core/cuda/cuda_status.h"
#include "core/cuda/device.h"
#include "core/cuda/pinned_ranges.h"

namespace attention::cuda {

/// A CUDA stream with its pinned staging buffers, events and cuBLAS handle.
class CudaStream final : public Stream {
 public:
  /// On device `ordinal`, whose health is told to `health`. That and `pinned`
  /// must outlive the stream.
  static absl::StatusOr<std::unique_ptr<Stream>> Create(
      int ordinal, DeviceHealth& health, const PinnedRanges& pinned);
  ~CudaStream() override;

  void* handle() const override;
  std::byte* buffer(int index) const override {
    return buffers_[static_cast<size_t>(index)];
  }
  absl::Status Upload(int index, int64_t offset, std::byte* to,
                      int64_t bytes) override;
  absl::Status Download(int index, int64_t offset, const std::byte* from,
                        int64_t bytes) override;
  bool Reaches(const std::byte* begin, int64_t bytes) const override {
    return pinned_.Contain(begin, bytes);
  }
  absl::Status UploadPinned(const std::byte* from, std::byte* to,
                            int64_t bytes) override;
  absl::Status DownloadPinned(const std::byte* from, std::byte* to,
                              int64_t bytes) override;
  absl::Status Fill(std::byte* to, uint8_t value, int64_t bytes) override;
  int32_t* marked() const override { return marked_; }
  absl::Status Mark(int index) override;
  absl::StatusOr<bool> Reached(int index) override;
  absl::Status Launched(absl::string_view kernel, int code) override;
  absl::Status Multiply(const Gemm& product) override;

 protected:
  void Lose(absl::string_view reason) override { health_.Lose(reason); }

 private:
  CudaStream(int ordinal, DeviceHealth& health, const PinnedRanges& pinned)
      : ordinal_(ordinal), health_(health), pinned_(pinned) {}
  absl::Status Start();
  // The handle is made at the first product: most jobs have none.
  absl::Status StartCublas();
  absl::Status CheckCublas(absl::string_view call, cublasStatus_t code);
  // The device that the calling thread's next calls are about.
  absl::Status Select();

  const int ordinal_;
  DeviceHealth& health_;
  const PinnedRanges& pinned_;
  cudaStream_t stream_ = nullptr;
  std::array<std::byte*, kBuffers> buffers_ = {};
  std::array<cudaEvent_t, kBuffers + 1> marks_ = {};
  int32_t* marked_ = nullptr;               // pinned
  const CublasLibrary* library_ = nullptr;  // once it is needed
  cublasHandle_t cublas_ = nullptr;
  bool cublas_is_ready_ = false;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CUDA_STREAM_H_
