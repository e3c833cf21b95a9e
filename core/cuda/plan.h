#ifndef ATTENTION_CORE_CUDA_PLAN_H_
#define ATTENTION_CORE_CUDA_PLAN_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/cuda/device.h"
#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/limits.h"
#include "core/validate.h"

namespace attention::cuda {

/// Which kernels compute a problem.
enum class Method : uint8_t {
  kNothing,  // no row, no key or nothing wanted: the host writes it
  kTiles,    // attend: every score and type, in FP32
  kMma,      // attend_mma: 16-bit dot products, on tensor cores
  kWgmma,    // attend_wgmma: most of these, with Hopper's own instructions
  kGemm,     // with weights: cuBLAS around softmax_rows
};

/// Where a tensor lies in the job's block of device memory; 0 bytes where it is
/// not there.
struct Buffer {
  int64_t offset = 0;  // a multiple of 256
  int64_t bytes = 0;
};

/// Tensors that kernels read or write where the caller has them: they lie in
/// the device's memory, row-major and at a multiple of 16 bytes.
struct InPlace {
  bool query = false, key = false, value = false, bias = false;
  bool output = false, weights = false, lse = false;
};
InPlace InPlaceOf(const ValidatedProblem& problem,
                  const AttentionOutputs& outputs);

/// Thresholds of plans. The defaults are what is served; tests lower them to
/// see every way with small problems.
struct PlanOptions {
  /// Whether cuBLAS is used.
  bool gemm = true;
  /// Lq * Lk from which a problem with weights goes through cuBLAS.
  int64_t least_gemm_elements = int64_t{512} * 512;
  /// Bytes of scores that are held at once there; one row at least.
  int64_t score_bytes = int64_t{256} << 20;
  /// Fewer rows of a head than this share tiles with those of other heads, and
  /// let keys be split.
  int64_t few_rows = kAttendRows;
  /// Whether attend_wgmma is used where a device has it.
  bool wgmma = true;
  /// Bytes of a slice: a job that brings more between host and device goes in
  /// slices of its batch, or of the heads of a single entry, of which one is
  /// computed while the next one is brought and the last one fetched
  /// (sliced_job.h).
  int64_t slice_bytes = int64_t{8} << 20;
  /// Multiply-adds of a slice, less than a second of FP32: a job can be stopped
  /// between slices. One with more goes in slices of its batch, its heads or
  /// its rows; bands of products are waited for in between.
  double slice_work = double{int64_t{1} << 42};
  /// Bytes of device memory of the jobs that go in one launch together, at
  /// most: those that are given together, and are not sliced.
  int64_t launch_bytes = int64_t{1} << 30;
};

/// How one problem is computed. Follows from the problem, the device and the
/// options alone. Nothing that a row's bits depend on (method, splits) follows
/// from the batch, so that a batch entry alone gives what it gives beside
/// others.
struct Plan {
  Method method = Method::kNothing;
  absl::string_view kernel;  // static text: what the reply calls it

  InPlace in_place;
  /// Extents and options; every pointer is null.
  AttentionArgs args;
  /// Likewise; of a score with matrices.
  std::optional<ProjectArgs> project_query;
  std::optional<ProjectArgs> project_key;

  // What is copied to the device where it is not in place,
  Buffer query, key, value;
  Buffer query_matrix, key_matrix, term_weights;
  Buffer key_ranges, attend_mask, bias;
  Buffer alibi_slopes, alibi_positions, sinks;
  // what is computed from it,
  Buffer projected_query, projected_key;
  Buffer marks, row_max, row_sum, partials;
  Buffer scores, probabilities, pv, workspace;
  // and what is copied back, likewise, behind all else.
  Buffer output, weights, lse;
  /// Offsets of the first buffer that is no input, and of the first result.
  int64_t scratch_at = 0;
  int64_t results_at = 0;
  int64_t bytes = 0;  // of all of them; 2^62 stands for more

  /// kGemm: rows of scores that are held at once, a band. Whole kv groups
  /// of Hq / Hkv * Lq rows of one batch entry, or a part of one kv group.
  int64_t gemm_rows = 0;
  /// Bands that are begun before they are waited for: of slice_work, or one.
  int64_t gemm_bands = 0;
};

/// OK, or UNIMPLEMENTED where the kernels lack an option, or an extent has no
/// place in their arguments or tiles on this device.
absl::Status CheckSupport(const ValidatedProblem& problem,
                          const DeviceProperties& device);

/// For a problem that CheckSupport() lets pass.
Plan MakePlan(const ValidatedProblem& problem, const DeviceProperties& device,
              const PlanOptions& options = {}, const InPlace& in_place = {});

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PLAN_H_
