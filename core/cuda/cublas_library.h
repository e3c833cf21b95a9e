#ifndef ATTENTION_CORE_CUDA_CUBLAS_LIBRARY_H_
#define ATTENTION_CORE_CUDA_CUBLAS_LIBRARY_H_

#include <cublas_v2.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attention::cuda {

/// The functions of cuBLAS that are used. The library, some 600 MB, serves one
/// kind of problem alone: it is opened when the first one comes, and a machine
/// without it computes all others.
struct CublasLibrary {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetMathMode) set_math_mode;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasGemmStridedBatchedEx_64) gemm_strided_batched;
  decltype(&cublasGetStatusName) status_name;

  /// The process's; it stays open. UNAVAILABLE, with the loader's reason, where
  /// it cannot be opened, from then on always. Safe for several threads.
  static const absl::StatusOr<const CublasLibrary*>& Open();

  /// OK; RESOURCE_EXHAUSTED for memory that is not to be had; INTERNAL
  /// otherwise, with the call and the error's name.
  absl::Status StatusOf(absl::string_view call, cublasStatus_t code) const;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_CUBLAS_LIBRARY_H_
