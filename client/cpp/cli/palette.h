#ifndef ATTENTION_CLIENT_CLI_PALETTE_H_
#define ATTENTION_CLIENT_CLI_PALETTE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace attention::cli {

/// What the terminal is asked to do: no colour at all, the 256-colour palette,
/// or 24-bit colours.
enum class ColorDepth : uint8_t { kNone, k256, k24Bit };

/// What --color says.
enum class ColorMode : uint8_t { kAuto, kAlways, kNever };

/// The depth for standard output. kAuto means colour where it `is_terminal`,
/// NO_COLOR is unset or empty (https://no-color.org) and TERM is not "dumb";
/// COLORTERM says whether 24 bits are understood. `environment` is std::getenv,
/// or a test's.
ColorDepth ChooseDepth(
    ColorMode mode, bool is_terminal,
    const std::function<const char*(const char*)>& environment);

/// `text` on the colour that stands for `fraction` within [0, 1] (dark blue to
/// yellow, even steps for the eye, also for the colour-blind), in black or
/// white, whichever reads better. kNone gives the text alone.
std::string Paint(ColorDepth depth, double fraction, absl::string_view text);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_PALETTE_H_
