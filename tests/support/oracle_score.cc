#include "tests/support/oracle_score.h"

#include <algorithm>
#include <cmath>

#include "tests/support/oracle_reader.h"

namespace attention::test {
namespace {

double ScaleOf(const ScaledDotProduct& dot, size_t width) {
  return dot.scale ? *dot.scale : 1 / std::sqrt(static_cast<double>(width));
}

// The room for `terms` products and sums that count as 0 each, multiplied with
// `factor` afterwards.
double Vanished(size_t terms, double factor) {
  return static_cast<double>(terms) * kVanishing * std::max(1.0, factor);
}

double SumOfMagnitudes(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += std::abs(number);
  return sum;
}

bool AnyVanishes(double scale, const std::vector<double>& row) {
  return Vanishes(scale) ||
         std::any_of(row.begin(), row.end(), [scale](double element) {
           return Vanishes(element) || Vanishes(scale * element);
         });
}

// Adds a term to the magnitudes of those that are finite: beside an infinite
// one, too, they may overflow, and make NaN of it.
void AddFinite(double term, double& sum) {
  if (std::isfinite(term)) sum += std::abs(term);
}

// Whether a query that is multiplied with the scale beforehand overflows.
bool ScaledOverflows(double scale, const std::vector<double>& row) {
  return Overflows(std::abs(scale)) ||
         std::any_of(row.begin(), row.end(), [scale](double element) {
           return Overflows(std::abs(scale * element));
         });
}

}  // namespace

bool Vanishes(double number) {
  return number != 0 && std::abs(number) < kVanishing;
}

bool Overflows(double magnitude) {
  return std::isfinite(magnitude) && magnitude > kOverflowing;
}

const std::vector<float>& Scorer::Parameter(const TensorView& view,
                                            int64_t head) const {
  // (rows, columns), (h) or (h, 1), after the heads where there are some.
  const bool is_w_v = std::holds_alternative<Additive>(scoring_) &&
                      &view == &std::get<Additive>(scoring_).w_v;
  const int64_t hidden =
      is_w_v ? std::get<Additive>(scoring_).w_q.shape.back() : 0;
  const bool column =
      view.rank() == 2 && view.shape[0] == hidden && view.shape[1] == 1;
  const bool per_head =
      view.rank() == 3 || (is_w_v && view.rank() == 2 && !column);
  const int64_t index = per_head ? head : 0;
  std::vector<float>& numbers = parameters_[{&view, index}];
  if (!numbers.empty()) return numbers;
  const int first = per_head ? 1 : 0;
  const int64_t rows = view.shape[first];
  const int64_t columns =
      view.rank() > first + 1 ? view.shape[first + 1] : int64_t{1};
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* at = view.data + row * view.strides[first];
    if (per_head) at += head * view.strides[0];
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t step = columns > 1 ? view.strides[first + 1] : 0;
      numbers.push_back(
          static_cast<float>(ReadElement(view.type, at + c * step)));
    }
  }
  return numbers;
}

void Scorer::Project(const std::vector<float>& matrix, double scale,
                     ScoreOperand& operand) const {
  const size_t width = operand.row.size();
  const size_t columns = matrix.size() / width;
  operand.projection.assign(columns, 0);
  operand.magnitude.assign(columns, 0);
  operand.lost.assign(columns, Vanished(width, 1));
  std::vector<double> finite(columns);
  for (size_t d = 0; d < width; ++d) {
    const double x = operand.row[d];
    const bool vanishes = Vanishes(x) || Vanishes(scale * x);
    const float* const row = matrix.data() + d * columns;
    for (size_t n = 0; n < columns; ++n) {
      const double term = x * row[n];
      operand.projection[n] += term;
      operand.magnitude[n] += std::abs(term);
      AddFinite(term, finite[n]);
      if (vanishes || Vanishes(row[n])) operand.lost[n] += std::abs(term);
      // Infinity times what may count as 0 is NaN.
      if (std::isinf(x) && Vanishes(row[n])) operand.overflows = true;
    }
  }
  for (const double magnitude : finite) {
    if (Overflows(magnitude)) operand.overflows = true;
  }
}

ScoreOperand Scorer::Query(int64_t head, std::vector<double> row) const {
  ScoreOperand operand{.row = std::move(row)};
  if (const auto* dot = std::get_if<ScaledDotProduct>(&scoring_)) {
    const double scale = ScaleOf(*dot, operand.row.size());
    operand.overflows = ScaledOverflows(scale, operand.row);
    operand.vanishes = AnyVanishes(scale, operand.row);
  } else if (const auto* additive = std::get_if<Additive>(&scoring_)) {
    Project(Parameter(additive->w_q, head), 1, operand);
  } else if (const auto* bilinear = std::get_if<Bilinear>(&scoring_)) {
    Project(Parameter(bilinear->m, head), bilinear->scale, operand);
    operand.overflows = operand.overflows ||
                        ScaledOverflows(bilinear->scale, operand.row) ||
                        ScaledOverflows(bilinear->scale, operand.magnitude);
  }
  return operand;
}

ScoreOperand Scorer::Key(int64_t head, std::vector<double> row) const {
  ScoreOperand operand{.row = std::move(row)};
  if (const auto* additive = std::get_if<Additive>(&scoring_)) {
    Project(Parameter(additive->w_k, head), 1, operand);
  }
  operand.vanishes = AnyVanishes(1, operand.row);
  return operand;
}

Score Scorer::Compute(int64_t head, const ScoreOperand& q,
                      const ScoreOperand& k) const {
  Score score = std::visit(
      [&](const auto& scoring) { return Of(scoring, head, q, k); }, scoring_);
  score.overflows = score.overflows || q.overflows || k.overflows ||
                    Overflows(score.magnitude);
  return score;
}

Score Scorer::Of(const ScaledDotProduct& dot, int64_t, const ScoreOperand& q,
                 const ScoreOperand& k) const {
  const size_t width = q.row.size();
  const double scale = ScaleOf(dot, width);
  Score score;
  double finite = 0;
  for (size_t d = 0; d < width; ++d) {
    const double term = q.row[d] * k.row[d];
    score.value += term;
    score.magnitude += std::abs(term);
    AddFinite(term, finite);
  }
  double lost = 0;
  for (size_t d = 0; d < width && (q.vanishes || k.vanishes); ++d) {
    if (Vanishes(scale) || Vanishes(q.row[d]) || Vanishes(k.row[d]) ||
        Vanishes(scale * q.row[d])) {
      lost += std::abs(q.row[d] * k.row[d]);
    }
  }
  const double factor = std::abs(scale);
  return {.value = scale * score.value,
          .magnitude = factor * score.magnitude,
          .lost = factor * lost + Vanished(width + 1, factor),
          .overflows = Overflows(finite) || Overflows(factor * finite)};
}

Score Scorer::Of(const Additive& additive, int64_t head, const ScoreOperand& q,
                 const ScoreOperand& k) const {
  const std::vector<float>& w_v = Parameter(additive.w_v, head);
  Score score;
  double sum = 0;
  for (size_t n = 0; n < w_v.size(); ++n) {
    const double factor = std::abs(w_v[n]);
    const double t = std::tanh(q.projection[n] + k.projection[n]);
    const double slope = 1 - t * t;
    score.value += w_v[n] * t;
    score.magnitude += factor;
    sum += factor;
    // An infinite projection has a slope of 0.
    if (slope > 0) {
      score.magnitude += factor * slope * (q.magnitude[n] + k.magnitude[n]);
    }
    // tanh is no steeper than 1 and no larger.
    const double lost = std::min(q.lost[n] + k.lost[n] + kVanishing, 2.0);
    score.lost += std::isfinite(factor) ? factor * lost : 0;
  }
  score.lost += Vanished(w_v.size() + 1, 1);
  score.overflows = Overflows(sum);
  return score;
}

Score Scorer::Of(const Gaussian& gaussian, int64_t, const ScoreOperand& q,
                 const ScoreOperand& k) const {
  const double factor = 1 / (2 * gaussian.sigma * gaussian.sigma);
  double squares = 0;
  double lost = 0;
  for (size_t d = 0; d < q.row.size(); ++d) {
    const double difference = q.row[d] - k.row[d];
    squares += difference * difference;
    // Both numbers, or their difference, and its square.
    lost += kVanishing * (4 * std::abs(difference) + 2);
  }
  const bool finite = std::isfinite(squares);
  if (Vanishes(factor)) lost = squares;
  // Infinity times what may count as 0 is NaN.
  const bool zero_by_infinity = !finite && Vanishes(factor);
  return {.value = -squares * factor,
          .magnitude = squares * factor,
          .lost = finite ? lost * factor + Vanished(q.row.size(), 1) : 0,
          .overflows = Overflows(squares) || !(factor < kOverflowing) ||
                       Overflows(2 * squares * factor) || zero_by_infinity};
}

Score Scorer::Of(const Bilinear& bilinear, int64_t, const ScoreOperand& q,
                 const ScoreOperand& k) const {
  const double factor = std::abs(bilinear.scale);
  Score score;
  double lost = 0;
  double finite_terms = 0;
  bool zero_by_infinity = false;
  for (size_t e = 0; e < k.row.size(); ++e) {
    const double key = std::abs(k.row[e]);
    score.value += q.projection[e] * k.row[e];
    score.magnitude += q.magnitude[e] * key;
    AddFinite(q.magnitude[e] * key, finite_terms);
    const double projection = std::abs(q.projection[e]);
    const bool vanishes =
        Vanishes(factor) || Vanishes(key) || Vanishes(factor * projection);
    // What may count as 0 makes NaN of an infinite key or projection.
    if ((std::isinf(key) && (vanishes || projection <= q.lost[e])) ||
        (std::isinf(projection) && vanishes)) {
      zero_by_infinity = true;
    }
    lost += q.lost[e] * key;
    if (vanishes) lost += projection * key;
  }
  // The same where the keys are multiplied with M first.
  lost += Vanished(k.row.size(), 1) * SumOfMagnitudes(q.row);
  const bool finite = std::isfinite(score.magnitude);
  return {
      .value = bilinear.scale * score.value,
      .magnitude = factor * score.magnitude,
      .lost = finite ? factor * lost + Vanished(k.row.size() + 1, factor) : 0,
      .overflows = Overflows(finite_terms) ||
                   Overflows(factor * finite_terms) || zero_by_infinity};
}

double Scorer::Growth(int64_t query_width, int64_t key_width) const {
  double terms = 0;
  if (const auto* additive = std::get_if<Additive>(&scoring_)) {
    const int64_t hidden = additive->w_q.shape.back();
    terms = static_cast<double>(query_width + key_width + hidden);
  } else if (std::holds_alternative<Bilinear>(scoring_)) {
    terms = static_cast<double>(query_width + key_width);
  } else {
    terms = static_cast<double>(query_width);
  }
  return std::max(1.0, std::sqrt(terms) / 4);
}

}  // namespace attention::test
