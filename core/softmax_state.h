#ifndef ATTENTION_CORE_SOFTMAX_STATE_H_
#define ATTENTION_CORE_SOFTMAX_STATE_H_

#include <algorithm>
#include <cmath>
#include <limits>

namespace attention {

/// What a softmax is made of: powers of e or of 2, and their logarithm.
struct NaturalExponentials {
  template <typename Float>
  static Float Exp(Float x) {
    return std::exp(x);
  }
  template <typename Float>
  static Float Log(Float x) {
    return std::log(x);
  }
};
struct PowersOfTwo {
  template <typename Float>
  static Float Exp(Float x) {
    return std::exp2(x);
  }
  template <typename Float>
  static Float Log(Float x) {
    return std::log2(x);
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
/// relative to the same maximum: whatever Add() or Merge() returns as factors
/// must be applied to it. Merging is commutative and, to rounding, associative,
/// so tiles, threads, split keys, blocks and shards may be merged in any tree.
///
/// A score of -inf is a key that takes no part. NaN stays, and +inf gives NaN,
/// as inf - inf does in a softmax that has all scores at hand: the row becomes
/// NaN. Natural exponentials, or, with PowersOfTwo, those of scores that were
/// multiplied by log2(e): then `max` and LogSumExp() are in such units, too.
template <typename Float, typename Base = NaturalExponentials>
struct SoftmaxState {
  Float max = -std::numeric_limits<Float>::infinity();
  Float sum = 0;

  /// No key has taken part yet.
  bool empty() const { return sum == 0; }

  /// What the caller multiplies by to bring two weighted sums to one maximum.
  struct Factors {
    Float mine;   // for what this state had gathered
    Float other;  // for what is added
  };

  /// Adds the keys of another state.
  Factors Merge(const SoftmaxState& other) {
    if (other.empty()) return {1, 0};
    if (empty()) {
      *this = other;
      return {0, 1};
    }
    const Float top = max >= other.max || std::isnan(max) ? max : other.max;
    const Factors factors{Base::Exp(max - top), Base::Exp(other.max - top)};
    sum = sum * factors.mine + other.sum * factors.other;
    max = top;
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
    return Base::Exp(std::min(score - max, Float{0})) / sum;
  }

  /// What the caller multiplies its weighted sum by in the end; 0 where no key
  /// took part.
  Float Normalizer() const { return empty() ? 0 : 1 / sum; }

  /// ln(sum_j exp(s_j)); -inf where no key took part.
  Float LogSumExp() const {
    return empty() ? -std::numeric_limits<Float>::infinity()
                   : max + Base::Log(sum);
  }
};

}  // namespace attention

#endif  // ATTENTION_CORE_SOFTMAX_STATE_H_
