#include "core/cpu/scoring/int8_in_place.h"

#include <algorithm>

#include "core/cpu/kernels/bf16/int8_products.h"
#include "core/cpu/kernels/bf16/products.h"
#include "core/cpu/scoring/row_widener.h"
#include "core/cpu/scoring/score_unit.h"

namespace attention::cpu {

Int8InPlace::Int8InPlace(const ValidatedProblem& problem, const Plan& plan,
                         const Kernels& kernels, Scratch& scratch)
    : problem_(problem),
      kernels_(kernels),
      stride_(RoundUp(problem.key_width, std::max(kernels.lanes, kBf16Depth))),
      queries_(scratch.Take<float>(plan.row_block * stride_)),
      digits_of_rows_(CeilDivide(problem.key_width, kInt8Depth) * kDigitBytes),
      digits_(scratch.Take<int8_t>(CeilDivide(plan.row_block, kDigitRows) *
                                   digits_of_rows_)),
      largest_(scratch.Take<float>(plan.row_block)),
      exponents_(scratch.Take<int>(plan.row_block)),
      key_room_(scratch.Take<unsigned char>(
          kBf16Panel * RoundUp(problem.key_width, kInt8Depth))),
      value_room_(scratch.Take<unsigned char>(Int8RoomBytes(plan.row_block))),
      sums_stride_(RoundUp(problem.value_width, kInt8Columns)),
      sums_(scratch.Take<float>(plan.row_block * sums_stride_)) {}

void Int8InPlace::SetQueries(const BlockRows& rows,
                             const KeyRange& /*attended*/) {
  ForEachHead(problem_, rows,
              [&](const RowSource& from, int64_t row, int64_t count) {
                kernels_.widen_rows(from, count, problem_.query_width,
                                    queries_ + row * stride_, stride_, stride_);
              });
  for (int64_t r = 0; r < rows.count(); ++r) {
    largest_[r] = kernels_.largest_magnitude(queries_ + r * stride_, stride_);
  }
  exact_ = kernels_.bf16->int8->split_queries(queries_, stride_, rows.count(),
                                              problem_.key_width, largest_,
                                              digits_, exponents_);
}

// A plan that decodes asks for SetInPlace alone.
void Int8InPlace::SetKeys(const TileRows& /*keys*/, TileArgs& args) {
  SetInPlace(args);
}

void Int8InPlace::SetInPlace(TileArgs& args) {
  FillEpilogue(problem_, problem_.scale * UnitOf(problem_).one, args.epilogue);
  args.operands = Operands::kInPlace;
  args.in_place.queries = queries_;
  args.in_place.query_stride = stride_;
  args.in_place.key_width = problem_.key_width;
  args.int8 = {.query_digits = digits_,
               .digits_of_rows = digits_of_rows_,
               .query_exponents = exponents_,
               .exact = exact_,
               .key_room = key_room_,
               .value_room = value_room_,
               .sums = sums_,
               .sums_stride = sums_stride_};
  args.bf16.products = kernels_.bf16;
}

}  // namespace attention::cpu
