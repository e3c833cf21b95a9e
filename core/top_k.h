#ifndef ATTENTION_CORE_TOP_K_H_
#define ATTENTION_CORE_TOP_K_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace attention {

/// The k largest of a row's weights while its keys come, in order. They are
/// kept where the row's results go, the least of them first (a heap), and
/// brought into order in the end: no other memory is needed, however large k
/// is.
class TopK {
 public:
  /// Where k integers of 64 bits and k floats go, at any alignment; k >= 1.
  TopK(int64_t k, std::byte* indices, std::byte* weights)
      : k_(k), indices_(indices), weights_(weights) {}

  int64_t k() const { return k_; }
  /// What a weight must pass to be among the largest so far; -1 while there is
  /// room for any.
  float bound() const { return bound_; }

  /// Takes a key that takes part, behind all those so far. NaN is above every
  /// number.
  void Offer(float weight, int64_t key) {
    const Entry entry = {weight, key};
    if (count_ < k_) {
      Rise(count_++, entry);
    } else if (IsBefore(entry, Load(0))) {
      Sink(0, k_, entry);
    } else {
      return;
    }
    if (count_ < k_) return;
    const float least = Load(0).weight;
    bound_ = std::isnan(least) ? std::numeric_limits<float>::infinity() : least;
  }

  /// After the last key: the largest first, key -1 and weight 0 behind them.
  void Finish() {
    for (int64_t left = count_; left > 1; --left) {
      const Entry least = Load(0);
      Sink(0, left - 1, Load(left - 1));
      Store(left - 1, least);
    }
    for (int64_t n = count_; n < k_; ++n) Store(n, {0, -1});
  }

 private:
  struct Entry {
    float weight;
    int64_t key;
  };

  // In the order of results.
  static bool IsBefore(const Entry& a, const Entry& b) {
    const bool a_nan = std::isnan(a.weight);
    const bool b_nan = std::isnan(b.weight);
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a.weight != b.weight) return a.weight > b.weight;
    return a.key < b.key;
  }

  Entry Load(int64_t n) const {
    Entry entry;
    std::memcpy(&entry.weight, weights_ + n * kWeightBytes, kWeightBytes);
    std::memcpy(&entry.key, indices_ + n * kKeyBytes, kKeyBytes);
    return entry;
  }
  void Store(int64_t n, const Entry& entry) {
    std::memcpy(weights_ + n * kWeightBytes, &entry.weight, kWeightBytes);
    std::memcpy(indices_ + n * kKeyBytes, &entry.key, kKeyBytes);
  }

  // Puts an entry at place n of a heap, or above it.
  void Rise(int64_t n, const Entry& entry) {
    while (n > 0) {
      const int64_t parent = (n - 1) / 2;
      const Entry above = Load(parent);
      if (IsBefore(entry, above)) break;
      Store(n, above);
      n = parent;
    }
    Store(n, entry);
  }

  // Or below it, among the first `count`.
  void Sink(int64_t n, int64_t count, const Entry& entry) {
    for (int64_t child = 2 * n + 1; child < count; child = 2 * n + 1) {
      Entry below = Load(child);
      if (child + 1 < count && IsBefore(below, Load(child + 1))) {
        below = Load(++child);
      }
      if (IsBefore(below, entry)) break;
      Store(n, below);
      n = child;
    }
    Store(n, entry);
  }

  static constexpr int64_t kWeightBytes = sizeof(float);
  static constexpr int64_t kKeyBytes = sizeof(int64_t);

  int64_t k_;
  int64_t count_ = 0;
  std::byte* indices_;
  std::byte* weights_;
  float bound_ = -1;
};

}  // namespace attention

#endif  // ATTENTION_CORE_TOP_K_H_
