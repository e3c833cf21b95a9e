#include "client/cpp/cli/label.h"

#include <locale.h>
#include <wchar.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::cli {
namespace {

// The C library knows the width of every character, given a locale of UTF-8;
// this one is there on every system with glibc 2.35, and on Debian before it.
class Utf8Locale {
 public:
  Utf8Locale()
      : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)),
        before_(locale_ != nullptr ? uselocale(locale_) : nullptr) {}
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() {
    if (locale_ == nullptr) return;
    uselocale(before_);
    freelocale(locale_);
  }

 private:
  locale_t locale_;
  locale_t before_;
};

// The glyphs from the left that fit into `width` cells.
std::string Take(const std::vector<Glyph>& glyphs, int width) {
  std::string text;
  for (const Glyph& glyph : glyphs) {
    if (glyph.width > width) break;
    width -= glyph.width;
    text += glyph.text;
  }
  return text;
}

int Width(const std::vector<Glyph>& glyphs) {
  int width = 0;
  for (const Glyph& glyph : glyphs) width += glyph.width;
  return width;
}

std::string Cut(absl::string_view text, int width) {
  const std::vector<Glyph> glyphs = SplitGlyphs(text);
  if (Width(glyphs) <= width) return Take(glyphs, width);
  return absl::StrCat(Take(glyphs, width - 1), "…");
}

}  // namespace

std::vector<Glyph> SplitGlyphs(absl::string_view text) {
  const Utf8Locale utf8;
  std::vector<Glyph> glyphs;
  mbstate_t state{};
  while (!text.empty()) {
    wchar_t character = 0;
    const size_t size = mbrtowc(&character, text.data(), text.size(), &state);
    // 0 is the NUL character; the two largest values say "not UTF-8" and "cut
    // short".
    if (size == 0 || size > text.size()) {
      glyphs.push_back({"?", 1});
      text.remove_prefix(1);
      state = {};
      continue;
    }
    const int width = wcwidth(character);
    if (width == 0 && !glyphs.empty()) {
      absl::StrAppend(&glyphs.back().text, text.substr(0, size));
    } else if (width > 0) {
      glyphs.push_back({absl::StrCat(text.substr(0, size)), width});
    } else {
      glyphs.push_back({"?", 1});
    }
    text.remove_prefix(size);
  }
  return glyphs;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  for (const Glyph& glyph : SplitGlyphs(text)) printable += glyph.text;
  return printable;
}

int DisplayWidth(absl::string_view text) { return Width(SplitGlyphs(text)); }

std::string AlignRight(absl::string_view text, int width) {
  std::string cut = Cut(text, width);
  const int space = width - DisplayWidth(cut);
  return absl::StrCat(std::string(static_cast<size_t>(space), ' '), cut);
}

std::string Center(absl::string_view text, int width) {
  const std::string cut = Cut(text, width);
  const int space = width - DisplayWidth(cut);
  const int left = space / 2;
  return absl::StrCat(std::string(static_cast<size_t>(left), ' '), cut,
                      std::string(static_cast<size_t>(space - left), ' '));
}

}  // namespace attention::cli
