// Between QK and the softmax: factor, softcap, ALiBi, bias, masks, ranges, and
// what is noted of far keys (epilogue-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

// Rows of elements, `stride` bytes from key to key, `off` bytes beside an
// address that would suit them.
struct Rows {
  Rows(int64_t rows, int64_t keys, int64_t stride, int64_t off)
      : row_bytes(keys * stride + 8),
        memory(static_cast<size_t>(rows * row_bytes + off + 8)) {
    for (int64_t r = 0; r < rows; ++r) {
      pointers.push_back(memory.data() + off + r * row_bytes);
    }
  }

  int64_t row_bytes;
  std::vector<unsigned char> memory;
  std::vector<unsigned char*> pointers;
  std::vector<const unsigned char*> read;
};

class EpilogueTest : public KernelTest {
 protected:
  static constexpr int64_t kRows = 5;
  static constexpr int64_t kFirstKey = 7;

  int64_t keys() const { return 5 * lanes_ + 3; }

  void SetUp() override {
    tile_ = std::make_unique<Tile>(kRows, keys(), lanes_);
    tile_->args.epilogue.first_key = kFirstKey;
    tile_->args.packed.score = Score::kDot;
    // Ranges of all kinds: all keys, none, a vector's middle, whole vectors.
    const auto last = static_cast<int32_t>(keys());
    const auto lanes = static_cast<int32_t>(lanes_);
    tile_->begin = {0, 3, 1, lanes, last - 1};
    tile_->end = {last, 3, lanes - 1, 3 * lanes, last};
    tile_->args.epilogue.begin = tile_->begin.data();
    tile_->args.epilogue.end = tile_->end.data();
  }

  Epilogue& epilogue() { return tile_->args.epilogue; }

  // What an option adds to the epilogue. The memory lives as long as the test.
  void SetFactor() { epilogue().factor = 0.37F; }
  void SetRowAddend() {
    row_addend_ = Normals(kRows);
    epilogue().row_addend = row_addend_.data();
  }
  void SetSoftcap() { epilogue().softcap = 2.5F; }
  void SetAlibi() {
    slopes_ = Normals(kRows);
    positions_ = {0, 10, -3, 100, static_cast<float>(keys())};
    epilogue().alibi_slopes = slopes_.data();
    epilogue().alibi_positions = positions_.data();
  }
  void SetBias(Element type, int64_t stride, int64_t off) {
    bias_ = std::make_unique<Rows>(kRows, keys() + kFirstKey, stride, off);
    for (unsigned char* row : bias_->pointers) {
      for (int64_t j = 0; j < keys() + kFirstKey; ++j) {
        StoreElement(type, random_.Chance(0.2) ? -HUGE_VAL : random_.Normal(),
                     row + j * stride);
      }
    }
    bias_->read = {bias_->pointers.begin(), bias_->pointers.end()};
    epilogue().bias_rows = bias_->read.data();
    epilogue().bias_stride = stride;
    epilogue().bias_type = type;
  }
  void SetMask(int64_t stride) {
    mask_ = std::make_unique<Rows>(kRows, keys() + kFirstKey, stride, 0);
    for (unsigned char* row : mask_->pointers) {
      for (int64_t j = 0; j < keys() + kFirstKey; ++j) {
        row[j * stride] = random_.Chance(0.7) ? 1 : 0;
      }
    }
    mask_->read = {mask_->pointers.begin(), mask_->pointers.end()};
    epilogue().mask_rows = mask_->read.data();
    epilogue().mask_stride = stride;
  }

  // semantics.md, step by step, with the roundings of each: two of the factor
  // and the addend; of the softcap its quotient, the two ulp of tanh (4), its
  // product and what small scores leave out (2^-26 / 3); one of each sum.
  ExpectedScore Finish(int64_t row, int64_t j, double raw) const {
    const Epilogue& e = tile_->args.epilogue;
    const auto r = static_cast<size_t>(row);
    if (j < tile_->begin[r] || j >= tile_->end[r]) return {-HUGE_VAL, 0};
    double s = raw * e.factor;
    double bound = kEps * std::abs(s);
    if (e.row_addend != nullptr) s += e.row_addend[r];
    bound += kEps * std::abs(s);
    if (e.softcap > 0) {
      s = e.softcap * std::tanh(s / e.softcap);
      bound = (std::isfinite(raw) ? bound : 0) + 7 * kEps * std::abs(s);
    }
    if (e.alibi_slopes != nullptr) {
      const double lost = e.alibi_slopes[r] * std::abs(e.alibi_positions[r] -
                                                       static_cast<double>(j));
      s -= lost;
      bound += kEps * (std::abs(lost) + std::abs(s));
    }
    if (e.bias_rows != nullptr) {
      const double bias = LoadElement(
          e.bias_type, e.bias_rows[r] + (j + e.first_key) * e.bias_stride);
      s = bias == -HUGE_VAL ? bias : s + bias;
      bound += kEps * std::abs(s);
    }
    if (e.mask_rows != nullptr &&
        e.mask_rows[r][(j + e.first_key) * e.mask_stride] == 0) {
      s = -HUGE_VAL;
    }
    return {s, bound};
  }

  void Check(const Floats& raw) {
    for (int64_t r = 0; r < kRows; ++r) {
      std::copy(raw.begin(), raw.end(), tile_->score_row(r));
    }
    const TileColumns columns = {0, static_cast<int64_t>(raw.size()), 0,
                                 keys()};
    parts_.finish_scores(tile_->args, columns);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < columns.last; ++j) {
        const float x = raw[static_cast<size_t>(j)];
        const ExpectedScore e = Finish(r, j, x);
        ASSERT_TRUE(IsNear(e.score, e.bound, tile_->score_row(r)[j]))
            << "row " << r << ", key " << j << ", from " << x << " (0x"
            << std::hex << BitsFrom(x) << ")";
      }
    }
  }

  // Scores of all columns, of magnitudes that the softcap bends and leaves.
  Floats Raw() {
    Floats raw = Normals((keys() + lanes_ - 1) / lanes_ * lanes_);
    for (float& x : raw) {
      x *= std::exp2(static_cast<float>(random_.Between(-30, 8)));
    }
    return raw;
  }

  std::unique_ptr<Tile> tile_;

 private:
  Floats row_addend_;
  Floats slopes_;
  Floats positions_;
  std::unique_ptr<Rows> bias_;
  std::unique_ptr<Rows> mask_;
};

TEST_P(EpilogueTest, EveryCombinationOfOptions) {
  for (int options = 0; options < 16; ++options) {
    for (const Element* type = kElements; type <= std::end(kElements); ++type) {
      for (const int64_t mask_stride : {-1, 0, 1, 2}) {
        SCOPED_TRACE(testing::Message()
                     << "options " << options << ", bias " << type - kElements
                     << ", mask " << mask_stride);
        SetUp();
        if ((options & 1) != 0) SetFactor();
        if ((options & 2) != 0) SetRowAddend();
        if ((options & 4) != 0) SetSoftcap();
        if ((options & 8) != 0) SetAlibi();
        if (type != std::end(kElements)) SetBias(*type, SizeOf(*type), 0);
        if (mask_stride >= 0) SetMask(mask_stride);
        ASSERT_NO_FATAL_FAILURE(Check(Raw()));
      }
    }
  }
}

TEST_P(EpilogueTest, BiasOfAnyLayoutAndAddress) {
  for (const Element type : kElements) {
    const int64_t size = SizeOf(type);
    for (const int64_t stride : {int64_t{0}, size, 2 * size, size + 1}) {
      for (const int64_t off : {0, 1, 2, 4}) {
        SCOPED_TRACE(testing::Message()
                     << "type " << static_cast<int>(type) << ", stride "
                     << stride << ", off " << off);
        SetBias(type, stride, off);
        Check(Raw());
      }
    }
  }
}

TEST_P(EpilogueTest, SpecialScores) {
  for (int options = 0; options < 32; ++options) {
    SCOPED_TRACE(testing::Message() << "options " << options);
    SetUp();
    if ((options & 1) != 0) SetFactor();
    if ((options & 2) != 0) SetRowAddend();
    if ((options & 4) != 0) SetSoftcap();
    if ((options & 8) != 0) SetAlibi();
    if ((options & 16) != 0) SetMask(1);
    const std::vector<float> special = SpecialFloats();
    Floats raw = Raw();
    for (size_t start = 0; start < special.size(); start += raw.size()) {
      for (size_t j = 0; j < raw.size(); ++j) {
        raw[j] = special[(start + j) % special.size()];
      }
      ASSERT_NO_FATAL_FAILURE(Check(raw));
    }
  }
}

// Only -inf masks: the lowest finite number is added like any other.
TEST_P(EpilogueTest, TheLowestFiniteBiasMasksNothing) {
  for (const Element type : kElements) {
    SetBias(type, SizeOf(type), 0);
    const double lowest = type == Element::kFloat16    ? -65504.0
                          : type == Element::kBFloat16 ? -0x1.FEp127
                                                       : -kMaxFloat;
    for (int64_t j = 0; j < keys(); ++j) {
      StoreElement(type, lowest,
                   const_cast<unsigned char*>(epilogue().bias_rows[0]) +
                       (j + kFirstKey) * SizeOf(type));
    }
    Check(Raw());
    EXPECT_GT(tile_->score_row(0)[0], -kInfinity);
  }
}

// A distance that is infinite stays so where its factor is 0, which would make
// NaN of it.
TEST_P(EpilogueTest, InfiniteDistancesStayInfinite) {
  tile_->args.packed.score = Score::kDifference;
  epilogue().factor = 0;
  Floats raw = Raw();
  std::copy(raw.begin(), raw.end(), tile_->score_row(0));
  tile_->score_row(0)[1] = -kInfinity;
  tile_->args.rows = 1;
  parts_.finish_scores(tile_->args,
                       {0, static_cast<int64_t>(raw.size()), 0, keys()});
  EXPECT_EQ(tile_->score_row(0)[0], 0);
  EXPECT_EQ(tile_->score_row(0)[1], -kInfinity);
}

TEST_P(EpilogueTest, EveryRangeOfKeys) {
  const int64_t columns = 3 * lanes_;
  tile_->args.rows = 1;
  for (int64_t first = 0; first < columns; first += lanes_) {
    for (int64_t begin = first; begin <= columns; ++begin) {
      for (int64_t end = first; end <= columns; ++end) {
        tile_->begin[0] = static_cast<int32_t>(begin);
        tile_->end[0] = static_cast<int32_t>(end);
        std::fill_n(tile_->score_row(0), columns, 1.0F);
        parts_.finish_scores(tile_->args, {first, columns, first, columns});
        for (int64_t j = 0; j < columns; ++j) {
          const bool kept = j < first || (j >= begin && j < end);
          ASSERT_EQ(tile_->score_row(0)[j], kept ? 1.0F : -kInfinity)
              << first << ": " << begin << " to " << end << ", " << j;
        }
      }
    }
  }
}

TEST_P(EpilogueTest, ColumnsHoldTheKeysOfAllRows) {
  const auto lanes = static_cast<int32_t>(lanes_);
  const auto expect = [&](int64_t rows, const TileColumns& columns) {
    const TileColumns found =
        parts_.columns_of_rows(tile_->args.epilogue, rows, 2 * lanes_, lanes_);
    EXPECT_EQ(found.first, columns.first);
    EXPECT_EQ(found.last, columns.last);
    EXPECT_EQ(found.begin, columns.begin);
    EXPECT_EQ(found.end, columns.end);
  };
  tile_->begin = {5, 3 * lanes + 1, 2 * lanes, 9, 4 * lanes - 1};
  tile_->end = {5, 3 * lanes + 2, 2 * lanes, 2, 4 * lanes};
  expect(1, {0, 0, 0, 0});
  expect(2, {2 * lanes_, 4 * lanes_, 3 * lanes_ + 1, 3 * lanes_ + 2});
  expect(5, {2 * lanes_, 4 * lanes_, 3 * lanes_ + 1, 4 * lanes_});
}

// A row is far once a key that takes part scores below the bound: not one that
// is outside its range, nor one that a mask leaves out, nor a NaN.
TEST_P(EpilogueTest, NotesRowsWithFarKeys) {
  SetMask(1);
  const int64_t columns = (keys() + lanes_ - 1) / lanes_ * lanes_;
  auto* const mask = const_cast<unsigned char*>(epilogue().mask_rows[0]);
  tile_->args.rows = 1;
  tile_->begin[0] = 1;
  uint8_t far = 0;
  tile_->args.far_rows = {&far, -50};
  for (int64_t j = 0; j < columns; ++j) {
    for (const bool masked : {false, true}) {
      for (const float raw : {-49.0F, -50.0F, -50.5F, -kMaxFloat, -kInfinity,
                              FloatFromBits(0xFFFFFFFF)}) {
        std::fill_n(mask + kFirstKey, keys(), 1);
        if (masked && j < keys()) mask[kFirstKey + j] = 0;
        std::fill_n(tile_->score_row(0), columns, 0.0F);
        tile_->score_row(0)[j] = raw;
        far = 0;
        parts_.finish_scores(tile_->args, {0, columns, 1, keys()});
        const bool takes_part = j >= 1 && j < keys() && !masked;
        EXPECT_EQ(far != 0, takes_part && raw < -50 && raw > -kInfinity)
            << "key " << j << ", " << raw;
        // Once met it stays.
        far = 1;
        std::fill_n(tile_->score_row(0), columns, 0.0F);
        parts_.finish_scores(tile_->args, {0, columns, 1, keys()});
        EXPECT_EQ(far, 1);
      }
    }
  }
}

INSTANTIATE_FOR_KERNELS(EpilogueTest);

}  // namespace
}  // namespace attention::cpu
