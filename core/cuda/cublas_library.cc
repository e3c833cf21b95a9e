#include "core/cuda/cublas_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace attention::cuda {
namespace {

// The one whose declarations this was compiled with. In one piece, which
// tests/gpu/pack looks for.
#define ATTENTION_TEXT_OF(number) #number
#define ATTENTION_CUBLAS_FILE(version) \
  "libcublas.so." ATTENTION_TEXT_OF(version)
constexpr char kFile[] = ATTENTION_CUBLAS_FILE(CUBLAS_VER_MAJOR);

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

absl::Status NotOpened() {
  const char* const reason = dlerror();
  return absl::UnavailableError(absl::StrCat(
      kFile,
      " cannot be used: ", reason == nullptr ? "unknown error" : reason));
}

absl::StatusOr<const CublasLibrary*> OpenOnce() {
  static CublasLibrary found;
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotOpened();
  const bool complete =
      Find(library, "cublasCreate_v2", found.create) &&
      Find(library, "cublasDestroy_v2", found.destroy) &&
      Find(library, "cublasSetStream_v2", found.set_stream) &&
      Find(library, "cublasSetMathMode", found.set_math_mode) &&
      Find(library, "cublasSetWorkspace_v2", found.set_workspace) &&
      Find(library, "cublasGemmStridedBatchedEx_64",
           found.gemm_strided_batched) &&
      Find(library, "cublasGetStatusName", found.status_name);
  if (!complete) return NotOpened();
  return &found;
}

}  // namespace

const absl::StatusOr<const CublasLibrary*>& CublasLibrary::Open() {
  static const auto* const opened =
      new absl::StatusOr<const CublasLibrary*>(OpenOnce());
  return *opened;
}

absl::Status CublasLibrary::StatusOf(absl::string_view call,
                                     cublasStatus_t code) const {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", status_name(code));
  if (code == CUBLAS_STATUS_ALLOC_FAILED) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

}  // namespace attention::cuda
