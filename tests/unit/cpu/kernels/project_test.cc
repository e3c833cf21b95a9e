// Projections of queries and keys, rows around a centre, and what the largest
// magnitude is (project-inl.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

namespace attention::cpu {
namespace {

class ProjectTest : public KernelTest {
 protected:
  // Rows and a matrix, with something between the rows of each, and what the
  // product is added to.
  struct Problem {
    int64_t rows;
    int64_t depth;
    int64_t columns;
    bool add;
    int64_t from_stride;
    int64_t m_stride;
    int64_t to_stride;
    Floats from = {};
    Floats m = {};
    Floats to = {};
  };

  Problem Make(int64_t rows, int64_t depth, int64_t columns, bool add) {
    Problem p = {.rows = rows,
                 .depth = depth,
                 .columns = columns,
                 .add = add,
                 .from_stride = depth + 3,
                 .m_stride = columns + 1,
                 .to_stride = columns + 5};
    p.from = Normals(rows * p.from_stride);
    p.m = Normals(depth * p.m_stride);
    p.to.assign(static_cast<size_t>(rows * p.to_stride), kUntouched);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        p.to[static_cast<size_t>(r * p.to_stride + c)] =
            static_cast<float>(random_.Normal());
      }
    }
    return p;
  }

  void Run(Problem& p, int64_t first_row, int64_t rows) const {
    kernels_.project({.from = p.from.data() + first_row * p.from_stride,
                      .from_stride = p.from_stride,
                      .rows = rows,
                      .depth = p.depth,
                      .m = p.m.data(),
                      .m_stride = p.m_stride,
                      .columns = p.columns,
                      .to = p.to.data() + first_row * p.to_stride,
                      .to_stride = p.to_stride,
                      .add = p.add});
  }

  // A sum of n products, and one more for what was there: n + 2 roundings of
  // their magnitudes.
  void RunAndCheck(Problem& p) const {
    SCOPED_TRACE(testing::Message()
                 << p.rows << " rows, depth " << p.depth << ", " << p.columns
                 << " columns" << (p.add ? ", added" : ""));
    const Floats before = p.to;
    Run(p, 0, p.rows);
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < p.to_stride; ++c) {
        const auto at = static_cast<size_t>(r * p.to_stride + c);
        if (c >= p.columns) {
          ASSERT_EQ(p.to[at], kUntouched) << "row " << r << ", column " << c;
          continue;
        }
        double sum = p.add ? before[at] : 0;
        double magnitude = std::abs(sum);
        for (int64_t i = 0; i < p.depth; ++i) {
          const double term =
              static_cast<double>(
                  p.from[static_cast<size_t>(r * p.from_stride + i)]) *
              p.m[static_cast<size_t>(i * p.m_stride + c)];
          sum += term;
          magnitude += std::abs(term);
        }
        const double roundings = static_cast<double>(p.depth + 2) * kEps;
        ASSERT_TRUE(IsNear(sum, roundings * magnitude, p.to[at]))
            << "row " << r << ", column " << c;
      }
    }
  }
};

TEST_P(ProjectTest, OfAnyNumberOfRowsAndColumns) {
  for (int64_t rows = 0; rows <= 18; ++rows) {
    for (const int64_t vectors : {0, 1, 2, 3, 7, 8, 9, 10, 16, 17}) {
      for (const bool add : {false, true}) {
        Problem p = Make(rows, 5, vectors * lanes_, add);
        ASSERT_NO_FATAL_FAILURE(RunAndCheck(p));
      }
    }
  }
}

TEST_P(ProjectTest, OfAnyDepth) {
  std::vector<int64_t> depths = Lengths();
  depths.push_back(0);
  for (const int64_t depth : depths) {
    for (const bool add : {false, true}) {
      Problem p = Make(9, depth, 3 * lanes_, add);
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p));
    }
  }
}

TEST_P(ProjectTest, SpecialNumbersOfARowStayInIt) {
  for (const float special : SpecialFloats()) {
    for (const int64_t row : {0, 7, 8, 16}) {
      Problem p = Make(17, 6, 3 * lanes_, false);
      p.from[static_cast<size_t>(row * p.from_stride + 3)] = special;
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p)) << special;
    }
  }
}

TEST_P(ProjectTest, SpecialNumbersOfAColumnStayInIt) {
  for (const float special : SpecialFloats()) {
    for (const int64_t column : {int64_t{0}, lanes_, 3 * lanes_ - 1}) {
      Problem p = Make(17, 6, 3 * lanes_, true);
      p.m[static_cast<size_t>(4 * p.m_stride + column)] = special;
      ASSERT_NO_FATAL_FAILURE(RunAndCheck(p)) << special;
    }
  }
}

// Some rows share a read of the matrix, the others do not.
TEST_P(ProjectTest, BitsOfARowDoNotDependOnHowManyThereAre) {
  for (const int64_t vectors : {1, 2, 9, 17}) {
    Problem together = Make(13, 70, vectors * lanes_, true);
    Problem alone = together;
    Run(together, 0, 13);
    for (int64_t r = 0; r < 13; ++r) Run(alone, r, 1);
    EXPECT_EQ(together.to, alone.to) << vectors << " vectors";
  }
}

class CentreRowsTest : public KernelTest {
 protected:
  static constexpr int64_t kRows = 3;

  // Rows at any address. A difference is rounded once, to FP32; the squares of
  // those are exact in FP64, and their sum has its roundings.
  void Check(int64_t width, const Floats& from, const Floats& centre) const {
    SCOPED_TRACE(testing::Message() << "width " << width);
    const int64_t from_stride = width + 1;
    const int64_t to_stride = width + 3;
    Floats to(static_cast<size_t>(kRows * to_stride), kUntouched);
    std::vector<double> norms = {0, 2.5, 1e6};
    const std::vector<double> before = norms;
    kernels_.centre_rows({.from = from.data(),
                          .from_stride = from_stride,
                          .rows = kRows,
                          .width = width,
                          .centre = centre.data(),
                          .to = to.data(),
                          .to_stride = to_stride,
                          .squared_norms = norms.data()});
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < to_stride; ++i) {
        const float found = to[static_cast<size_t>(r * to_stride + i)];
        if (i >= width) {
          ASSERT_EQ(found, kUntouched);
          continue;
        }
        const double difference =
            static_cast<double>(
                from[static_cast<size_t>(r * from_stride + i)]) -
            centre[static_cast<size_t>(i)];
        ASSERT_TRUE(IsNear(difference, kEps * std::abs(difference), found))
            << "row " << r << ", element " << i;
        sum += static_cast<double>(found) * found;
      }
      const double expected = before[static_cast<size_t>(r)] + sum;
      const double norm = norms[static_cast<size_t>(r)];
      if (std::isfinite(expected)) {
        ASSERT_NEAR(norm, expected,
                    0x1p-53 * static_cast<double>(width + 3) * expected)
            << "row " << r;
      } else {
        ASSERT_EQ(std::isnan(norm), std::isnan(expected)) << "row " << r;
        ASSERT_TRUE(std::isnan(norm) || norm == expected) << "row " << r;
      }
    }
  }
  void Check(int64_t width) {
    Check(width, Normals(kRows * (width + 1)), Normals(width));
  }
};

TEST_P(CentreRowsTest, OfAnyWidth) {
  Check(0);
  for (const int64_t width : Lengths()) {
    ASSERT_NO_FATAL_FAILURE(Check(width));
    ASSERT_NO_FATAL_FAILURE(Check(width + 2 * lanes_ - 1));
  }
}

TEST_P(CentreRowsTest, SpecialNumbersAreTheirRowsAlone) {
  for (const int64_t width : {2 * lanes_ - 1, 2 * lanes_, 4 * lanes_ + 3}) {
    for (const float special : SpecialFloats()) {
      for (const int64_t at : {int64_t{0}, lanes_, width - 1}) {
        Floats from = Normals(kRows * (width + 1));
        from[static_cast<size_t>(width + 1 + at)] = special;
        ASSERT_NO_FATAL_FAILURE(Check(width, from, Normals(width)))
            << special << " at " << at;
      }
    }
  }
}

TEST_P(CentreRowsTest, RowsAtTheCentreHaveNoNorm) {
  const int64_t width = 4 * lanes_ + 3;
  const int64_t stride = width + 1;
  const Floats centre = Normals(width, 1e6);
  Floats from(static_cast<size_t>(kRows * stride));
  for (int64_t r = 0; r < kRows; ++r) {
    std::copy(centre.begin(), centre.end(), from.begin() + r * stride);
  }
  Check(width, from, centre);
}

// Rows far apart beside their distance from the centre, which must be exact.
TEST_P(CentreRowsTest, DifferencesOfNeighboursAreExact) {
  const int64_t width = 4 * lanes_ + 3;
  Floats from(static_cast<size_t>(kRows * (width + 1)));
  for (float& x : from) {
    x = 0x1p20F + static_cast<float>(random_.Between(-8, 8)) * 0x1p-3F;
  }
  Check(width, from, Floats(static_cast<size_t>(width), 0x1p20F));
}

// Beyond FP32's range in a vector, and in what is left of the row.
TEST_P(CentreRowsTest, DifferencesBeyondTheRangeAreInfinite) {
  const int64_t width = 2 * lanes_ + 3;
  for (const int64_t at : {int64_t{1}, width - 1}) {
    Floats from = Normals(kRows * (width + 1));
    Floats centre = Normals(width);
    from[static_cast<size_t>(at)] = kMaxFloat;
    centre[static_cast<size_t>(at)] = -kMaxFloat;
    Check(width, from, centre);
  }
}

// Bits are compared: subnormal numbers are as good as others, though this
// thread's arithmetic takes them for 0.
class LargestMagnitudeTest : public KernelTest {
 protected:
  uint32_t Of(const float* values, int64_t count) const {
    return BitsFrom(kernels_.largest_magnitude(values, count));
  }
};

TEST_P(LargestMagnitudeTest, WhereverItIs) {
  for (const int64_t count : Lengths()) {
    // Not where a vector would begin.
    Floats values = Normals(count + 1);
    for (int64_t at = 1; at <= count; ++at) {
      for (const float largest : {1e10F, -1e10F, kMaxFloat, -kInfinity}) {
        const float before = values[static_cast<size_t>(at)];
        values[static_cast<size_t>(at)] = largest;
        ASSERT_EQ(Of(values.data() + 1, count), BitsFrom(std::abs(largest)))
            << at << " of " << count;
        values[static_cast<size_t>(at)] = before;
      }
    }
  }
}

TEST_P(LargestMagnitudeTest, OfNothingAndOfZerosIsZero) {
  EXPECT_EQ(Of(nullptr, 0), 0U);
  for (const int64_t count : Lengths()) {
    const Floats zeros(static_cast<size_t>(count), -0.0F);
    EXPECT_EQ(Of(zeros.data(), count), 0U);
  }
}

TEST_P(LargestMagnitudeTest, OfSubnormalNumbersIsOneOfThem) {
  for (const int64_t count : Lengths()) {
    Floats values(static_cast<size_t>(count), 0x1p-149F);
    values.back() = -0x1p-130F;
    EXPECT_EQ(Of(values.data(), count), BitsFrom(0x1p-130F));
  }
}

// Beside infinities, too.
TEST_P(LargestMagnitudeTest, IsNanWhereOneIs) {
  for (const int64_t count : Lengths()) {
    for (const uint32_t bits : kNanBits) {
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        Floats values(static_cast<size_t>(count), -kInfinity);
        values[static_cast<size_t>(at)] = FloatFromBits(bits);
        const float found = kernels_.largest_magnitude(values.data(), count);
        ASSERT_TRUE(std::isnan(found))
            << std::hex << bits << " at " << std::dec << at << " of " << count;
      }
    }
  }
}

INSTANTIATE_FOR_KERNELS(ProjectTest);
INSTANTIATE_FOR_KERNELS(CentreRowsTest);
INSTANTIATE_FOR_KERNELS(LargestMagnitudeTest);

}  // namespace
}  // namespace attention::cpu
