#include "core/cuda/emulation/emulated_gemm.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/cuda/emulation/tensor_core.h"
#include "core/element.h"

namespace attention::cuda {
namespace {

// One after the other, as cuBLAS's kernels for FP32 are likely to.
float SumOfProducts(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

// Of whole blocks.
float TensorCoreSum(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; k += kTensorCoreBlock) {
    sum = AddProducts(sum, a + k, b + k);
  }
  return sum;
}

// A factor of a product of matrices: rows of A or columns of B in FP32, each
// with zeros up to whole blocks.
class Lines {
 public:
  // Elements are so many numbers apart: from one line to the next, and along a
  // line.
  Lines(DataType type, const std::byte* from, int64_t lines, int64_t line_step,
        int64_t count, int64_t step)
      : length_((count + kTensorCoreBlock - 1) / kTensorCoreBlock *
                kTensorCoreBlock),
        numbers_(static_cast<size_t>(lines * length_)) {
    const int64_t size = ByteSize(type);
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t k = 0; k < count; ++k) {
        numbers_[static_cast<size_t>(line * length_ + k)] = static_cast<float>(
            LoadElement(type, from + (line * line_step + k * step) * size));
      }
    }
  }

  const float* line(int64_t n) const { return numbers_.data() + n * length_; }
  int64_t length() const { return length_; }

 private:
  int64_t length_;
  std::vector<float> numbers_;
};

DataType TypeOf(GemmType type) {
  switch (type) {
    case GemmType::kFloat16:
      return DataType::kFloat16;
    case GemmType::kBfloat16:
      return DataType::kBFloat16;
    case GemmType::kFloat32:
      break;
  }
  return DataType::kFloat32;
}

void MultiplyOne(const Gemm& product, int64_t n) {
  const DataType type = TypeOf(product.type);
  const int64_t size = ByteSize(type);
  const auto* const a =
      static_cast<const std::byte*>(product.a) + n * product.a_matrix * size;
  const auto* const b =
      static_cast<const std::byte*>(product.b) + n * product.b_matrix * size;
  float* const c = product.c + n * product.c_matrix;
  const Lines rows(type, a, product.m, product.a_row, product.k, 1);
  const Lines columns(type, b, product.n,
                      product.transpose_b ? product.b_row : 1, product.k,
                      product.transpose_b ? 1 : product.b_row);
  for (int64_t i = 0; i < product.m; ++i) {
    for (int64_t j = 0; j < product.n; ++j) {
      c[i * product.c_row + j] =
          type == DataType::kFloat32
              ? SumOfProducts(rows.line(i), columns.line(j), product.k)
              : TensorCoreSum(rows.line(i), columns.line(j), rows.length());
    }
  }
}

}  // namespace

void EmulateGemm(const Gemm& product) {
  // As cuBLAS may write to any of it: to its ends here.
  constexpr int64_t kEnd = 4096;
  std::memset(product.workspace, 0xFF, kEnd);
  std::memset(product.workspace + kWorkspaceBytes - kEnd, 0xFF, kEnd);
  for (int64_t n = 0; n < product.batch; ++n) MultiplyOne(product, n);
}

}  // namespace attention::cuda
