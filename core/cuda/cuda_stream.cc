#include "core/cuda/cuda_stream.h"

#include <utility>

#include "absl/memory/memory.h"

namespace attention::cuda {
namespace {

cudaDataType_t TypeOf(GemmType type) {
  switch (type) {
    case GemmType::kFloat16:
      return CUDA_R_16F;
    case GemmType::kBfloat16:
      return CUDA_R_16BF;
    case GemmType::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

// Of an event: a thread that waits for it does not keep a core busy.
constexpr unsigned kWaitsAsleep =
    cudaEventDisableTiming | cudaEventBlockingSync;

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> CudaStream::Create(
    int ordinal, DeviceHealth& health, const PinnedRanges& pinned) {
  auto stream = absl::WrapUnique(new CudaStream(ordinal, health, pinned));
  if (absl::Status status = stream->Start(); !status.ok()) return status;
  return stream;
}

absl::Status CudaStream::Select() {
  return health_.Check("cudaSetDevice", cudaSetDevice(ordinal_));
}

absl::Status CudaStream::Start() {
  absl::Status status = Select();
  if (!status.ok()) return status;
  status =
      health_.Check("cudaStreamCreateWithFlags",
                    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (int n = 0; n < kBuffers && status.ok(); ++n) {
    const auto index = static_cast<size_t>(n);
    void* memory = nullptr;
    status = health_.Check("cudaMallocHost",
                           cudaMallocHost(&memory, Size(kBufferBytes)));
    if (!status.ok()) break;
    buffers_[index] = static_cast<std::byte*>(memory);
    status =
        health_.Check("cudaEventCreateWithFlags",
                      cudaEventCreateWithFlags(&marks_[index], kWaitsAsleep));
  }
  if (status.ok()) {
    status = health_.Check("cudaEventCreateWithFlags",
                           cudaEventCreateWithFlags(&end_, kWaitsAsleep));
  }
  if (status.ok()) {
    void* word = nullptr;
    status = health_.Check("cudaMallocHost",
                           cudaMallocHost(&word, sizeof(*marked_)));
    marked_ = static_cast<int32_t*>(word);
  }
  return status;
}

// What fails here has failed before, and been told.
CudaStream::~CudaStream() {
  cudaSetDevice(ordinal_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (cublas_ != nullptr) cublasDestroy(cublas_);
  for (cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
  if (end_ != nullptr) cudaEventDestroy(end_);
  for (std::byte* memory : buffers_) {
    if (memory != nullptr) cudaFreeHost(memory);
  }
  if (marked_ != nullptr) cudaFreeHost(marked_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  cudaGetLastError();
}

void* CudaStream::handle() const {
  // A launch goes to the thread's device, which must be the stream's. What
  // fails here fails in the launch again.
  static_cast<void>(cudaSetDevice(ordinal_));
  return stream_;
}

absl::Status CudaStream::Upload(int index, int64_t offset, std::byte* to,
                                int64_t bytes) {
  return UploadPinned(buffer(index) + offset, to, bytes);
}

absl::Status CudaStream::Download(int index, int64_t offset,
                                  const std::byte* from, int64_t bytes) {
  return DownloadPinned(from, buffer(index) + offset, bytes);
}

absl::Status CudaStream::UploadPinned(const std::byte* from, std::byte* to,
                                      int64_t bytes) {
  if (absl::Status status = Select(); !status.ok()) return status;
  return health_.Check(
      "cudaMemcpyAsync",
      cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyHostToDevice, stream_));
}

absl::Status CudaStream::DownloadPinned(const std::byte* from, std::byte* to,
                                        int64_t bytes) {
  if (absl::Status status = Select(); !status.ok()) return status;
  return health_.Check(
      "cudaMemcpyAsync",
      cudaMemcpyAsync(to, from, Size(bytes), cudaMemcpyDeviceToHost, stream_));
}

absl::Status CudaStream::Fill(std::byte* to, uint8_t value, int64_t bytes) {
  if (absl::Status status = Select(); !status.ok()) return status;
  return health_.Check("cudaMemsetAsync",
                       cudaMemsetAsync(to, value, Size(bytes), stream_));
}

absl::Status CudaStream::Mark(int index) {
  if (absl::Status status = Select(); !status.ok()) return status;
  return health_.Check(
      "cudaEventRecord",
      cudaEventRecord(marks_[static_cast<size_t>(index)], stream_));
}

absl::Status CudaStream::Wait(int index) {
  if (absl::Status status = Select(); !status.ok()) return status;
  return health_.Check(
      "cudaEventSynchronize",
      cudaEventSynchronize(marks_[static_cast<size_t>(index)]));
}

absl::Status CudaStream::Synchronize() {
  if (absl::Status status = Select(); !status.ok()) return status;
  absl::Status status =
      health_.Check("cudaEventRecord", cudaEventRecord(end_, stream_));
  if (!status.ok()) return status;
  return health_.Check("cudaEventSynchronize", cudaEventSynchronize(end_));
}

absl::Status CudaStream::Launched(absl::string_view kernel, int code) {
  return health_.Check(kernel, static_cast<cudaError_t>(code));
}

absl::Status CudaStream::StartCublas() {
  if (cublas_is_ready_) return absl::OkStatus();
  absl::Status status;
  if (cublas_ == nullptr) {
    status = health_.Check("cublasCreate", cublasCreate(&cublas_));
  }
  if (status.ok()) {
    status =
        health_.Check("cublasSetStream", cublasSetStream(cublas_, stream_));
  }
  if (status.ok()) {
    constexpr auto kMode = static_cast<cublasMath_t>(
        CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    status =
        health_.Check("cublasSetMathMode", cublasSetMathMode(cublas_, kMode));
  }
  cublas_is_ready_ = status.ok();
  return status;
}

absl::Status CudaStream::Multiply(const Gemm& product) {
  if (absl::Status status = Select(); !status.ok()) return status;
  if (absl::Status status = StartCublas(); !status.ok()) return status;
  // A workspace of the job's own makes a product's bits the same whatever runs
  // beside it (cuBLAS, "Results Reproducibility").
  absl::Status status =
      health_.Check("cublasSetWorkspace",
                    cublasSetWorkspace(cublas_, product.workspace,
                                       static_cast<size_t>(kWorkspaceBytes)));
  if (!status.ok()) return status;
  const float one = 1;
  const float none = 0;
  const cudaDataType_t type = TypeOf(product.type);
  // cuBLAS counts columns first: c^T = op(b)^T a^T.
  return health_.Check(
      "cublasGemmStridedBatchedEx",
      cublasGemmStridedBatchedEx_64(
          cublas_, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
          product.n, product.m, product.k, &one, product.b, type, product.b_row,
          product.b_matrix, product.a, type, product.a_row, product.a_matrix,
          &none, product.c, CUDA_R_32F, product.c_row, product.c_matrix,
          product.batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace attention::cuda
