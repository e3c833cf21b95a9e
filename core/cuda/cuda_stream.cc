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

size_t Size(int64_t bytes) { return static_cast<size_t>(bytes); }

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> CudaStream::Create(
    int ordinal, DeviceHealth& health, const PinnedRanges& pinned) {
  auto stream = absl::WrapUnique(new CudaStream(ordinal, health, pinned));
  if (absl::Status status = stream->Start(); !status.ok()) return status;
  return stream;
}

absl::Status CudaStream::Select() {
  if (absl::Status lost = health_.status(); !lost.ok()) return lost;
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
  }
  for (cudaEvent_t& mark : marks_) {
    if (!status.ok()) break;
    status =
        health_.Check("cudaEventCreateWithFlags",
                      cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
  }
  if (status.ok()) {
    void* word = nullptr;
    status = health_.Check("cudaMallocHost",
                           cudaMallocHost(&word, sizeof(*marked_)));
    marked_ = static_cast<int32_t*>(word);
  }
  return status;
}

// What fails here has failed before, and been told. Of a lost device nothing is
// freed: it may still run what hung, and every one of these calls would wait
// for it.
CudaStream::~CudaStream() {
  if (!health_.status().ok()) return;
  cudaSetDevice(ordinal_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (cublas_ != nullptr) library_->destroy(cublas_);
  for (cudaEvent_t mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(mark);
  }
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

absl::StatusOr<bool> CudaStream::Reached(int index) {
  if (absl::Status status = Select(); !status.ok()) return status;
  const cudaError_t error = cudaEventQuery(marks_[static_cast<size_t>(index)]);
  if (error == cudaErrorNotReady) {
    // No failure, and not to be reported by a later launch.
    static_cast<void>(cudaGetLastError());
    return false;
  }
  if (absl::Status status = health_.Check("cudaEventQuery", error);
      !status.ok()) {
    return status;
  }
  return true;
}

absl::Status CudaStream::Launched(absl::string_view kernel, int code) {
  return health_.Check(kernel, static_cast<cudaError_t>(code));
}

absl::Status CudaStream::CheckCublas(absl::string_view call,
                                     cublasStatus_t code) {
  return health_.Note(library_->StatusOf(call, code));
}

absl::Status CudaStream::StartCublas() {
  if (cublas_is_ready_) return absl::OkStatus();
  const auto& opened = CublasLibrary::Open();
  if (!opened.ok()) return opened.status();
  library_ = *opened;
  absl::Status status;
  if (cublas_ == nullptr) {
    status = CheckCublas("cublasCreate", library_->create(&cublas_));
  }
  if (status.ok()) {
    status =
        CheckCublas("cublasSetStream", library_->set_stream(cublas_, stream_));
  }
  if (status.ok()) {
    constexpr auto kMode = static_cast<cublasMath_t>(
        CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    status = CheckCublas("cublasSetMathMode",
                         library_->set_math_mode(cublas_, kMode));
  }
  cublas_is_ready_ = status.ok();
  return status;
}

absl::Status CudaStream::Multiply(const Gemm& product) {
  if (absl::Status status = Select(); !status.ok()) return status;
  if (absl::Status status = StartCublas(); !status.ok()) return status;
  // A workspace of the job's own makes a product's bits the same whatever runs
  // beside it (cuBLAS, "Results Reproducibility").
  absl::Status status = CheckCublas(
      "cublasSetWorkspace",
      library_->set_workspace(cublas_, product.workspace,
                              static_cast<size_t>(kWorkspaceBytes)));
  if (!status.ok()) return status;
  const float one = 1;
  const float none = 0;
  const cudaDataType_t type = TypeOf(product.type);
  // cuBLAS counts columns first: c^T = op(b)^T a^T.
  return CheckCublas(
      "cublasGemmStridedBatchedEx",
      library_->gemm_strided_batched(
          cublas_, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N,
          product.n, product.m, product.k, &one, product.b, type, product.b_row,
          product.b_matrix, product.a, type, product.a_row, product.a_matrix,
          &none, product.c, CUDA_R_32F, product.c_row, product.c_matrix,
          product.batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace attention::cuda
