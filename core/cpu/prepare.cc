#include "core/cpu/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

namespace attention::cpu {
namespace {

constexpr double kLog2E = 1.4426950408889634;
// Where no projection is larger, two of e^(2 (q + k)) + 1 may be multiplied,
// and nothing is lost by rounding projections to FP32 before they are added...
constexpr float kLargestProjection = 9.0F;
// ... and four of them: e^(16 * 5) < 2^127.
constexpr float kSmallProjection = 5.0F;
// A weight up to here times three of them stays finite.
constexpr float kLargestWeight = 1e6F;

int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

// Sums term(0) ... term(count - 1), four at a time.
template <typename Term>
double SumOfTerms(int64_t count, const Term& term) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int64_t n = 0; n < 4; ++n) sums[n] += term(i + n);
  }
  for (; i < count; ++i) sums[0] += term(i);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Rows that may be read as floats where they lie, and their distance in
// floats; null for others.
const float* FloatRows(const RowSource& rows, int64_t& stride) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  if (rows.type != Element::kFloat32 || rows.column_stride != kFloat ||
      rows.row_stride % kFloat != 0 ||
      reinterpret_cast<uintptr_t>(rows.data) % kFloat != 0) {
    return nullptr;
  }
  stride = rows.row_stride / kFloat;
  return reinterpret_cast<const float*>(rows.data);
}

}  // namespace

Element ElementOf(DataType type) {
  return type == DataType::kFloat16    ? Element::kFloat16
         : type == DataType::kBFloat16 ? Element::kBFloat16
                                       : Element::kFloat32;
}

RowSource RowsOf(const TensorView& view, int64_t batch, int64_t head,
                 int64_t first) {
  return {
      reinterpret_cast<const unsigned char*>(view.At(batch, head, first, 0)),
      view.strides[2], view.strides[3], ElementOf(view.type)};
}

RowSource KeyRow(const ValidatedProblem& problem, int64_t batch,
                 int64_t kv_head, int64_t key) {
  RowSource row = {};
  for (const auto& block : problem.key_value) {
    const int64_t at = key - block.first_key;
    if (at < 0 || at >= block.key_count) continue;
    row = RowsOf(block.key, batch, kv_head, at);
  }
  return row;
}

RowSource ParameterRows(const TensorView& view, int64_t head) {
  const auto* data = reinterpret_cast<const unsigned char*>(view.data);
  return {data + head * view.strides[0], view.strides[1], view.strides[2],
          ElementOf(view.type)};
}

RowSource ParameterVector(const TensorView& view, int64_t head) {
  const auto* data = reinterpret_cast<const unsigned char*>(view.data);
  return {data + head * view.strides[0], 0, view.strides[1],
          ElementOf(view.type)};
}

Prepare::Prepare(const ValidatedProblem& problem, const Plan& plan,
                 const Kernels& kernels, Scratch& scratch)
    : problem_(problem), plan_(plan), kernels_(kernels) {
  const int64_t rows = plan.row_block;
  const int64_t keys = RoundUp(plan.key_tile, 2 * kernels.lanes);
  query_stride_ = RoundUp(problem.query_width, kernels.lanes);
  key_stride_ = RoundUp(problem.key_width, 2 * kernels.lanes);
  query_rows_ = scratch.Take<float>(rows * query_stride_);
  if (plan.decode) {
    row_queries_ =
        scratch.Take<float>(rows * RoundUp(plan.score_width, kernels.lanes));
  } else {
    packed_queries_ = scratch.Take<float>(rows * plan.score_width);
  }
  key_rows_ = scratch.Take<float>(std::max(keys, kCentreKeys) * key_stride_);
  packed_keys_ = scratch.Take<float>(
      keys * plan.score_width * (plan.method == Method::kAdditive ? 2 : 1));
  row_addend_ = scratch.Take<float>(rows);
  row_shift_ = scratch.Take<double>(rows);
  if (plan.method == Method::kAdditive) {
    const int64_t hidden = projected_stride_ = plan.padded_hidden_width;
    projected_queries_ = scratch.Take<float>(rows * hidden);
    projected_queries_low_ = scratch.Take<float>(rows * hidden);
    exponentials_ = scratch.Take<float>(rows * hidden);
    query_pairs_ = scratch.Take<float>(rows * hidden * 2);
    exact_queries_ = scratch.Take<float>(rows * plan.score_width * 2);
    projected_keys_ = scratch.Take<float>(keys * hidden);
    projected_keys_low_ = scratch.Take<float>(keys * hidden);
    key_exponentials_ = scratch.Take<float>(keys * hidden);
    key_pairs_ = scratch.Take<float>(keys * hidden * 2);
    w_q_ = scratch.Take<float>(problem.query_width * hidden);
    w_k_ = scratch.Take<float>(problem.key_width * hidden);
    w_v_ = scratch.Take<float>(hidden);
  } else if (std::holds_alternative<Bilinear>(problem.scoring)) {
    projected_stride_ = key_stride_;
    projected_queries_ = scratch.Take<float>(rows * key_stride_);
    w_q_ = scratch.Take<float>(problem.query_width * key_stride_);
  } else if (plan.method == Method::kGaussianDot) {
    centre_ = scratch.Take<float>(key_stride_);
    key_addend_ = scratch.Take<float>(keys);
    key_norms_ = scratch.Take<double>(keys);
  }
  wide_ = scratch.Take<double>(
      kMaxProjectRows * std::max(problem.query_width, problem.key_width));
}

// What scores are counted in until the softmax: logarithms to base 2, or shares
// of the softcap.
double Prepare::Unit() const {
  return problem_.softcap ? 1 / *problem_.softcap : kLog2E;
}

void Prepare::SetHead(int64_t head) {
  if (const auto* bilinear = std::get_if<Bilinear>(&problem_.scoring)) {
    kernels_.widen_rows(ParameterRows(bilinear->m, head), problem_.query_width,
                        problem_.key_width, w_q_, key_stride_, key_stride_);
  }
  const auto* additive = std::get_if<Additive>(&problem_.scoring);
  if (additive == nullptr) return;
  const int64_t hidden = problem_.hidden_width;
  kernels_.widen_rows(ParameterRows(additive->w_q, head), problem_.query_width,
                      hidden, w_q_, projected_stride_, projected_stride_);
  kernels_.widen_rows(ParameterRows(additive->w_k, head), problem_.key_width,
                      hidden, w_k_, projected_stride_, projected_stride_);
  kernels_.widen_rows(ParameterVector(additive->w_v, head), 1, hidden, w_v_,
                      projected_stride_, projected_stride_);
  w_v_sum_ = 0;
  const bool small = kernels_.all_within(w_v_, hidden, kLargestWeight);
  largest_parameter_ = small ? 0 : std::numeric_limits<float>::infinity();
  w_v_magnitude_ = 0;
  for (int64_t i = 0; i < hidden; ++i) {
    w_v_sum_ += w_v_[i];
    w_v_magnitude_ += std::abs(w_v_[i]);
    w_v_[i] = static_cast<float>(-2 * Unit() * w_v_[i]);
  }
}

void Prepare::SetCentre(const std::array<RowSource, kCentreKeys>& keys) {
  for (int64_t n = 0; n < kCentreKeys; ++n) {
    kernels_.widen_rows(keys[n], 1, problem_.key_width,
                        key_rows_ + n * key_stride_, key_stride_, key_stride_);
  }
  const float* const rows = key_rows_;
  const auto element = [rows](int64_t at) {
    const float x = rows[at];
    return x - x == 0 ? x : 0.0F;  // neither NaN nor an infinity
  };
  for (int64_t i = 0; i < key_stride_; ++i) {
    const float a = element(i);
    const float b = element(key_stride_ + i);
    const float c = element(2 * key_stride_ + i);
    centre_[i] = std::max(std::min(a, b), std::min(std::max(a, b), c));
  }
}

bool Prepare::UseQueries(const RowSource& queries) {
  queries_ = FloatRows(queries, queries_stride_);
  return queries_ != nullptr;
}

void Prepare::AddQueries(const RowSource& queries, int64_t first_row,
                         int64_t count) {
  kernels_.widen_rows(queries, count, problem_.query_width,
                      query_rows_ + first_row * query_stride_, query_stride_,
                      query_stride_);
  queries_ = query_rows_;
  queries_stride_ = query_stride_;
}

void Prepare::PackQueries(int64_t rows) {
  rows_ = rows;
  double factor = problem_.scale * Unit();
  const float* from = queries_;
  int64_t stride = queries_stride_;
  std::fill_n(row_shift_, rows, 0.0);
  if (const auto* gaussian = std::get_if<Gaussian>(&problem_.scoring)) {
    factor = plan_.method == Method::kGaussianDot
                 ? Unit() / (gaussian->sigma * gaussian->sigma)
                 : 1;
    if (centre_ != nullptr) {
      Centre(from, stride, rows, query_rows_, query_stride_, row_shift_);
      from = queries_ = query_rows_;
      stride = queries_stride_ = query_stride_;
    }
    for (int64_t r = 0; r < rows; ++r) {
      row_shift_[r] /= -2 * gaussian->sigma * gaussian->sigma;
    }
  } else if (std::holds_alternative<Bilinear>(problem_.scoring)) {
    ProjectRows(from, stride, rows, problem_.query_width, w_q_,
                projected_queries_, nullptr);
    from = projected_queries_;
    stride = projected_stride_;
  } else if (plan_.method == Method::kAdditive) {
    ProjectRows(from, stride, rows, problem_.query_width, w_q_,
                projected_queries_, projected_queries_low_);
    largest_query_ = LargestOf(projected_queries_, rows);
    exact_packed_ = false;
    if (largest_query_ <= kLargestProjection) {
      kernels_.exp_twice(projected_queries_, rows * projected_stride_,
                         exponentials_);
    }
    from = exponentials_;
    stride = projected_stride_;
    factor = 1;
    std::fill_n(row_shift_, rows, w_v_sum_);
  }
  for (int64_t r = 0; r < rows; ++r) {
    row_addend_[r] = static_cast<float>(row_shift_[r] * Unit());
  }
  if (!plan_.decode) {
    kernels_.pack_queries(from, stride, rows, plan_.score_width,
                          static_cast<float>(factor), packed_queries_);
    return;
  }
  const auto rounded = static_cast<float>(factor);
  const int64_t width = RoundUp(plan_.score_width, kernels_.lanes);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      row_queries_[r * width + i] =
          i < plan_.score_width ? from[r * stride + i] * rounded : 0.0F;
    }
  }
}

void Prepare::SkipQueries(int64_t rows) {
  std::fill_n(row_shift_, rows, 0.0);
  std::fill_n(row_addend_, rows, 0.0F);
}

float Prepare::DotFactor() const {
  return static_cast<float>(problem_.scale * Unit());
}

void Prepare::SetKeyRows(const RowSource& keys, int64_t count, bool widen,
                         TileArgs& args) {
  args.score_width = RoundUp(plan_.score_width, kernels_.lanes);
  args.queries = row_queries_;
  if (!widen) {
    args.key_rows = keys.data;
    args.key_row_stride = keys.row_stride;
    args.row_type = keys.type;
    return;
  }
  kernels_.widen_rows(keys, count, problem_.key_width, key_rows_, key_stride_,
                      key_stride_);
  args.key_rows = reinterpret_cast<const unsigned char*>(key_rows_);
  args.key_row_stride = key_stride_ * static_cast<int64_t>(sizeof(float));
  args.row_type = Element::kFloat32;
}

const float* Prepare::WidenKeys(const RowSource& keys, int64_t count,
                                int64_t& stride) {
  if (const float* rows = FloatRows(keys, stride)) return rows;
  kernels_.widen_rows(keys, count, problem_.key_width, key_rows_, key_stride_,
                      key_stride_);
  stride = key_stride_;
  return key_rows_;
}

void Prepare::PackKeys(const RowSource& keys, int64_t count) {
  int64_t stride = 0;
  const float* rows = WidenKeys(keys, count, stride);
  if (plan_.method == Method::kGaussianDot) {
    return PackGaussianKeys(rows, stride, count);
  }
  if (plan_.method == Method::kAdditive) {
    return PackAdditiveKeys(rows, stride, count);
  }
  kernels_.pack_keys(rows, stride, count, plan_.score_width, packed_keys_);
}

void Prepare::PackGaussianKeys(const float* rows, int64_t stride,
                               int64_t count) {
  const double sigma = std::get<Gaussian>(problem_.scoring).sigma;
  const double factor = -Unit() / (2 * sigma * sigma);
  const int64_t width = problem_.key_width;
  Centre(rows, stride, count, key_rows_, key_stride_, key_norms_);
  for (int64_t k = 0; k < count; ++k) {
    key_addend_[k] = static_cast<float>(factor * key_norms_[k]);
  }
  const int64_t padded = RoundUp(count, 2 * kernels_.lanes);
  std::fill(key_addend_ + count, key_addend_ + padded, 0.0F);
  kernels_.pack_keys(key_rows_, key_stride_, count, width, packed_keys_);
}

void Prepare::Centre(const float* rows, int64_t stride, int64_t count,
                     float* to, int64_t to_stride, double* squared_norms) {
  kernels_.centre_rows({.from = rows,
                        .from_stride = stride,
                        .rows = count,
                        .width = problem_.key_width,
                        .centre = centre_,
                        .to = to,
                        .to_stride = to_stride,
                        .squared_norms = squared_norms});
}

void Prepare::PackAdditiveKeys(const float* rows, int64_t stride,
                               int64_t count) {
  ProjectRows(rows, stride, count, problem_.key_width, w_k_, projected_keys_,
              projected_keys_low_);
  const float largest = std::max(
      {largest_parameter_, largest_query_, LargestOf(projected_keys_, count)});
  additive_ = largest <= kSmallProjection     ? Score::kTanhSmall
              : largest <= kLargestProjection ? Score::kTanh
                                              : Score::kTanhExact;
  if (additive_ != Score::kTanhExact) {
    kernels_.exp_twice(projected_keys_, count * projected_stride_,
                       key_exponentials_);
    kernels_.pack_keys(key_exponentials_, projected_stride_, count,
                       plan_.score_width, packed_keys_);
    return;
  }
  if (!exact_packed_) {
    Interleave(projected_queries_, projected_queries_low_, rows_, query_pairs_);
    kernels_.pack_queries(query_pairs_, 2 * projected_stride_, rows_,
                          2 * plan_.score_width, 1.0F, exact_queries_);
    exact_packed_ = true;
  }
  Interleave(projected_keys_, projected_keys_low_, count, key_pairs_);
  kernels_.pack_keys(key_pairs_, 2 * projected_stride_, count,
                     2 * plan_.score_width, packed_keys_);
}

void Prepare::ProjectRows(const float* rows, int64_t stride, int64_t count,
                          int64_t width, const float* m, float* high,
                          float* low) {
  kernels_.project({.from = rows,
                    .from_stride = stride,
                    .rows = count,
                    .from_width = width,
                    .m = m,
                    .m_stride = projected_stride_,
                    .to_width = projected_stride_,
                    .high = high,
                    .low = low,
                    .to_stride = projected_stride_,
                    .wide = wide_});
}

void Prepare::Interleave(const float* high, const float* low, int64_t count,
                         float* pairs) const {
  for (int64_t i = 0; i < count * projected_stride_; ++i) {
    pairs[2 * i] = high[i];
    // The low part of an infinity is NaN: infinity less itself.
    pairs[2 * i + 1] = std::isinf(high[i]) ? 0.0F : low[i];
  }
}

float Prepare::LargestOf(const float* projections, int64_t count) const {
  for (const float limit : {kSmallProjection, kLargestProjection}) {
    if (kernels_.all_within(projections, count * projected_stride_, limit)) {
      return limit;
    }
  }
  return std::numeric_limits<float>::infinity();
}

void Prepare::Fill(TileArgs& args) const {
  args.score_width = plan_.score_width;
  args.queries = packed_queries_;
  args.packed_keys = packed_keys_;
  args.tanh_weights = w_v_;
  args.score = Score::kDot;
  Epilogue& epilogue = args.epilogue;
  epilogue.factor = 1.0F;
  epilogue.softcap = 0.0F;
  epilogue.key_addend = key_addend_;
  // Without a softcap what a row adds cancels in the softmax.
  epilogue.row_addend = nullptr;
  if (problem_.softcap) {
    epilogue.softcap = static_cast<float>(*problem_.softcap * kLog2E);
    epilogue.row_addend = row_addend_;
  }
  if (plan_.method == Method::kGaussianDirect) {
    const double sigma = std::get<Gaussian>(problem_.scoring).sigma;
    args.score = Score::kDifference;
    epilogue.factor = static_cast<float>(Unit() / (2 * sigma * sigma));
  } else if (plan_.method == Method::kAdditive) {
    args.score = additive_;
    if (additive_ == Score::kTanhExact) {
      args.score_width = 2 * plan_.score_width;
      args.queries = exact_queries_;
    }
  }
}

const float* Prepare::ProjectedQuery(int64_t row) const {
  return projected_queries_ != nullptr
             ? projected_queries_ + row * projected_stride_
             : queries_ + row * queries_stride_;
}

double Prepare::ScoreMagnitude(int64_t row, const float* key) const {
  if (plan_.method == Method::kAdditive) return w_v_magnitude_;
  const float* query = ProjectedQuery(row);
  const int64_t width = problem_.key_width;
  if (const auto* gaussian = std::get_if<Gaussian>(&problem_.scoring)) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double centre = centre_ == nullptr ? 0 : centre_[i];
      const double difference = query[i] - (key[i] - centre);
      sum += difference * difference;
    }
    return sum / (2 * gaussian->sigma * gaussian->sigma);
  }
  return std::abs(problem_.scale) * SumOfTerms(width, [=](int64_t i) {
           return std::abs(static_cast<double>(query[i]) * key[i]);
         });
}

double Prepare::MagnitudePerElement(int64_t row) const {
  if (plan_.method == Method::kAdditive) return w_v_magnitude_;
  if (std::holds_alternative<Gaussian>(problem_.scoring)) {
    return std::numeric_limits<double>::infinity();
  }
  const float* query = ProjectedQuery(row);
  return std::abs(problem_.scale) *
         SumOfTerms(problem_.key_width, [=](int64_t i) {
           return std::abs(static_cast<double>(query[i]));
         });
}

double Prepare::LogSumExpShift(int64_t row) const {
  return problem_.softcap ? 0 : row_shift_[row];
}

}  // namespace attention::cpu
