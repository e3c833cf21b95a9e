#ifndef ATTENTION_CORE_CUDA_PRODUCTS_H_
#define ATTENTION_CORE_CUDA_PRODUCTS_H_

#include <cstdint>

#include "core/cuda/device.h"
#include "core/cuda/plan.h"

/// Method::kProducts: which rows go through cuBLAS together, and what it
/// computes around softmax_rows: QK and PV.
namespace attention::cuda {

/// A band of rows: of whole kv groups, the query heads that read one key/value
/// head of one batch entry, or of a part of one kv group.
struct ProductRows {
  int64_t first = 0;     // among (B, Hq, Lq)
  int64_t of_group = 0;  // rows of each kv group
  int64_t groups = 0;
};

/// How many bands a problem has, and the one of a number. None has rows
/// of two batch entries: what cuBLAS chooses follows from how many products it
/// is given at once, and an entry's bits must not follow from the others.
int64_t ProductCount(const Plan& plan);
ProductRows ProductRowsOf(const Plan& plan, int64_t number);

/// QK, (rows, Lk) = queries keys^T, and PV, (rows, Dv) = probabilities values;
/// without probabilities, results and workspace.
MatrixProduct QkProduct(const AttentionArgs& args, const ProductRows& rows);
MatrixProduct PvProduct(const AttentionArgs& args, const ProductRows& rows);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PRODUCTS_H_
