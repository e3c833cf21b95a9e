#include "client/cpp/cli/palette.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace attention::cli {
namespace {

struct Rgb {
  double red;
  double green;
  double blue;
};

// Points along the "viridis" map of Nathaniel Smith and Stefan van der Walt
// (released under CC0), whose lightness rises evenly.
constexpr Rgb kStops[] = {{68, 1, 84},    {71, 44, 122},  {59, 81, 139},
                          {44, 113, 142}, {33, 144, 141}, {39, 173, 129},
                          {92, 200, 99},  {170, 220, 50}, {253, 231, 37}};

Rgb ColorOf(double fraction) {
  const double place = std::clamp(fraction, 0.0, 1.0) * (std::size(kStops) - 1);
  const size_t low =
      std::min(static_cast<size_t>(place), std::size(kStops) - 2);
  const double part = place - static_cast<double>(low);
  const Rgb& a = kStops[low];
  const Rgb& b = kStops[low + 1];
  return {std::lerp(a.red, b.red, part), std::lerp(a.green, b.green, part),
          std::lerp(a.blue, b.blue, part)};
}

// The same road through the 256 colours that terminals share, picked by hand:
// the nearest colours jump back and forth.
int IndexOf(double fraction) {
  constexpr int kSteps[] = {53, 54, 24, 30, 36, 71, 77, 148, 184, 226};
  const int step = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 10);
  return kSteps[std::min(step, 9)];
}

}  // namespace

ColorDepth ChooseDepth(
    ColorMode mode, bool is_terminal,
    const std::function<const char*(const char*)>& environment) {
  const auto value = [&](const char* name) {
    const char* text = environment(name);
    return absl::string_view(text == nullptr ? "" : text);
  };
  if (mode == ColorMode::kNever) return ColorDepth::kNone;
  if (mode == ColorMode::kAuto &&
      (!is_terminal || !value("NO_COLOR").empty() || value("TERM").empty() ||
       value("TERM") == "dumb")) {
    return ColorDepth::kNone;
  }
  const absl::string_view color_term = value("COLORTERM");
  return color_term == "truecolor" || color_term == "24bit" ||
                 absl::EndsWith(value("TERM"), "-direct")
             ? ColorDepth::k24Bit
             : ColorDepth::k256;
}

std::string Paint(ColorDepth depth, double fraction, absl::string_view text) {
  if (depth == ColorDepth::kNone) return absl::StrCat(text);
  const Rgb color = ColorOf(fraction);
  const double lightness =
      0.299 * color.red + 0.587 * color.green + 0.114 * color.blue;
  const int ink = lightness > 128 ? 16 : 231;  // black or white
  const std::string background =
      depth == ColorDepth::k24Bit
          ? absl::StrFormat("48;2;%.0f;%.0f;%.0f", color.red, color.green,
                            color.blue)
          : absl::StrCat("48;5;", IndexOf(fraction));
  return absl::StrCat("\x1b[38;5;", ink, ";", background, "m", text, "\x1b[0m");
}

}  // namespace attention::cli
