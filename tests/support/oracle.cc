#include "tests/support/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "absl/numeric/int128.h"
#include "tests/support/oracle_score.h"

namespace attention::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Reads a problem's tensors by (b, h, i) and (b, h, j), whatever rank and
// blocks it has.
class Reader {
 public:
  explicit Reader(const AttentionProblem& problem)
      : problem_(problem), rank_(problem.query.rank()) {
    for (const KeyValueBlock& block : problem.key_value) {
      const int64_t keys = block.key.shape[rank_ - 2];
      for (int64_t j = 0; j < keys; ++j) places_.push_back({&block, j});
    }
    for (int64_t b = 0; b < batch(); ++b) {
      for (const Place& place : places_) {
        AppendHeads(place.block->key, b, place.index, keys_);
        AppendHeads(place.block->value, b, place.index, values_);
      }
    }
  }

  int64_t batch() const { return rank_ == 2 ? 1 : problem_.query.shape[0]; }
  int64_t query_heads() const { return HeadsOf(problem_.query); }
  int64_t query_length() const { return problem_.query.shape[rank_ - 2]; }
  int64_t key_length() const { return static_cast<int64_t>(places_.size()); }
  int64_t value_width() const {
    return problem_.key_value.empty()
               ? 0
               : problem_.key_value[0].value.shape[rank_ - 1];
  }

  std::vector<double> Query(int64_t b, int64_t h, int64_t i) const {
    return Row(problem_.query, b, h, i);
  }
  const std::vector<double>& Key(int64_t b, int64_t query_head,
                                 int64_t j) const {
    return keys_[PlaceOf(b, query_head, j)];
  }
  const std::vector<double>& Value(int64_t b, int64_t query_head,
                                   int64_t j) const {
    return values_[PlaceOf(b, query_head, j)];
  }
  double Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return problem_.masks.bias
               ? ReadBroadcast(*problem_.masks.bias, rank_, b, h, i, j)
               : 0;
  }

  // All masks but the bias.
  bool TakesPart(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const Masks& masks = problem_.masks;
    if (masks.valid_lens && static_cast<double>(j) >= ValidLength(b, i)) {
      return false;
    }
    if (masks.attend_mask &&
        ReadBroadcast(*masks.attend_mask, rank_, b, h, i, j) == 0) {
      return false;
    }
    // Wide enough for any offset and window.
    const absl::int128 key = absl::int128(j) + masks.key_offset.value_or(0);
    const absl::int128 p =
        masks.causal == Causal::kBottomRight
            ? absl::int128(i) + key_length() - query_length()
            : absl::int128(i) + masks.query_offset.value_or(0);
    if (masks.causal != Causal::kNone && key > p) return false;
    if (masks.window.left && key < p - *masks.window.left) return false;
    return !(masks.window.right && key > p + *masks.window.right);
  }

 private:
  struct Place {
    const KeyValueBlock* block;
    int64_t index;
  };

  int64_t HeadsOf(const TensorView& tensor) const {
    return rank_ == 4 ? tensor.shape[1] : 1;
  }
  int64_t KvHeads() const { return HeadsOf(places_[0].block->key); }
  void AppendHeads(const TensorView& tensor, int64_t b, int64_t index,
                   std::vector<std::vector<double>>& rows) const {
    for (int64_t h = 0; h < KvHeads(); ++h) {
      rows.push_back(Row(tensor, b, h, index));
    }
  }
  // Of a key, and of a value, in keys_ and values_.
  size_t PlaceOf(int64_t b, int64_t query_head, int64_t j) const {
    const int64_t kv_head = query_head / (query_heads() / KvHeads());
    return static_cast<size_t>((b * key_length() + j) * KvHeads() + kv_head);
  }
  std::vector<double> Row(const TensorView& tensor, int64_t b, int64_t h,
                          int64_t i) const {
    std::vector<double> row(tensor.shape[rank_ - 1]);
    for (size_t d = 0; d < row.size(); ++d) {
      row[d] = ReadBroadcast(tensor, rank_, b, h, i, static_cast<int64_t>(d));
    }
    return row;
  }
  double ValidLength(int64_t b, int64_t i) const {
    const TensorView& lengths = *problem_.masks.valid_lens;
    const std::byte* at = lengths.data + b * lengths.strides[0];
    if (lengths.rank() == 2) at += i * lengths.strides[1];
    return ReadElement(lengths.type, at);
  }

  const AttentionProblem& problem_;
  int rank_;
  std::vector<Place> places_;
  // Read once, for every row reads them: (b, j, kv head).
  std::vector<std::vector<double>> keys_;
  std::vector<std::vector<double>> values_;
};

bool Drops(const Dropout& dropout, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (!dropout.training) return false;
  const auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  const std::array<uint32_t, 4> words =
      OraclePhilox({low(j / 4), low(i), low(h), low(b)},
                   {static_cast<uint32_t>(dropout.seed),
                    static_cast<uint32_t>(dropout.seed >> 32)});
  return words[j % 4] < std::floor(dropout.p * 4294967296.0);
}

// A row's scores, softmax and sums, one step of the contract after the other.
class RowOracle {
 public:
  RowOracle(const AttentionProblem& problem, const Reader& reader, int64_t b,
            int64_t h, int64_t i)
      : problem_(problem), reader_(reader), b_(b), h_(h), i_(i) {
    ComputeScores();
    ComputeWeights();
  }

  void AppendTo(Expected& expected) const {
    const bool after = problem_.wanted.weights_after_dropout;
    const std::vector<double>& weights = after ? dropped_ : weights_;
    expected.weights.insert(expected.weights.end(), weights.begin(),
                            weights.end());
    expected.lse.push_back(lse_);
    expected.kappa.push_back(kappa_);
    const size_t width = expected.value_width;
    std::vector<double> output(width), weighted(width), reach(width);
    for (size_t j = 0; j < dropped_.size(); ++j) {
      if (dropped_[j] == 0) continue;
      const std::vector<double>& v =
          reader_.Value(b_, h_, static_cast<int64_t>(j));
      for (size_t x = 0; x < width; ++x) {
        output[x] += dropped_[j] * v[x];
        weighted[x] += dropped_[j] * std::abs(v[x]);
        reach[x] += std::abs(v[x]);
      }
    }
    expected.output.insert(expected.output.end(), output.begin(), output.end());
    expected.weighted.insert(expected.weighted.end(), weighted.begin(),
                             weighted.end());
    expected.reach.insert(expected.reach.end(), reach.begin(), reach.end());
  }

 private:
  // Scoring, softcap, bias, masks.
  void ComputeScores() {
    const std::vector<double> q = reader_.Query(b_, h_, i_);
    for (int64_t j = 0; j < reader_.key_length(); ++j) {
      std::optional<double>& result = scores_.emplace_back();
      const double bias = reader_.Bias(b_, h_, i_, j);
      if (!reader_.TakesPart(b_, h_, i_, j) || bias == -kInfinity) continue;
      Score score =
          ComputeScore(problem_.scoring, h_, q, reader_.Key(b_, h_, j));
      if (problem_.softcap) {
        const double cap = *problem_.softcap;
        score.value = cap * std::tanh(score.value / cap);
      }
      result = score.value + bias;
      kappa_ = std::max(kappa_, score.magnitude + std::abs(bias));
      empty_ = false;
    }
  }

  // Softmax, dropout.
  void ComputeWeights() {
    double max = -kInfinity;
    for (const std::optional<double>& score : scores_) {
      if (score && (*score > max || std::isnan(*score))) max = *score;
    }
    double sum = 0;
    for (const std::optional<double>& score : scores_) {
      if (score) sum += std::exp(*score - max);
    }
    lse_ = empty_ ? -kInfinity : max + std::log(sum);
    const bool uniform = empty_ && problem_.empty_rows == EmptyRows::kUniform;
    for (size_t j = 0; j < scores_.size(); ++j) {
      double weight = uniform ? 1 / static_cast<double>(scores_.size()) : 0;
      if (scores_[j]) weight = std::exp(*scores_[j] - max) / sum;
      weights_.push_back(weight);
      const Dropout& dropout = problem_.dropout;
      if (Drops(dropout, b_, h_, i_, static_cast<int64_t>(j))) weight = 0;
      dropped_.push_back(dropout.training ? weight / (1 - dropout.p) : weight);
    }
  }

  const AttentionProblem& problem_;
  const Reader& reader_;
  int64_t b_, h_, i_;
  std::vector<std::optional<double>> scores_;  // nothing: takes no part
  std::vector<double> weights_;                // before dropout
  std::vector<double> dropped_;                // after dropout
  double lse_ = 0;
  double kappa_ = 0;
  bool empty_ = true;
};

}  // namespace

Expected ComputeExpected(const AttentionProblem& problem) {
  const Reader reader(problem);
  Expected expected{.batch = reader.batch(),
                    .query_heads = reader.query_heads(),
                    .query_length = reader.query_length(),
                    .key_length = reader.key_length(),
                    .value_width = reader.value_width()};
  for (int64_t b = 0; b < expected.batch; ++b) {
    for (int64_t h = 0; h < expected.query_heads; ++h) {
      for (int64_t i = 0; i < expected.query_length; ++i) {
        RowOracle(problem, reader, b, h, i).AppendTo(expected);
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
