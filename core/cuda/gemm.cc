#include "core/cuda/gemm.h"

#include <algorithm>

namespace attention::cuda {
namespace {

int64_t RowsOfGroup(const AttentionArgs& args) {
  return args.query_heads / args.key.heads * args.query_length;
}

// Kv groups of a band; 0 where a kv group has several bands.
int64_t GroupsAtOnce(const Plan& plan) {
  return plan.gemm_rows / RowsOfGroup(plan.args);
}

int64_t BandsOfGroup(const Plan& plan) {
  return CeilDivide(RowsOfGroup(plan.args), plan.gemm_rows);
}

int64_t BandsOfEntry(const Plan& plan) {
  const int64_t groups = plan.args.key.heads;
  const int64_t at_once = GroupsAtOnce(plan);
  return at_once > 0 ? CeilDivide(groups, at_once)
                     : groups * BandsOfGroup(plan);
}

GemmType GemmTypeOf(Element type) {
  switch (type) {
    case Element::kFloat16:
      return GemmType::kFloat16;
    case Element::kBFloat16:
      return GemmType::kBfloat16;
    case Element::kFloat32:
      break;
  }
  return GemmType::kFloat32;
}

// Row number `row` of rows that lie one after the other.
const void* RowOf(const Rows& rows, int64_t row) {
  return static_cast<const std::byte*>(rows.data) +
         row * rows.width * ElementBytes(rows.type);
}

// What the two have in common: a product of k columns for n of the result.
Gemm ProductOf(const AttentionArgs& args, const GemmRows& rows, int64_t k,
               int64_t n) {
  Gemm product;
  product.type = GemmTypeOf(args.query.type);
  product.m = rows.of_group;
  product.n = product.c_row = n;
  product.k = product.a_row = k;
  product.batch = rows.groups;
  product.a_matrix = rows.of_group * k;
  product.c_matrix = rows.of_group * n;
  return product;
}

}  // namespace

int64_t GemmCount(const Plan& plan) {
  return plan.args.batch * BandsOfEntry(plan);
}

GemmRows GemmRowsOf(const Plan& plan, int64_t number) {
  const int64_t group_rows = RowsOfGroup(plan.args);
  const int64_t groups = plan.args.key.heads;
  const int64_t at_once = GroupsAtOnce(plan);
  const int64_t first_group = number / BandsOfEntry(plan) * groups;
  const int64_t band = number % BandsOfEntry(plan);
  if (at_once > 0) {
    const int64_t begin = band * at_once;
    return {(first_group + begin) * group_rows, group_rows,
            std::min(at_once, groups - begin)};
  }
  const int64_t row = band % BandsOfGroup(plan) * plan.gemm_rows;
  return {(first_group + band / BandsOfGroup(plan)) * group_rows + row,
          std::min(plan.gemm_rows, group_rows - row), 1};
}

Gemm QkGemm(const AttentionArgs& args, const GemmRows& rows) {
  const int64_t keys = args.key_length;
  Gemm product = ProductOf(args, rows, args.key.width, keys);
  product.transpose_b = true;
  product.a = RowOf(args.query, rows.first);
  product.b = RowOf(args.key, rows.first / RowsOfGroup(args) * keys);
  product.b_row = args.key.width;
  product.b_matrix = keys * args.key.width;
  return product;
}

Gemm PvGemm(const AttentionArgs& args, const GemmRows& rows) {
  const int64_t keys = args.key_length;
  Gemm product = ProductOf(args, rows, keys, args.value.width);
  product.b = RowOf(args.value, rows.first / RowsOfGroup(args) * keys);
  product.b_row = args.value.width;
  product.b_matrix = keys * args.value.width;
  return product;
}

}  // namespace attention::cuda
