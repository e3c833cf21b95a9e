// QK of packed operands: a panel for each of the scores in tile_args.h
// (qk-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

// Queries and keys row by row, as they are before packing.
struct Operand {
  int64_t rows;
  int64_t floats;  // of a row
  Floats data;

  const float* row(int64_t r) const { return data.data() + r * floats; }
};

class QkTest : public KernelTest {
 protected:
  static constexpr Score kScores[] = {Score::kDot, Score::kDifference,
                                      Score::kTanh, Score::kTanhWide};

  Operand Make(Score score, int64_t rows, int64_t width) {
    Operand operand{rows, score == Score::kTanhWide ? 2 * width : width, {}};
    operand.data = Normals(rows * operand.floats);
    if (score == Score::kTanh) {
      // e^(2 x), x up to 40: products beyond FP32, and so small that 1 is all
      // that is left of the denominator.
      for (float& x : operand.data) {
        x = static_cast<float>(std::exp(std::clamp(20.0 * x, -80.0, 80.0)));
      }
    } else if (score == Score::kTanhWide) {
      for (size_t i = 0; i < operand.data.size(); i += 2) {
        operand.data[i] = static_cast<float>(0.7072 + 0.7 * random_.Uniform());
        operand.data[i + 1] = static_cast<float>(random_.Between(-300, 300));
        if (random_.Chance(0.7)) operand.data[i + 1] /= 100;
        operand.data[i + 1] = std::round(operand.data[i + 1]);
      }
    }
    return operand;
  }

  // A sum of n products is within n + 2 roundings of its terms' magnitudes
  // (the bound of semantics.md without its statistics), that of squared
  // differences 3 more for every difference and square.
  static ExpectedScore Dot(const float* q, const float* k, int64_t width) {
    ExpectedScore e;
    for (int64_t i = 0; i < width; ++i) {
      const double term = static_cast<double>(q[i]) * k[i];
      e.score += term;
      e.bound += std::abs(term) * kEps * static_cast<double>(width + 2);
    }
    return e;
  }
  static ExpectedScore Difference(const float* q, const float* k,
                                  int64_t width) {
    ExpectedScore e;
    for (int64_t i = 0; i < width; ++i) {
      const double difference = static_cast<double>(q[i]) - k[i];
      e.score -= difference * difference;
    }
    e.bound = -e.score * kEps * static_cast<double>(width + 5);
    return e;
  }
  // Beside the sum's roundings those of a fraction: 2 of a denominator, at most
  // 8 of how four are brought to one, 2 (2^-23) of the quotient. And where a
  // denominator is held at 2^30, the fraction is 2^-30 of its numerator.
  ExpectedScore Tanh(const float* q, const float* k, int64_t width,
                     bool pairs) const {
    ExpectedScore e;
    for (int64_t i = 0; i < width; ++i) {
      const double power =
          pairs ? std::exp2(static_cast<double>(q[2 * i + 1]) + k[2 * i + 1]) *
                      q[2 * i] * k[2 * i]
                : static_cast<double>(q[i]) * k[i];
      const double weight = weights_[static_cast<size_t>(i)];
      const double term = weight / (power + 1);
      e.score += term;
      e.bound += std::abs(term) * kEps * static_cast<double>(width + 12) +
                 std::abs(weight) * 0x1.01p-30;
    }
    return e;
  }
  ExpectedScore Of(Score score, const float* q, const float* k,
                   int64_t width) const {
    switch (score) {
      case Score::kDot:
        return Dot(q, k, width);
      case Score::kDifference:
        return Difference(q, k, width);
      case Score::kTanh:
        return Tanh(q, k, width, false);
      case Score::kTanhWide:
        return Tanh(q, k, width, true);
    }
    return {};
  }

  // Packs operands for a tile; `tile` points to them.
  void SetOperands(Score score, const Operand& queries, const Operand& keys,
                   int64_t width, Tile& tile) {
    packed_queries_.resize(queries.data.size());
    kernels_.pack_queries(queries.data.data(), queries.floats, queries.rows,
                          queries.floats, 1, packed_queries_.data());
    packed_keys_.resize(
        static_cast<size_t>((keys.rows + 2 * lanes_) * keys.floats));
    kernels_.pack_keys(keys.data.data(), keys.floats, keys.rows, keys.floats,
                       packed_keys_.data());
    tile.args.packed.score = score;
    tile.args.packed.width = width;
    tile.args.packed.queries = packed_queries_.data();
    tile.args.packed.keys = packed_keys_.data();
    tile.args.packed.tanh_weights = weights_.data();
  }

  // Computes the scores of columns that hold keys first_key and all behind it.
  Floats Run(Tile& tile, int64_t first_key = 0) {
    std::fill(tile.begin.begin(), tile.begin.end(),
              static_cast<int32_t>(first_key));
    const TileColumns columns = parts_.columns_of_rows(
        tile.args.epilogue, tile.args.rows, 2 * lanes_, lanes_);
    Floats to(static_cast<size_t>(tile.args.rows * kScoreStride));
    parts_.score_packed(tile.args, columns, to.data());
    return to;
  }

  void Check(Score score, int64_t rows, int64_t count, int64_t width,
             int64_t first_key = 0) {
    SCOPED_TRACE(testing::Message()
                 << "score " << static_cast<int>(score) << ", " << rows
                 << " rows, keys " << first_key << " to " << count << ", width "
                 << width);
    weights_ = Normals(width);
    const Operand queries = Make(score, rows, width);
    const Operand keys = Make(score, count, width);
    Tile tile(rows, count, lanes_);
    SetOperands(score, queries, keys, width, tile);
    const Floats found = Run(tile, first_key);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = first_key; j < count; ++j) {
        const ExpectedScore e = Of(score, queries.row(r), keys.row(j), width);
        ASSERT_TRUE(IsNear(e.score, e.bound,
                           found[static_cast<size_t>(r * kScoreStride + j)]))
            << "row " << r << ", key " << j;
      }
    }
  }

  Floats weights_;
  Floats packed_queries_;
  Floats packed_keys_;
};

TEST_P(QkTest, ScoresOfAnyWidth) {
  for (const Score score : kScores) {
    for (const int64_t width : Lengths()) {
      Check(score, 13, 2 * lanes_ + 1, width);
    }
  }
}

TEST_P(QkTest, ScoresOfAnyNumberOfRows) {
  for (const Score score : kScores) {
    for (int64_t rows = 1; rows <= 27; ++rows) Check(score, rows, 5, 6);
  }
}

TEST_P(QkTest, ScoresOfAnyNumberOfKeys) {
  for (const Score score : kScores) {
    for (const int64_t count : Lengths()) {
      Check(score, 5, count, 6);
      if (count > 2 * lanes_) Check(score, 5, count, 6, 2 * lanes_ + 1);
    }
  }
}

TEST_P(QkTest, AddsTheKeysAddendsToDotProducts) {
  for (const int64_t count : {lanes_, lanes_ + 1, 4 * lanes_ + 3}) {
    const Operand queries = Make(Score::kDot, 13, 9);
    const Operand keys = Make(Score::kDot, count, 9);
    const Floats addend = Normals(count + 2 * lanes_, 100);
    Tile tile(13, count, lanes_);
    SetOperands(Score::kDot, queries, keys, 9, tile);
    tile.args.packed.key_addend = addend.data();
    const Floats found = Run(tile);
    for (int64_t r = 0; r < 13; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const ExpectedScore e = Dot(queries.row(r), keys.row(j), 9);
        const double expected = e.score + addend[static_cast<size_t>(j)];
        ASSERT_TRUE(IsNear(expected, e.bound + std::abs(expected) * kEps,
                           found[static_cast<size_t>(r * kScoreStride + j)]));
      }
    }
  }
}

// The lines are asked for between the steps of the sums, which they leave
// alone: fewer lines than steps, as many, more, in one range or several.
TEST_P(QkTest, PrefetchingChangesNoBit) {
  const std::vector<unsigned char> memory(4096);
  const Operand queries = Make(Score::kDot, 27, 33);
  const Operand keys = Make(Score::kDot, 70, 33);
  Tile tile(27, 70, lanes_);
  SetOperands(Score::kDot, queries, keys, 33, tile);
  const Floats expected = Run(tile);
  for (const int64_t bytes : {1, 64, 640, 4096}) {
    for (const int64_t lines : {1, 20, 33, 1000}) {
      for (const int64_t ranges : {1, 2, 20}) {
        Prefetch& prefetch = tile.args.prefetch;
        prefetch.count = ranges;
        prefetch.lines = lines;
        for (int64_t n = 0; n < ranges; ++n) {
          prefetch.ranges[n] = {memory.data(), bytes};
          prefetch.ends[n] = (n + 1) * ((bytes + kLine - 1) / kLine);
        }
        EXPECT_EQ(Run(tile), expected) << bytes << " bytes, " << lines;
      }
    }
  }
}

// Wide rows are scored part by part: sums of all but the last part are kept,
// and the last one starts from them.
TEST_P(QkTest, PartsAddUp) {
  constexpr int64_t kParts = 3;
  constexpr int64_t kWidth = 20;
  constexpr int64_t kRows = 15;
  const int64_t count = 4 * lanes_ + 1;
  for (const Score score : kScores) {
    weights_ = Normals(kWidth);
    Tile tile(kRows, count, lanes_);
    Floats partial(kRows * kScoreStride, -1e30F);
    std::vector<ExpectedScore> expected(static_cast<size_t>(kRows * count));
    Floats found;
    for (int64_t part = 0; part < kParts; ++part) {
      const Operand queries = Make(score, kRows, kWidth);
      const Operand keys = Make(score, count, kWidth);
      SetOperands(score, queries, keys, kWidth, tile);
      tile.args.packed.partial = partial.data();
      if (part + 1 < kParts) {
        kernels_.add_partial_scores(tile.args, part == 0);
      } else {
        found = Run(tile);
      }
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t j = 0; j < count; ++j) {
          const ExpectedScore e =
              Of(score, queries.row(r), keys.row(j), kWidth);
          ExpectedScore& sum = expected[static_cast<size_t>(r * count + j)];
          sum.score += e.score;
          sum.bound += e.bound + 2 * kEps * std::abs(sum.score);
        }
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < count; ++j) {
        const ExpectedScore& e = expected[static_cast<size_t>(r * count + j)];
        ASSERT_TRUE(IsNear(e.score, e.bound,
                           found[static_cast<size_t>(r * kScoreStride + j)]))
            << "score " << static_cast<int>(score) << ", row " << r << ", key "
            << j;
      }
    }
  }
}

// A special number in every other key and every third row: what it makes of
// their scores, and of no others.
TEST_P(QkTest, SpecialNumbersStayInTheirRowsAndKeys) {
  constexpr int64_t kWidth = 6;
  constexpr int64_t kRows = 13;
  const int64_t count = 2 * lanes_ + 3;
  for (const Score score : {Score::kDot, Score::kDifference}) {
    for (const float special : SpecialFloats()) {
      Operand queries = Make(score, kRows, kWidth);
      Operand keys = Make(score, count, kWidth);
      // Two of the largest would have sums overflow on their way or not.
      const bool largest = std::abs(special) == kMaxFloat;
      for (int64_t r = 0; r < kRows && !largest; r += 3) {
        queries.data[static_cast<size_t>(r * kWidth + 2)] = special;
      }
      for (int64_t j = 1; j < count; j += 2) {
        keys.data[static_cast<size_t>(j * kWidth + 4)] = special;
      }
      Tile tile(kRows, count, lanes_);
      SetOperands(score, queries, keys, kWidth, tile);
      const Floats found = Run(tile);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t j = 0; j < count; ++j) {
          const ExpectedScore e =
              Of(score, queries.row(r), keys.row(j), kWidth);
          ASSERT_TRUE(IsNear(e.score, e.bound,
                             found[static_cast<size_t>(r * kScoreStride + j)]))
              << special << " (0x" << std::hex << BitsFrom(special) << ")";
        }
      }
    }
  }
}

// Of additive scoring: exponentials are never negative, NaN has both parts of
// a pair.
TEST_P(QkTest, SpecialExponentialsStayInTheirRowsAndKeys) {
  const int64_t count = 2 * lanes_ + 3;
  for (const Score score : {Score::kTanh, Score::kTanhWide}) {
    const int64_t floats = score == Score::kTanh ? 1 : 2;
    for (const int64_t width : {3, 6}) {
      for (uint32_t bits :
           {0U, 0x00000001U, 0x7F7FFFFFU, 0x7F800000U, 0x7FC00000U, 0x7FC00001U,
            0xFFFFFFFFU, 0x7F800001U, 0xFF800001U}) {
        weights_ = Normals(width);
        const Operand queries = Make(score, 5, width);
        Operand keys = Make(score, count, width);
        const float special = FloatFromBits(bits);
        float* const at =
            &keys.data[static_cast<size_t>((3 * width + 1) * floats)];
        if (score == Score::kTanh) {
          at[0] = special;
        } else {
          at[0] = std::isnan(special) ? special : 1.0F;
          at[1] = bits < 2 ? -kInfinity : special;
        }
        Tile tile(5, count, lanes_);
        SetOperands(score, queries, keys, width, tile);
        const Floats found = Run(tile);
        for (int64_t r = 0; r < 5; ++r) {
          for (int64_t j = 0; j < count; ++j) {
            const ExpectedScore e =
                Of(score, queries.row(r), keys.row(j), width);
            ASSERT_TRUE(
                IsNear(e.score, e.bound,
                       found[static_cast<size_t>(r * kScoreStride + j)]))
                << std::hex << bits << ", key " << j;
          }
        }
      }
    }
  }
}

INSTANTIATE_FOR_KERNELS(QkTest);

}  // namespace
}  // namespace attention::cpu
