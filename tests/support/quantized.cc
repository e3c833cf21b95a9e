#include "tests/support/quantized.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace attention::test {
namespace {

using Index = absl::Span<const int64_t>;

double LargestOf(DataType type) { return type == DataType::kInt8 ? 127 : 448; }

// Of a row with such a largest magnitude. Rounded up, so that no element passes
// the type's largest one.
float ScaleOfRow(double largest, DataType type) {
  const double exact = largest / LargestOf(type);
  const auto rounded = static_cast<float>(exact);
  return static_cast<double>(rounded) < exact
             ? std::nextafter(rounded, HUGE_VALF)
             : rounded;
}

}  // namespace

TensorView AddQuantized(OwnedProblem& to, DataType type, const Shape& shape,
                        Layout layout, absl::FunctionRef<double()> number,
                        std::optional<TensorView>& scales) {
  if (!IsScaledType(type)) {
    return to.Add(type, shape, layout, [&](Index) { return number(); });
  }
  const auto width = static_cast<size_t>(shape.back());
  Shape rows = shape;
  rows.pop_back();
  std::vector<double> numbers(static_cast<size_t>(ElementCount(shape).value()));
  std::generate(numbers.begin(), numbers.end(), [&] { return number(); });
  std::vector<float> scale_of_row;
  scales = to.Add(DataType::kFloat32, rows, layout, [&](Index) {
    double largest = 0;
    for (size_t i = 0; i < width; ++i) {
      largest =
          std::max(largest, std::abs(numbers[scale_of_row.size() * width + i]));
    }
    return scale_of_row.emplace_back(ScaleOfRow(largest, type));
  });
  size_t n = 0;
  return to.Add(type, shape, layout, [&](Index) {
    const double scale = scale_of_row[n / width];
    const double element = scale == 0 ? 0 : numbers[n] / scale;
    ++n;
    return type == DataType::kInt8 ? std::nearbyint(element) : element;
  });
}

}  // namespace attention::test
