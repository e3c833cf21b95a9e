#include "client/cpp/cli/format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/label.h"

namespace attention::cli {
namespace {

// Three digits that matter, and no zeros behind the point of a whole number.
std::string ThreeDigits(double value) {
  if (value >= 99.95 || value == static_cast<double>(static_cast<int>(value))) {
    return absl::StrFormat("%.0f", value);
  }
  if (value >= 9.995) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.2f", value);
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrCat(ThreeDigits(value), " ", kUnits[unit]);
}

std::string FormatDuration(std::chrono::nanoseconds duration) {
  const auto ns = static_cast<double>(duration.count());
  if (ns < 1e3) return absl::StrCat(duration.count(), " ns");
  if (ns < 1e6) return absl::StrCat(ThreeDigits(ns / 1e3), " us");
  if (ns < 1e9) return absl::StrCat(ThreeDigits(ns / 1e6), " ms");
  return absl::StrCat(ThreeDigits(ns / 1e9), " s");
}

std::string FormatTensor(const Tensor& tensor) {
  return absl::StrCat(ShapeToString(tensor.shape()), " ", Name(tensor.type()));
}

std::string Line(absl::string_view label, absl::string_view text) {
  return absl::StrFormat("%-12s %s\n", label, Printable(text));
}

}  // namespace attention::cli
