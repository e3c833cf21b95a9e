// QK and PV of keys and values that are read where they lie: what a step of
// decoding is made of (in_place-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

constexpr Element kStored[] = {Element::kFloat32, Element::kFloat16,
                               Element::kBFloat16, Element::kInt8,
                               Element::kFloat8};
constexpr Element kScaled[] = {Element::kInt8, Element::kFloat8};
// Products with the least are below FP32's normal range, unless an element or
// a weight takes them above it.
constexpr float kScalesInPlace[] = {1, 0.37F, 0, kMostScaleInPlace, 0x1p-126F};

bool HasScale(Element type) { return SizeOf(type) == 1; }

class InPlaceTest : public KernelTest {
 protected:
  // Rows of elements `stride` bytes apart, in memory that ends with the last
  // one: the sanitizers see what is read behind it. Where `stride` is 0 they
  // lie side by side. Of INT8 and FP8 each row has a scale.
  struct Rows {
    Rows(Element element, int64_t rows, int64_t columns, int64_t bytes)
        : type(element),
          width(columns),
          stride(bytes == 0 ? columns * SizeOf(element) : bytes),
          memory(static_cast<size_t>((rows - 1) * stride +
                                     columns * SizeOf(element))),
          scales(kMaxTileKeys, 1) {}

    unsigned char* at(int64_t row, int64_t column) {
      return memory.data() + row * stride + column * SizeOf(type);
    }
    double value(int64_t row, int64_t column) {
      return LoadElement(type, at(row, column)) *
             scales[static_cast<size_t>(row)];
    }

    Element type;
    int64_t width;
    int64_t stride;
    std::vector<unsigned char> memory;
    Floats scales;
  };

  Rows Random(Element type, int64_t rows, int64_t width, int64_t stride = 0) {
    Rows result(type, rows, width, stride);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        StoreElement(type, (HasScale(type) ? 40 : 1) * random_.Normal(),
                     result.at(r, i));
      }
      if (HasScale(type)) {
        result.scales[static_cast<size_t>(r)] =
            static_cast<float>(random_.Uniform());
      }
    }
    return result;
  }

  int64_t Padded(int64_t width) const {
    return (width + lanes_ - 1) / lanes_ * lanes_;
  }

  // Where `count` rows begin, twice: no other tile is read next.
  static std::vector<const unsigned char*> Places(Rows& rows, int64_t count) {
    std::vector<const unsigned char*> places;
    places.reserve(2 * static_cast<size_t>(count));
    for (int64_t r = 0; r < 2 * count; ++r) {
      places.push_back(rows.at(r % count, 0));
    }
    return places;
  }

  void Set(Tile& tile, int64_t count, Rows& keys, Rows& values) {
    InPlaceOperands& operands = tile.args.in_place;
    tile.args.operands = Operands::kInPlace;
    key_places_ = Places(keys, count);
    value_places_ = Places(values, count);
    operands.keys = key_places_.data();
    operands.key_width = keys.width;
    operands.values = value_places_.data();
    operands.value_width = values.width;
    operands.ahead = count;
    operands.type = keys.type;
    operands.key_scales = keys.scales.data();
    operands.value_scales = values.scales.data();
  }

  // Scores `rows` queries against keys first ... of `keys` and holds them to
  // plain code: a sum of n products, within n + 2 roundings and that of a
  // scale.
  void CheckScores(int64_t rows, int64_t first, int64_t count, Rows& keys) {
    SCOPED_TRACE(testing::Message()
                 << "type " << static_cast<int>(keys.type) << ", " << rows
                 << " rows, keys " << first << " to " << count << ", width "
                 << keys.width);
    Tile tile(rows, count, lanes_);
    Rows values = Random(keys.type, count, 3);
    Set(tile, count, keys, values);
    const int64_t stride = Padded(keys.width);
    Floats queries = Normals(rows * stride);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(queries.begin() + r * stride + keys.width,
                queries.begin() + (r + 1) * stride, 0.0F);
    }
    tile.args.in_place.queries = queries.data();
    tile.args.in_place.query_stride = stride;
    Floats found(static_cast<size_t>(rows * kScoreStride), kUntouched);
    const TileColumns columns = {first / (2 * lanes_) * 2 * lanes_,
                                 Padded(count), first, count};
    parts_.score_in_place(tile.args, columns, found.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = first; j < count; ++j) {
        double score = 0;
        double magnitude = 0;
        for (int64_t i = 0; i < keys.width; ++i) {
          const double term =
              queries[static_cast<size_t>(r * stride + i)] * keys.value(j, i);
          score += term;
          magnitude += std::abs(term);
        }
        const double roundings =
            static_cast<double>(keys.width + 2 + HasScale(keys.type)) * kEps;
        ASSERT_TRUE(IsNear(score, roundings * magnitude,
                           found[static_cast<size_t>(r * kScoreStride + j)]))
            << "row " << r << ", key " << j;
      }
    }
  }

  // Adds weighted values and holds the rows to plain code, which leaves out
  // what is not finite.
  void CheckValues(int64_t rows, int64_t first, int64_t count, Rows& values,
                   bool met_before = false) {
    SCOPED_TRACE(testing::Message()
                 << "type " << static_cast<int>(values.type) << ", " << rows
                 << " rows, keys " << first << " to " << count << ", width "
                 << values.width);
    const int64_t width = Padded(values.width);
    Tile tile(rows, count, width);
    Rows keys = Random(values.type, count, 3);
    Set(tile, count, keys, values);
    tile.met_non_finite = met_before;
    std::copy_n(Normals(rows * width).begin(), rows * width,
                tile.output.begin());
    const Floats before = tile.output;
    Floats weights(static_cast<size_t>(rows * kScoreStride));
    for (float& w : weights) w = static_cast<float>(random_.Uniform());
    const Floats factors = Normals(rows);
    Floats changing = weights;
    parts_.add_values_in_place(tile.args, {0, Padded(count), first, count},
                               changing.data(), factors.data());
    bool finite = true;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < values.width; ++c) {
        const auto at = static_cast<size_t>(r * width + c);
        double sum =
            static_cast<double>(before[at]) * factors[static_cast<size_t>(r)];
        double magnitude = std::abs(sum);
        for (int64_t j = first; j < count; ++j) {
          const double value = values.value(j, c);
          finite = finite && std::isfinite(value);
          const double weight =
              weights[static_cast<size_t>(r * kScoreStride + j)];
          const double term = std::isfinite(value) ? weight * value : 0;
          sum += term;
          magnitude += std::abs(term);
        }
        const double roundings =
            static_cast<double>(count - first + 3 + HasScale(values.type)) *
            kEps;
        ASSERT_TRUE(IsNear(sum, roundings * magnitude, tile.output[at]))
            << "row " << r << ", column " << c;
      }
    }
    EXPECT_EQ(tile.met_non_finite, !finite || met_before);
  }

 private:
  std::vector<const unsigned char*> key_places_;
  std::vector<const unsigned char*> value_places_;
};

TEST_P(InPlaceTest, ScoresOfAnyWidthAndNumberOfRows) {
  for (const Element type : kStored) {
    for (const int64_t width : Lengths()) {
      for (int64_t rows = 1; rows <= 7; ++rows) {
        Rows keys = Random(type, 6, width);
        CheckScores(rows, 0, 6, keys);
      }
    }
  }
}

TEST_P(InPlaceTest, ScoresOfAnyNumberOfKeysFromAnyOn) {
  for (const Element type : kStored) {
    for (const int64_t count : {1, 2, 3, 4, 5, 33, 70, 512}) {
      for (const int64_t first : {int64_t{0}, count / 2, count - 1}) {
        // Rows with something between them.
        Rows keys = Random(type, count, 5, 7 * SizeOf(type));
        CheckScores(3, first, count, keys);
      }
    }
  }
}

TEST_P(InPlaceTest, ScoresOfSpecialNumbersAreTheirKeysAlone) {
  for (const Element type : kElements) {
    for (const int64_t width : {lanes_ - 1, lanes_, 2 * lanes_ + 1}) {
      for (const float special : SpecialFloats()) {
        for (const int64_t at : {int64_t{0}, width - 1}) {
          Rows keys = Random(type, 7, width);
          StoreElement(type, special, keys.at(5, at));
          CheckScores(3, 0, 7, keys);
        }
      }
    }
  }
}

TEST_P(InPlaceTest, ValuesOfAnyWidthAndNumberOfRows) {
  for (const Element type : kStored) {
    for (const int64_t width : Lengths()) {
      for (int64_t rows = 1; rows <= 7; ++rows) {
        Rows values = Random(type, 6, width);
        CheckValues(rows, 0, 6, values);
      }
    }
  }
}

TEST_P(InPlaceTest, ValuesOfAnyNumberOfKeysFromAnyOn) {
  for (const Element type : kStored) {
    for (const int64_t count : {1, 2, 3, 4, 5, 33, 70, 512}) {
      for (const int64_t first : {int64_t{0}, count / 2, count - 1, count}) {
        Rows values = Random(type, count, 5, 7 * SizeOf(type));
        CheckValues(3, first, count, values);
      }
    }
  }
}

TEST_P(InPlaceTest, ValuesThatAreNotFiniteAreLeftOutAndTold) {
  for (const Element type : kElements) {
    for (const int64_t width : {lanes_ - 1, lanes_, 5 * lanes_ + 1}) {
      for (const float special : SpecialFloats()) {
        for (const int64_t at : {int64_t{0}, width - 1}) {
          for (const bool met_before : {false, true}) {
            Rows values = Random(type, 7, width);
            StoreElement(type, special, values.at(5, at));
            CheckValues(7, 0, 7, values, met_before);
          }
        }
      }
    }
  }
}

TEST_P(InPlaceTest, EveryScaleIsThatOfItsKeyAlone) {
  for (const Element type : kScaled) {
    for (const int64_t width : {lanes_ - 1, 2 * lanes_ + 1}) {
      for (const float scale : kScalesInPlace) {
        for (const int64_t at : {0, 5, 6}) {
          Rows rows = Random(type, 7, width);
          rows.scales[static_cast<size_t>(at)] = scale;
          CheckScores(3, 0, 7, rows);
          CheckValues(3, 0, 7, rows);
        }
      }
    }
  }
}

// What is lost below FP32's normal range is no more than with values that are
// multiplied by their scales before.
TEST_P(InPlaceTest, SmallWeightsOfScaledValuesAreNotLost) {
  for (const Element type : kScaled) {
    Rows values = Random(type, 1, 3);
    const double largest = type == Element::kInt8 ? 127 : 448;
    StoreElement(type, largest, values.at(0, 1));
    values.scales[0] = 0x1p-100F;
    Tile tile(1, 1, Padded(3));
    Set(tile, 1, values, values);
    Floats weights(kScoreStride, 0x1p-30F);
    const float factor = 1;
    parts_.add_values_in_place(tile.args, {0, lanes_, 0, 1}, weights.data(),
                               &factor);
    EXPECT_EQ(tile.output[1], largest * 0x1p-130) << static_cast<int>(type);
  }
}

TEST_P(InPlaceTest, NanOfFp8IsItsKeysAlone) {
  for (const int64_t width : {lanes_ - 1, lanes_, 5 * lanes_ + 1}) {
    for (const unsigned char nan : {0x7F, 0xFF}) {
      for (const float scale : {0.5F, 0.0F}) {
        for (const int64_t at : {int64_t{0}, width - 1}) {
          for (const bool met_before : {false, true}) {
            Rows rows = Random(Element::kFloat8, 7, width);
            *rows.at(5, at) = nan;
            rows.scales[5] = scale;
            CheckScores(3, 0, 7, rows);
            CheckValues(7, 0, 7, rows, met_before);
          }
        }
      }
    }
  }
}

INSTANTIATE_FOR_KERNELS(InPlaceTest);

}  // namespace
}  // namespace attention::cpu
