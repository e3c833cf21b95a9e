#ifndef ATTENTION_CORE_CUDA_GEMM_H_
#define ATTENTION_CORE_CUDA_GEMM_H_

#include <cstdint>

#include "core/cuda/device.h"
#include "core/cuda/plan.h"

/// Method::kGemm: which rows go through cuBLAS together, and what it
/// computes around softmax_rows: QK and PV.
namespace attention::cuda {

/// A band of rows: of whole kv groups, the query heads that read one key/value
/// head of one batch entry, or of a part of one kv group.
struct GemmRows {
  int64_t first = 0;     // among (B, Hq, Lq)
  int64_t of_group = 0;  // rows of each kv group
  int64_t groups = 0;
};

/// How many bands a problem has, and the one of a number. None has rows
/// of two batch entries: what cuBLAS chooses follows from how many products it
/// is given at once, and an entry's bits must not follow from the others.
int64_t GemmCount(const Plan& plan);
GemmRows GemmRowsOf(const Plan& plan, int64_t number);

/// QK, (rows, Lk) = queries keys^T, and PV, (rows, Dv) = probabilities values;
/// without probabilities, results and workspace.
Gemm QkGemm(const AttentionArgs& args, const GemmRows& rows);
Gemm PvGemm(const AttentionArgs& args, const GemmRows& rows);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_GEMM_H_
