// PV of packed operands, and of values that are not finite: pv-inl.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

class PvTest : public KernelTest {
 protected:
  // A tile with weights, values and what its rows have gathered so far.
  struct Problem {
    Problem(int64_t rows, int64_t count, int64_t columns)
        : tile(rows, count, columns), keys(count), width(columns) {}

    Tile tile;
    int64_t keys;
    int64_t width;
    Floats values;
    std::vector<const float*> places;
    Floats weights;
    Floats factors;
  };

  // Weights are at most 1, as most are.
  void Fill(Problem& p) {
    p.values = Normals(p.keys * p.width);
    p.tile.output = Normals(p.tile.args.rows * p.width);
    p.tile.args.states.output = p.tile.output.data();
    for (int64_t j = 0; j < p.keys; ++j) {
      p.places.push_back(p.values.data() + j * p.width);
    }
    p.tile.args.packed.values = p.places.data();
    p.weights.resize(static_cast<size_t>(p.tile.args.rows * kScoreStride));
    for (float& w : p.weights) w = static_cast<float>(random_.Uniform());
    p.factors.resize(static_cast<size_t>(p.tile.args.rows));
    for (float& f : p.factors) f = static_cast<float>(random_.Uniform());
  }

  // Adds keys first ... last - 1 and holds the output to plain code, which
  // leaves out what is not finite. A sum of n products, one more for what was
  // there: n + 3 roundings of their magnitudes.
  void RunAndCheck(Problem& p, int64_t first, int64_t last) {
    const Floats before = p.tile.output;
    const TileColumns columns = {first / (2 * lanes_) * 2 * lanes_,
                                 (last + lanes_ - 1) / lanes_ * lanes_, first,
                                 last};
    parts_.add_packed_values(p.tile.args, columns, p.weights.data(),
                             p.factors.data());
    for (int64_t r = 0; r < p.tile.args.rows; ++r) {
      for (int64_t c = 0; c < p.width; ++c) {
        const auto at = static_cast<size_t>(r * p.width + c);
        double sum =
            static_cast<double>(before[at]) * p.factors[static_cast<size_t>(r)];
        double magnitude = std::abs(sum);
        for (int64_t j = first; j < last; ++j) {
          const float value = p.values[static_cast<size_t>(j * p.width + c)];
          const double weight =
              p.weights[static_cast<size_t>(r * kScoreStride + j)];
          const double term = weight * (std::isfinite(value) ? value : 0);
          sum += term;
          magnitude += std::abs(term);
        }
        const double roundings = static_cast<double>(last - first + 3) * kEps;
        ASSERT_TRUE(IsNear(sum, roundings * magnitude, p.tile.output[at]))
            << "row " << r << ", column " << c;
      }
    }
  }
};

TEST_P(PvTest, OfAnyNumberOfRowsAndColumns) {
  for (int64_t rows = 1; rows <= 27; ++rows) {
    for (const int64_t vectors : {1, 2, 3, 4, 5, 7, 8}) {
      SCOPED_TRACE(testing::Message()
                   << rows << " rows, " << vectors << " vectors");
      Problem p(rows, 5, vectors * lanes_);
      Fill(p);
      RunAndCheck(p, 0, 5);
      EXPECT_FALSE(p.tile.met_non_finite);
    }
  }
}

TEST_P(PvTest, OfAnyNumberOfKeysFromAnyOn) {
  for (const int64_t keys : Lengths()) {
    for (const int64_t first : {int64_t{0}, int64_t{1}, keys - 1, keys}) {
      SCOPED_TRACE(testing::Message() << first << " to " << keys << " keys");
      Problem p(13, keys, 3 * lanes_);
      Fill(p);
      RunAndCheck(p, std::min(first, keys), keys);
      EXPECT_FALSE(p.tile.met_non_finite);
    }
  }
}

TEST_P(PvTest, OfWideValues) {
  Problem p(13, 3, 512);
  Fill(p);
  RunAndCheck(p, 0, 3);
}

// Whatever its weight, 0 too; and told, whether or not one was met before.
TEST_P(PvTest, LeavesOutWhatIsNotFiniteAndTellsIt) {
  const int64_t width = 7 * lanes_;
  for (const float special : SpecialFloats()) {
    if (std::isfinite(special)) continue;
    for (const int64_t key : {0, 8}) {
      for (int64_t column = 0; column < width; column += lanes_ - 1) {
        for (const float weight : {0.5F, 0.0F}) {
          SCOPED_TRACE(testing::Message() << special << " at " << key << ", "
                                          << column << ", weight " << weight);
          Problem p(13, 9, width);
          Fill(p);
          for (int64_t r = 0; r < 13; ++r) {
            p.weights[static_cast<size_t>(r * kScoreStride + key)] = weight;
          }
          p.values[static_cast<size_t>(key * width + column)] = special;
          p.tile.met_non_finite = column % 2 != 0;
          ASSERT_NO_FATAL_FAILURE(RunAndCheck(p, 0, 9));
          EXPECT_TRUE(p.tile.met_non_finite);
        }
      }
    }
  }
}

TEST_P(PvTest, FiniteNumbersOfAllKindsAreNothingSpecial) {
  for (const float special : SpecialFloats()) {
    if (!std::isfinite(special)) continue;
    Problem p(13, 9, 5 * lanes_);
    Fill(p);
    for (int64_t c = 0; c < p.width; c += 3) {
      p.values[static_cast<size_t>(4 * p.width + c)] = special;
    }
    RunAndCheck(p, 0, 9);
    EXPECT_FALSE(p.tile.met_non_finite);
  }
}

// Sums of finite values may pass FP32's range: infinite then, as FP32 has it.
TEST_P(PvTest, SumsBeyondTheRangeAreInfinite) {
  Problem p(5, 3, 3 * lanes_);
  Fill(p);
  std::fill(p.weights.begin(), p.weights.end(), 1.0F);
  for (int64_t j = 0; j < 3; ++j) {
    p.values[static_cast<size_t>(j * p.width + 1)] = -kMaxFloat;
    p.values[static_cast<size_t>(j * p.width + 2)] = kMaxFloat;
  }
  RunAndCheck(p, 0, 3);
}

// The weights of a NaN row are NaN. It is its own output alone.
TEST_P(PvTest, NanWeightsStayInTheirRow) {
  Problem p(13, 9, 5 * lanes_);
  Fill(p);
  p.weights[7 * kScoreStride + 3] = FloatFromBits(0xFFFFFFFF);
  RunAndCheck(p, 0, 9);
}

// attend_tile, of a tile whose rows attend different keys.
class NonFiniteValuesTest : public KernelTest {
 protected:
  static constexpr int64_t kRows = 13;
  static constexpr int64_t kKeys = 40;
  static constexpr int64_t kWidth = 96;

  NonFiniteValuesTest()
      : tile_(kRows, kKeys, kWidth),
        queries_(kRows, 1.0F),
        keys_(static_cast<size_t>(kKeys + 2 * lanes_), 1.0F),
        values_(kKeys * kWidth, 1.0F),
        unnormalised_(kMaxMicroRows * kScoreStride) {
    tile_.args.packed.score = Score::kDot;
    tile_.args.packed.width = 1;
    tile_.args.packed.queries = queries_.data();
    tile_.args.packed.keys = keys_.data();
    tile_.args.unnormalised = unnormalised_.data();
    values_[2 * kWidth + 1] = kInfinity;
    values_[2 * kWidth + 4] = FloatFromBits(0xFF800001);
    values_[33 * kWidth + 1] = -kInfinity;
    values_[33 * kWidth + kWidth - 1] = kInfinity;
    for (int64_t j = 0; j < kKeys; ++j) {
      places_.push_back(values_.data() + j * kWidth);
    }
    tile_.args.packed.values = places_.data();
  }

  // Runs the tile with and without an earlier value that was not finite, and
  // calls expect(row) for each row then.
  template <typename Expectation>
  void Run(const Expectation& expect) {
    for (const bool met_before : {false, true}) {
      SCOPED_TRACE(met_before);
      const Floats max = tile_.max;
      std::fill(tile_.output.begin(), tile_.output.end(), 0.0F);
      tile_.met_non_finite = met_before;
      kernels_.attend_tile(tile_.args);
      EXPECT_TRUE(tile_.met_non_finite);
      for (int64_t r = 0; r < kRows; ++r) expect(r);
      std::copy(max.begin(), max.end(), tile_.max.begin());
      std::fill(tile_.sum.begin(), tile_.sum.end(), 0.0);
    }
  }

  // What the two keys have made of a row, if they take part.
  void Expect(int64_t row, bool first, bool second) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < kWidth; ++c) {
      double expected = 0;
      if (first && c == 1) expected = kInfinity;
      if (second && c == 1) expected = expected - kInfinity;
      if (second && c == kWidth - 1) expected = kInfinity;
      if (first && c == 4) expected = std::nan("");
      const float found = tile_.output[static_cast<size_t>(row * kWidth + c)];
      if (expected == 0) {
        EXPECT_TRUE(std::isfinite(found)) << "row " << row << ", column " << c;
      } else {
        EXPECT_TRUE(IsNear(expected, 0, found))
            << "row " << row << ", column " << c;
      }
    }
  }

  Tile tile_;
  Floats queries_;
  Floats keys_;
  Floats values_;
  std::vector<const float*> places_;
  Floats unnormalised_;
};

TEST_P(NonFiniteValuesTest, ReachTheRowsWhoseRangesHoldTheirKeys) {
  for (size_t r = 0; r < kRows; ++r) {
    tile_.begin[r] = r % 2 == 0 ? 0 : 3;
    tile_.end[r] = r % 3 == 0 ? 40 : 33;
  }
  Run([this](int64_t r) { Expect(r, r % 2 == 0, r % 3 == 0); });
}

TEST_P(NonFiniteValuesTest, ReachNoRowThatAMaskTakesThemFrom) {
  std::vector<unsigned char> mask(2 * kKeys, 1);
  mask[2] = 0;
  mask[kKeys + 33] = 0;
  std::vector<const unsigned char*> rows;
  rows.reserve(kRows);
  for (size_t r = 0; r < kRows; ++r) {
    rows.push_back(mask.data() + (r % 2 == 0 ? 0 : kKeys));
  }
  tile_.args.epilogue.mask_rows = rows.data();
  tile_.args.epilogue.mask_stride = 1;
  Run([this](int64_t r) { Expect(r, r % 2 != 0, r % 2 == 0); });
}

TEST_P(NonFiniteValuesTest, ReachRowsThatGiveThemNextToNoWeight) {
  keys_.assign(keys_.size(), -1e30F);
  std::fill(tile_.max.begin(), tile_.max.end(), 1.0F);
  Run([this](int64_t r) { Expect(r, true, true); });
}

TEST_P(NonFiniteValuesTest, ReachNoRowWhoseDropoutTookThem) {
  tile_.args.dropout.fill = [](const void* /*context*/, int64_t row,
                               int64_t first_key, int64_t count,
                               float* factors) {
    for (int64_t j = first_key; j < first_key + count; ++j) {
      factors[j - first_key] = j == 102 && row % 2 == 0 ? 0.0F : 1.25F;
    }
  };
  tile_.args.epilogue.first_key = 100;
  Run([this](int64_t r) { Expect(r, r % 2 != 0, true); });
}

// They were relative to a maximum beside which they are nothing.
TEST_P(NonFiniteValuesTest, StayInTheOutputWhenTheMaximumRises) {
  std::fill(tile_.max.begin(), tile_.max.end(), -1000.0F);
  std::fill(tile_.sum.begin(), tile_.sum.end(), 1.0);
  for (int64_t r = 0; r < kRows; ++r) {
    tile_.output[static_cast<size_t>(r * kWidth + 7)] = -kInfinity;
    tile_.output[static_cast<size_t>(r * kWidth + 8)] = kMaxFloat;
  }
  tile_.met_non_finite = true;
  kernels_.attend_tile(tile_.args);
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(tile_.output[static_cast<size_t>(r * kWidth + 7)], -kInfinity);
    EXPECT_EQ(tile_.output[static_cast<size_t>(r * kWidth + 8)], kKeys);
  }
}

INSTANTIATE_FOR_KERNELS(PvTest);
INSTANTIATE_FOR_KERNELS(NonFiniteValuesTest);

}  // namespace
}  // namespace attention::cpu
