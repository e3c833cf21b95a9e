#include "core/formats/npy_header.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace attention {
namespace {

constexpr std::pair<DataType, const char*> kNames[] = {
    {DataType::kBool, "|b1"},    {DataType::kUint8, "|u1"},
    {DataType::kUint16, "<u2"},  {DataType::kUint32, "<u4"},
    {DataType::kUint64, "<u8"},  {DataType::kInt8, "|i1"},
    {DataType::kInt16, "<i2"},   {DataType::kInt32, "<i4"},
    {DataType::kInt64, "<i8"},   {DataType::kFloat16, "<f2"},
    {DataType::kFloat32, "<f4"}, {DataType::kFloat64, "<f8"},
};

absl::Status Refuse(absl::string_view key, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", reason));
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, 100)), "'");
}

// The part of the text that is not read yet; every step skips blanks first.
class Cursor {
 public:
  explicit Cursor(absl::string_view rest) : rest_(rest) {}

  bool AtEnd() { return Skip().empty(); }
  bool Next(char c) { return !Skip().empty() && rest_.front() == c; }

  /// Steps over `token` if it comes next.
  bool Take(absl::string_view token) {
    Skip();
    return absl::ConsumePrefix(&rest_, token);
  }

  /// A string in either kind of quotes; nothing where none comes next. One with
  /// an escape in it is not any name that this format knows.
  std::optional<absl::string_view> TakeString() {
    if (!Next('\'') && !Next('"')) return std::nullopt;
    const size_t end = rest_.find(rest_.front(), 1);
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  /// The longest run of letters, digits and signs.
  absl::string_view TakeWord() {
    Skip();
    size_t length = 0;
    while (length < rest_.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(rest_[length])) ||
            rest_[length] == '-' || rest_[length] == '+' ||
            rest_[length] == '_' || rest_[length] == '.')) {
      ++length;
    }
    const absl::string_view word = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return word;
  }

 private:
  absl::string_view Skip() {
    return rest_ = absl::StripLeadingAsciiWhitespace(rest_);
  }

  absl::string_view rest_;
};

absl::StatusOr<DataType> ReadType(Cursor& cursor) {
  if (cursor.Next('[') || cursor.Next('(')) {
    return Refuse("descr", "is a structured type, expected a plain one");
  }
  const std::optional<absl::string_view> name = cursor.TakeString();
  if (!name) return Refuse("descr", "is not a string");
  if (absl::StartsWith(*name, ">")) {
    return Refuse("descr",
                  absl::StrCat(Quoted(*name), " is big-endian, expected '<'"));
  }
  for (const auto& [type, known] : kNames) {
    const absl::string_view letters = absl::string_view(known).substr(1);
    // A single byte has no order: NumPy writes '|' but reads '<' as well.
    if (*name == known ||
        (known[0] == '|' && *name == absl::StrCat("<", letters))) {
      return type;
    }
  }
  return Refuse("descr", absl::StrCat(Quoted(*name),
                                      " is not a type that a tensor can have"));
}

absl::Status ReadOrder(Cursor& cursor) {
  const absl::string_view word = cursor.TakeWord();
  if (word == "False") return absl::OkStatus();
  if (word == "True") {
    return Refuse("fortran_order",
                  "the array is in Fortran order, expected C order (see "
                  "numpy.ascontiguousarray)");
  }
  return Refuse("fortran_order", "is neither True nor False");
}

absl::StatusOr<int64_t> ReadExtent(Cursor& cursor) {
  const absl::string_view word = cursor.TakeWord();
  int64_t extent = 0;
  if (!absl::SimpleAtoi(word, &extent)) {
    return Refuse("shape",
                  absl::StrCat(Quoted(word), " is not an integer below 2^63"));
  }
  if (extent < 0) {
    return Refuse("shape", absl::StrCat("has the negative extent ", extent));
  }
  return extent;
}

absl::StatusOr<Shape> ReadShape(Cursor& cursor) {
  if (!cursor.Take("(")) return Refuse("shape", "is not a tuple");
  Shape shape;
  while (!cursor.Take(")")) {
    if (shape.size() == kNpyLongestShape) {
      return Refuse("shape", "has more than 64 extents");
    }
    const absl::StatusOr<int64_t> extent = ReadExtent(cursor);
    if (!extent.ok()) return extent.status();
    shape.push_back(*extent);
    const bool comma = cursor.Take(",");
    const bool last = cursor.Next(')');
    if (!comma && (!last || shape.size() == 1)) {
      return Refuse("shape", "is not a tuple of integers");
    }
  }
  return shape;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view text) {
  Cursor cursor(text);
  std::optional<DataType> type;
  std::optional<Shape> shape;
  bool order = false;
  if (!cursor.Take("{")) return Refuse("header", "is not a dictionary");
  while (!cursor.Take("}")) {
    const std::optional<absl::string_view> key = cursor.TakeString();
    if (!key || !cursor.Take(":")) {
      return Refuse("header", "is not a dictionary with strings for keys");
    }
    absl::Status status;
    if (*key == "descr" && !type) {
      const absl::StatusOr<DataType> read = ReadType(cursor);
      status = read.status();
      if (read.ok()) type = *read;
    } else if (*key == "fortran_order" && !order) {
      status = ReadOrder(cursor);
      order = true;
    } else if (*key == "shape" && !shape) {
      absl::StatusOr<Shape> read = ReadShape(cursor);
      status = read.status();
      if (read.ok()) shape = *std::move(read);
    } else {
      return Refuse("header", absl::StrCat("the key ", Quoted(*key),
                                           " is unknown or comes twice"));
    }
    if (!status.ok()) return status;
    if (!cursor.Take(",") && !cursor.Next('}')) {
      return Refuse("header", absl::StrCat("no comma after ", *key));
    }
  }
  if (!cursor.AtEnd()) return Refuse("header", "text after the dictionary");
  if (!type || !shape || !order) {
    return Refuse("header",
                  absl::StrCat("has no ", !type    ? "descr"
                                          : !shape ? "shape"
                                                   : "fortran_order"));
  }
  return NpyHeader{*type, *std::move(shape)};
}

std::optional<absl::string_view> NpyName(DataType type) {
  for (const auto& [known, name] : kNames) {
    if (type == known) return name;
  }
  return std::nullopt;
}

}  // namespace attention
