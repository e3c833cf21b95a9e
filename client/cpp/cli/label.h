#ifndef ATTENTION_CLIENT_CLI_LABEL_H_
#define ATTENTION_CLIENT_CLI_LABEL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

/// Text of unknown origin, measured and cut for a terminal of fixed-width
/// cells.
namespace attention::cli {

/// What stands in one place of a terminal, accents included.
struct Glyph {
  std::string text;  // UTF-8
  int width = 1;     // cells: 1, or 2 for wide East Asian characters and emoji
};

/// Splits UTF-8 text. Control characters and bytes that are no UTF-8 become
/// "?", so that nothing in a file can command the terminal.
std::vector<Glyph> SplitGlyphs(absl::string_view text);

/// The text without what SplitGlyphs() replaces.
std::string Printable(absl::string_view text);

/// Cells that the text takes.
int DisplayWidth(absl::string_view text);

/// The text in exactly `width` cells (1 or more): cut with an ellipsis where it
/// is longer, filled with spaces on the left where it is shorter.
std::string AlignRight(absl::string_view text, int width);

/// The same, filled on both sides.
std::string Center(absl::string_view text, int width);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_LABEL_H_
