#ifndef ATTENTION_CORE_SOFTMAX_STATE_H_
#define ATTENTION_CORE_SOFTMAX_STATE_H_

#include <algorithm>
#include <cmath>
#include <limits>

namespace attention {

/// e^x, as a function that SoftmaxState's may be given another for: vector code
/// has its own, and may count scores in another unit.
struct NaturalExponential {
  template <typename Float>
  Float operator()(Float x) const {
    return std::exp(x);
  }
};

/// One row's softmax while its keys arrive in pieces (Milakov and Gimelshein,
/// "Online normalizer calculation for softmax", 2018). It stands for the sum of
/// exponentials over the keys seen so far,
///
///   sum_j exp(s_j) = sum * exp(max),
///
/// kept relative to the largest score so that no exponential overflows. The
/// weighted sum of values belongs to the same row and is kept by the caller
/// relative to the same maximum: whatever a function returns as factors must be
/// applied to it. Merging is commutative and, to rounding, associative, so
/// tiles, threads, split keys, blocks and shards may be merged in any tree.
///
/// A score of -inf is a key that takes no part. NaN stays, and +inf gives NaN,
/// as inf - inf does in a softmax that has all scores at hand: the row becomes
/// NaN.
template <typename Float>
struct SoftmaxState {
  Float max = -std::numeric_limits<Float>::infinity();
  Float sum = 0;

  /// No key has taken part yet.
  bool empty() const { return sum == 0; }

  /// Makes the state relative to `top`, which no score so far is above. Returns
  /// what the caller multiplies its weighted sum by.
  template <typename Exp = NaturalExponential>
  Float RaiseTo(Float top, const Exp& exp = {}) {
    const Float factor = empty() || top == max ? 1 : exp(max - top);
    sum *= factor;
    max = top;
    return factor;
  }

  /// What the caller multiplies by to bring two weighted sums to one maximum.
  struct Factors {
    Float mine;   // for what this state had gathered
    Float other;  // for what is added
  };

  /// Adds the keys of another state.
  Factors Merge(SoftmaxState other) {
    if (other.empty()) return {1, 0};
    if (empty()) {
      *this = other;
      return {0, 1};
    }
    const Float top = max >= other.max || std::isnan(max) ? max : other.max;
    const Factors factors{RaiseTo(top), other.RaiseTo(top)};
    sum += other.sum;
    return factors;
  }

  /// Adds one score; `other` of the result is the key's weight before
  /// normalisation.
  Factors Add(Float score) {
    if (score == -std::numeric_limits<Float>::infinity()) return {1, 0};
    const Float self = score * 0 + 1;  // 1, or NaN
    return Merge({score, self});
  }

  /// The weight of a key whose score is `score`, once all keys were added; 0
  /// for a key that takes no part, in a NaN row too.
  Float Weight(Float score) const {
    const bool absent = score == -std::numeric_limits<Float>::infinity();
    if (absent || empty()) return 0;
    // A huge score that was computed a second time may round to more than the
    // maximum; its weight is no more than that key's all the same. NaN stays.
    return std::exp(std::min(score - max, Float{0})) / sum;
  }

  /// What the caller multiplies its weighted sum by in the end; 0 where no key
  /// took part.
  Float Normalizer() const { return empty() ? 0 : 1 / sum; }

  /// ln(sum_j exp(s_j)); -inf where no key took part.
  Float LogSumExp() const {
    return empty() ? -std::numeric_limits<Float>::infinity()
                   : max + std::log(sum);
  }
};

}  // namespace attention

#endif  // ATTENTION_CORE_SOFTMAX_STATE_H_
