#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/support/oracle_reader.h"
#include "tests/support/oracle_score.h"
#include "tests/support/special_numbers.h"

namespace attention::test {
namespace {

// Weights that FP32 may take for 0, or not, after what it loses of the score.
constexpr double kPerhapsNoWeight = 0x1p-100;

bool Drops(const Dropout& dropout, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!dropout.training) return false;
  const auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::array<uint32_t, 4> words =
      OraclePhilox({low(j / 4), low(i), low(h), low(b)},
                   {static_cast<uint32_t>(dropout.seed),
                    static_cast<uint32_t>(dropout.seed >> 32)});
  return words[j % 4] < std::floor(dropout.p * 4294967296.0);
}

// Where rounding to FP32 begins to give infinities.
constexpr double kRoundsToInfinity = 0x1.ffffffp127;

// A row's scores, softmax and sums, one step of the contract after the other.
class RowOracle {
 public:
  // `keys` are those of (b, h).
  RowOracle(const AttentionProblem& problem, const ProblemReader& reader,
            const Scorer& scorer, const std::vector<ScoreOperand>& keys,
            int64_t first_batch, int64_t b, int64_t h, int64_t i)
      : problem_(problem),
        reader_(reader),
        first_batch_(first_batch),
        b_(b),
        h_(h),
        i_(i) {
    ComputeScores(scorer, keys);
    ComputeWeights();
  }

  void AppendTo(Expected& expected) const {
    const bool after = problem_.wanted.weights_after_dropout;
    const std::vector<double>& weights = after ? dropped_ : weights_;
    expected.weights.insert(expected.weights.end(), weights.begin(),
                            weights.end());
    for (size_t j = 0; j < weights.size(); ++j) {
      expected.takes_part.push_back(after ? kept_[j] : counts_[j]);
    }
    expected.undropped.insert(expected.undropped.end(), weights_.begin(),
                              weights_.end());
    expected.counts.insert(expected.counts.end(), counts_.begin(),
                           counts_.end());
    for (const StagedScore& staged : staged_) {
      expected.scores.push_back(staged.value);
      expected.score_kappa.push_back(staged.kappa);
      expected.score_lost.push_back(staged.lost);
      expected.score_overflows.push_back(staged.overflows);
    }
    expected.lse.push_back(lse_);
    expected.kappa.push_back(kappa_);
    expected.lost.push_back(lost_);
    expected.has_sink.push_back(reader_.Sink(b_, h_).has_value());
    expected.row_overflows.push_back(overflows_);
    const size_t end = expected.output.size() + expected.value_width;
    expected.output.resize(end);
    expected.weighted.resize(end);
    expected.reach.resize(end);
    expected.largest.resize(end);
    expected.output_overflows.resize(end);
    for (size_t j = 0; j < dropped_.size(); ++j) {
      if (kept_[j]) AddValue(j, end - expected.value_width, expected);
    }
    // All keys of a row of NaN are dropped: NaN, or 0.
    const bool dropped_nan =
        std::isnan(lse_) &&
        std::find(kept_.begin(), kept_.end(), true) == kept_.end();
    for (size_t n = end - expected.value_width; n < end; ++n) {
      if (dropped_nan || Overflows(expected.reach[n])) {
        expected.output_overflows[n] = true;
      }
    }
  }

 private:
  // A score at the stage that is asked for.
  struct StagedScore {
    double value = -kInfinity;
    double kappa = 0;
    double lost = 0;
    bool overflows = false;
  };

  void AddValue(size_t j, size_t begin, Expected& expected) const {
    const std::vector<double>& v =
        reader_.Value(b_, h_, static_cast<int64_t>(j));
    const double weight = dropped_[j];
    double* const output = expected.output.data() + begin;
    double* const weighted = expected.weighted.data() + begin;
    double* const reach = expected.reach.data() + begin;
    double* const largest = expected.largest.data() + begin;
    for (size_t n = 0; n < v.size(); ++n) {
      const double element = v[n];
      const double magnitude = std::abs(element);
      if (!std::isfinite(element) && weight < kPerhapsNoWeight) {
        expected.output_overflows[begin + n] = true;
        continue;
      }
      output[n] += weight * element;
      weighted[n] += weight * magnitude;
      if (!std::isfinite(element)) continue;
      reach[n] += magnitude;
      largest[n] = std::max(largest[n], magnitude);
    }
  }

  void ComputeScores(const Scorer& scorer,
                     const std::vector<ScoreOperand>& keys) {
    const ScoreOperand q = scorer.Query(h_, reader_.Query(b_, h_, i_));
    for (int64_t j = 0; j < reader_.key_length(); ++j) {
      scores_.push_back(ScoreOfKey(scorer, q, keys[j], j));
      if (scores_.back()) empty_ = false;
      if (problem_.wanted.scores) {
        staged_.push_back(Staged(scorer, q, keys[j], j));
      }
    }
    if (!std::isfinite(lost_)) overflows_ = true;
  }

  // Scoring, softcap, ALiBi, bias, masks; nothing where the key takes no part.
  std::optional<double> ScoreOfKey(const Scorer& scorer, const ScoreOperand& q,
                                   const ScoreOperand& k, int64_t j) {
    const double bias = reader_.Bias(b_, h_, i_, j);
    if (!reader_.TakesPart(b_, h_, i_, j) || bias == -kInfinity) return {};
    Score score = scorer.Compute(h_, q, k);
    if (problem_.softcap) Cap(*problem_.softcap, score);
    const double alibi = reader_.Alibi(b_, h_, i_, j);
    const auto width = [](const ScoreOperand& operand) {
      return static_cast<int64_t>(operand.row.size());
    };
    // What is infinite has no rounding; a softcap makes it finite.
    const double magnitude =
        std::isfinite(score.magnitude)
            ? scorer.Growth(width(q), width(k)) * score.magnitude
            : std::abs(score.value);
    const double sum = score.value + alibi + bias;
    lost_ = std::max(lost_, score.lost);
    overflows_ = overflows_ || score.overflows || Overflows(bias) ||
                 Overflows(std::abs(alibi)) ||
                 Overflows(std::abs(score.value)) ||
                 MayRoundToInfinity(sum, magnitude + std::abs(alibi));
    if (sum <= -kRoundsToInfinity) return {};
    const double kappa = magnitude + std::abs(alibi) + std::abs(bias);
    if (std::isfinite(kappa)) kappa_ = std::max(kappa_, kappa);
    return sum;
  }

  // Masks and bias are for the last stage, and the softcap not for the first.
  StagedScore Staged(const Scorer& scorer, const ScoreOperand& q,
                     const ScoreOperand& k, int64_t j) const {
    const bool masked = problem_.wanted.scores == ScoreStage::kMasked;
    const double bias = masked ? reader_.Bias(b_, h_, i_, j) : 0;
    const double alibi = masked ? reader_.Alibi(b_, h_, i_, j) : 0;
    if (masked && (!reader_.TakesPart(b_, h_, i_, j) || bias == -kInfinity)) {
      return {};
    }
    Score score = scorer.Compute(h_, q, k);
    const double growth = scorer.Growth(static_cast<int64_t>(q.row.size()),
                                        static_cast<int64_t>(k.row.size()));
    StagedScore staged = {
        .kappa = std::isfinite(score.magnitude) ? growth * score.magnitude
                                                : std::abs(score.value),
        .overflows = score.overflows || Overflows(std::abs(score.value))};
    if (problem_.softcap && problem_.wanted.scores != ScoreStage::kScaled) {
      Cap(*problem_.softcap, score);
    }
    staged.lost = score.lost;
    staged.value = score.value + alibi + bias;
    staged.kappa += std::abs(alibi) + std::abs(bias);
    staged.overflows = staged.overflows || Overflows(bias) ||
                       Overflows(std::abs(alibi)) ||
                       MayRoundToInfinity(staged.value, staged.kappa) ||
                       !std::isfinite(staged.lost);
    if (staged.value <= -kRoundsToInfinity) staged.value = -kInfinity;
    return staged;
  }

  // Whether rounding errors decide if FP32 has -inf for `sum`: a bias near the
  // lowest number was added to terms of such magnitudes.
  static bool MayRoundToInfinity(double sum, double magnitude) {
    constexpr double kRounding = 0x1p-20;
    return std::isfinite(sum) &&
           std::abs(sum + kRoundsToInfinity) <= kRounding * magnitude;
  }

  static void Cap(double cap, Score& score) {
    const double ratio = score.value / cap;
    score.lost += Vanishes(ratio) ? std::abs(score.value) : kVanishing;
    score.value = cap * std::tanh(ratio);
  }

  // Softmax with the head's sink, dropout.
  void ComputeWeights() {
    double max = -kInfinity;
    for (const std::optional<double>& score : scores_) {
      if (score && (*score > max || std::isnan(*score))) max = *score;
    }
    const std::optional<double> sink = reader_.Sink(b_, h_);
    if (sink && *sink > max) max = *sink;
    double sum = sink ? std::exp(*sink - max) : 0;
    // Of the sink's rounding the row sees as much as the sink weighs.
    const double of_sink = sum;
    for (const std::optional<double>& score : scores_) {
      if (score) sum += std::exp(*score - max);
    }
    if (sink) kappa_ = std::max(kappa_, of_sink / sum * std::abs(*sink));
    lse_ = empty_ && !sink ? -kInfinity : max + std::log(sum);
    // NaN, but perhaps for keys that are infinitely less than +inf.
    for (const std::optional<double>& score : scores_) {
      if (score && std::isinf(*score) && !std::isfinite(max)) overflows_ = true;
    }
    const bool uniform =
        empty_ && !sink && problem_.empty_rows == EmptyRows::kUniform;
    for (size_t j = 0; j < scores_.size(); ++j) {
      double weight = uniform ? 1 / static_cast<double>(scores_.size()) : 0;
      if (scores_[j]) weight = std::exp(*scores_[j] - max) / sum;
      weights_.push_back(weight);
      const Dropout& dropout = problem_.dropout;
      const bool drops =
          Drops(dropout, first_batch_ + b_, h_, i_, static_cast<int64_t>(j));
      if (drops) weight *= 0;  // NaN stays
      counts_.push_back(scores_[j] || uniform);
      kept_.push_back(counts_[j] && !drops);
      dropped_.push_back(dropout.training ? weight / (1 - dropout.p) : weight);
    }
  }

  const AttentionProblem& problem_;
  const ProblemReader& reader_;
  int64_t first_batch_;
  int64_t b_, h_, i_;
  std::vector<std::optional<double>> scores_;  // nothing: takes no part
  std::vector<StagedScore> staged_;            // where they are asked for
  std::vector<double> weights_;                // before dropout
  std::vector<double> dropped_;                // after dropout
  std::vector<bool> counts_;                   // takes part, or row is uniform
  std::vector<bool> kept_;                     // and is not dropped
  double lse_ = 0;
  double kappa_ = 0;
  double lost_ = 0;
  bool overflows_ = false;
  bool empty_ = true;
};

}  // namespace

Expected ComputeExpected(const AttentionProblem& problem, int64_t first_batch) {
  const ProblemReader reader(problem);
  const Scorer scorer(problem.scoring);
  Expected expected{.batch = reader.batch(),
                    .query_heads = reader.query_heads(),
                    .query_length = reader.query_length(),
                    .key_length = reader.key_length(),
                    .value_width = reader.value_width()};
  if (problem.dropout.training) {
    expected.largest_weight = 1 / (1 - problem.dropout.p);
  }
  for (int64_t b = 0; b < expected.batch; ++b) {
    for (int64_t h = 0; h < expected.query_heads; ++h) {
      std::vector<ScoreOperand> keys;
      keys.reserve(static_cast<size_t>(expected.key_length));
      for (int64_t j = 0; j < expected.key_length; ++j) {
        keys.push_back(scorer.Key(h, reader.Key(b, h, j)));
      }
      for (int64_t i = 0; i < expected.query_length; ++i) {
        RowOracle(problem, reader, scorer, keys, first_batch, b, h, i)
            .AppendTo(expected);
      }
    }
  }
  return expected;
}

std::array<uint32_t, 4> OraclePhilox(std::array<uint32_t, 4> counter,
                                     std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * counter[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * counter[2];
    const auto high = [](uint64_t product) {
      return static_cast<uint32_t>(product >> 32);
    };
    counter = {high(odd) ^ counter[1] ^ key[0], static_cast<uint32_t>(odd),
               high(even) ^ counter[3] ^ key[1], static_cast<uint32_t>(even)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

}  // namespace attention::test
