#include "tests/support/covering_array.h"

#include <algorithm>
#include <numeric>

#include "tests/support/random.h"

namespace attention::test {
namespace {

constexpr int kUnset = -1;
constexpr int kCandidates = 8;

class Builder {
 public:
  explicit Builder(const std::vector<int>& level_counts)
      : counts_(level_counts), random_(/*seed=*/1) {
    int levels = 0;
    for (const int count : counts_) {
      first_level_.push_back(levels);
      levels += count;
    }
    covered_.assign(levels, std::vector<bool>(levels, true));
    for (size_t f = 0; f < counts_.size(); ++f) {
      for (size_t g = 0; g < counts_.size(); ++g) {
        if (f == g) continue;
        for (int a = 0; a < counts_[f]; ++a) {
          for (int b = 0; b < counts_[g]; ++b) {
            covered_[first_level_[f] + a][first_level_[g] + b] = false;
            if (f < g) ++uncovered_;
          }
        }
      }
    }
  }

  std::vector<std::vector<int>> Build() {
    std::vector<std::vector<int>> rows;
    while (uncovered_ > 0) {
      std::vector<int> best;
      int best_gain = 0;
      for (int candidate = 0; candidate < kCandidates; ++candidate) {
        std::vector<int> row = Candidate();
        const int gain = Gain(row);
        if (gain > best_gain) {
          best = std::move(row);
          best_gain = gain;
        }
      }
      Cover(best);
      rows.push_back(std::move(best));
    }
    return rows;
  }

 private:
  bool Covered(const std::vector<int>& row, size_t f, size_t g) const {
    return covered_[first_level_[f] + row[f]][first_level_[g] + row[g]];
  }

  // A row that begins with a pair not yet covered and takes, factor by factor,
  // the level that covers most.
  std::vector<int> Candidate() {
    std::vector<int> row(counts_.size(), kUnset);
    SetUncoveredPair(row);
    std::vector<size_t> order(counts_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t n = order.size(); n > 1; --n) {
      std::swap(
          order[n - 1],
          order[static_cast<size_t>(random_.Below(static_cast<int64_t>(n)))]);
    }
    for (const size_t factor : order) {
      if (row[factor] == kUnset) row[factor] = BestLevel(row, factor);
    }
    return row;
  }

  void SetUncoveredPair(std::vector<int>& row) {
    int64_t skip = random_.Below(uncovered_);
    for (size_t f = 0; f < counts_.size(); ++f) {
      for (size_t g = f + 1; g < counts_.size(); ++g) {
        for (row[f] = 0; row[f] < counts_[f]; ++row[f]) {
          for (row[g] = 0; row[g] < counts_[g]; ++row[g]) {
            if (!Covered(row, f, g) && skip-- == 0) return;
          }
        }
        row[g] = kUnset;
      }
      row[f] = kUnset;
    }
  }

  int BestLevel(std::vector<int> row, size_t factor) {
    const int offset = static_cast<int>(random_.Below(counts_[factor]));
    int best = offset;
    int best_gain = -1;
    for (int n = 0; n < counts_[factor]; ++n) {
      row[factor] = (n + offset) % counts_[factor];  // ties fall at random
      int gain = 0;
      for (size_t other = 0; other < row.size(); ++other) {
        if (other == factor || row[other] == kUnset) continue;
        if (!Covered(row, factor, other)) ++gain;
      }
      if (gain > best_gain) {
        best = row[factor];
        best_gain = gain;
      }
    }
    return best;
  }

  int Gain(const std::vector<int>& row) const {
    int gain = 0;
    for (size_t f = 0; f < row.size(); ++f) {
      for (size_t g = f + 1; g < row.size(); ++g) {
        if (!Covered(row, f, g)) ++gain;
      }
    }
    return gain;
  }

  void Cover(const std::vector<int>& row) {
    uncovered_ -= Gain(row);
    for (size_t f = 0; f < row.size(); ++f) {
      for (size_t g = 0; g < row.size(); ++g) {
        covered_[first_level_[f] + row[f]][first_level_[g] + row[g]] = true;
      }
    }
  }

  const std::vector<int>& counts_;
  Random random_;
  std::vector<int> first_level_;            // number of a factor's level 0
  std::vector<std::vector<bool>> covered_;  // by two levels' numbers
  int64_t uncovered_ = 0;                   // pairs
};

}  // namespace

std::vector<std::vector<int>> PairwiseCoveringArray(
    const std::vector<int>& level_counts) {
  return Builder(level_counts).Build();
}

}  // namespace attention::test
