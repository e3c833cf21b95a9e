#include "core/cpu/scoring/bf16_in_place.h"

#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/scoring/row_widener.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {
namespace {

constexpr ByteTable kKeyTables[] = {ByteTable(Element::kInt8, 1),
                                    ByteTable(Element::kFloat8, 1)};
constexpr ByteTable kValueTables[] = {
    ByteTable(Element::kInt8, kScaledWeightUnit),
    ByteTable(Element::kFloat8, kScaledWeightUnit)};

// Null for elements of two bytes.
const ByteTable* TableOf(const ByteTable (&tables)[2], DataType type) {
  if (!IsScaledType(type)) return nullptr;
  return &tables[type == DataType::kInt8 ? 0 : 1];
}

}  // namespace

Bf16InPlace::Bf16InPlace(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      width_(RoundUp(CeilDivide(problem.key_width, 2), kBf16Depth)),
      fp32_stride_(RoundUp(problem.key_width, kernels.lanes)),
      sums_stride_(RoundUp(problem.value_width, kBf16InPlaceColumns)) {
  const int64_t queries = RoundUp(plan.row_block, kBf16Panel);
  queries_ = scratch.Take<float>(queries * width_);
  packed_queries_ = scratch.Take<float>(queries * width_);
  if (IsScaledType(problem.key_type)) {
    fp32_queries_ = scratch.Take<float>(plan.row_block * fp32_stride_);
  }
  key_room_ = scratch.Take<float>(kBf16Panel * width_);
  sums_ = scratch.Take<float>(kMaxMicroRows * sums_stride_);
  weights_ = scratch.Take<float>(kBf16WeightTerm);
}

void Bf16InPlace::SetQueries(const BlockRows& rows,
                             const KeyRange& /*attended*/) {
  ForEachHead(problem_, rows,
              [&](const RowSource& from, int64_t row, int64_t count) {
                kernels_.copy_bf16(from, count, count, problem_.query_width,
                                   queries_ + row * width_, width_);
                if (fp32_queries_ == nullptr) return;
                kernels_.widen_rows(from, count, problem_.query_width,
                                    fp32_queries_ + row * fp32_stride_,
                                    fp32_stride_, fp32_stride_);
              });
  kernels_.pack_bf16_keys(queries_, width_, rows.count(), width_,
                          packed_queries_);
}

// A plan that decodes asks for SetInPlace alone.
void Bf16InPlace::SetKeys(const TileRows& /*keys*/, TileArgs& args) {
  SetInPlace(args);
}

void Bf16InPlace::SetInPlace(TileArgs& args) {
  FillEpilogue(problem_, problem_.scale * UnitOfBf16(problem_).one,
               args.epilogue);
  args.operands = Operands::kInPlace;
  args.in_place.queries = fp32_queries_;
  args.in_place.query_stride = fp32_stride_;
  args.in_place.key_width = problem_.key_width;
  args.bf16.terms = 1;
  args.bf16.width = width_;
  args.bf16.packed_queries = packed_queries_;
  args.bf16.key_table = TableOf(kKeyTables, problem_.key_type);
  args.bf16.value_table = TableOf(kValueTables, problem_.key_type);
  args.bf16.key_room = key_room_;
  args.bf16.sums = sums_;
  args.bf16.sums_stride = sums_stride_;
  args.bf16.weights = weights_;
  args.bf16.products = kernels_.bf16;
}

}  // namespace attention::cpu
