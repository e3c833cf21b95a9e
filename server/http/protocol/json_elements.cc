#include "server/http/protocol/json_elements.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/shape.h"

namespace attention::server {
namespace {

// Of a caller's text that is in a message.
constexpr size_t kMostTold = 64;
// Of a number: a double has at most 767 digits that count. A token is looked at
// several times without a pause.
constexpr size_t kMostToken = 4 << 10;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool EndsToken(char c) {
  return c == ',' || c == ']' || c == '[' || c == '{' || IsSpace(c);
}

// RFC 8259, section 6: std::from_chars takes more, ".5" and "01" and "1.".
bool IsJsonNumber(absl::string_view token) {
  const char* at = token.data();
  const char* const end = at + token.size();
  const auto digits = [&at, end] {
    const char* const begin = at;
    while (at < end && IsDigit(*at)) ++at;
    return at - begin;
  };
  if (at < end && *at == '-') ++at;
  const bool leading_zero = at < end && *at == '0';
  const auto whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (at < end && *at == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    if (at < end && (*at == '+' || *at == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == end;
}

// Whether all of the token is a number of T.
template <typename T>
bool ReadAs(absl::string_view token, T& value) {
  const char* const end = token.data() + token.size();
  const auto result = std::from_chars(token.data(), end, value);
  return result.ec == std::errc() && result.ptr == end;
}

std::optional<uint8_t> TruthOf(absl::string_view token) {
  if (token == "true") return 1;
  if (token == "false") return 0;
  return std::nullopt;
}

template <typename T>
std::optional<T> IntegerOf(absl::string_view token) {
  if (!IsJsonNumber(token)) return std::nullopt;
  int64_t integer = 0;
  if (ReadAs(token, integer) && std::in_range<T>(integer)) {
    return static_cast<T>(integer);
  }
  uint64_t natural = 0;
  if (ReadAs(token, natural) && std::in_range<T>(natural)) {
    return static_cast<T>(natural);
  }
  return std::nullopt;
}

// Beyond the type: what is too large is refused, what is too small is rounded.
bool ReadBeyond(absl::string_view token, float& value) {
  return absl::SimpleAtof(token, &value) && std::isfinite(value);
}
bool ReadBeyond(absl::string_view token, double& value) {
  return absl::SimpleAtod(token, &value) && std::isfinite(value);
}

template <typename T>
std::optional<T> RealOf(absl::string_view token) {
  using Limits = std::numeric_limits<T>;
  if (token == "\"NaN\"") return Limits::quiet_NaN();
  if (token == "\"Infinity\"") return Limits::infinity();
  if (token == "\"-Infinity\"") return -Limits::infinity();
  if (!IsJsonNumber(token)) return std::nullopt;
  T value{};
  if (ReadAs(token, value) || ReadBeyond(token, value)) return value;
  return std::nullopt;
}

class ElementReader {
 public:
  // `elements` is room for as many as fit; the others are counted.
  ElementReader(absl::string_view text, DataType type,
                absl::Span<const int64_t> shape, HoldBytes hold,
                AlignedBuffer& elements)
      : text_(text),
        type_(type),
        shape_(shape),
        pauses_(hold),
        next_(elements.data()),
        end_(elements.data() + elements.size()) {}

  absl::Status Read() {
    using Reader = absl::Status (ElementReader::*)();
    static const auto& readers = *new std::map<DataType, Reader>{
        {DataType::kBool, &ElementReader::ReadAll<TruthOf>},
        {DataType::kUint8, &ElementReader::ReadAll<IntegerOf<uint8_t>>},
        {DataType::kUint16, &ElementReader::ReadAll<IntegerOf<uint16_t>>},
        {DataType::kUint32, &ElementReader::ReadAll<IntegerOf<uint32_t>>},
        {DataType::kUint64, &ElementReader::ReadAll<IntegerOf<uint64_t>>},
        {DataType::kInt8, &ElementReader::ReadAll<IntegerOf<int8_t>>},
        {DataType::kInt16, &ElementReader::ReadAll<IntegerOf<int16_t>>},
        {DataType::kInt32, &ElementReader::ReadAll<IntegerOf<int32_t>>},
        {DataType::kInt64, &ElementReader::ReadAll<IntegerOf<int64_t>>},
        {DataType::kFloat32, &ElementReader::ReadAll<RealOf<float>>},
        {DataType::kFloat64, &ElementReader::ReadAll<RealOf<double>>},
    };
    const auto reader = readers.find(type_);
    if (reader != readers.end()) return (this->*reader->second)();
    return absl::InvalidArgumentError(
        absl::StrCat(Name(type_),
                     " has no form in JSON (expected binary_data_size, and the "
                     "elements behind the JSON)"));
  }

  int64_t count() const { return count_; }

 private:
  // What may come, beside white space.
  enum class Next : uint8_t { kValue, kValueOrEnd, kCommaOrEnd };

  // The array and those in it; kValueOf makes an element of a token.
  template <auto kValueOf>
  absl::Status ReadAll() {
    Next next = Next::kValue;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      absl::Status status = pauses_.At(static_cast<int64_t>(at_));
      if (!status.ok()) return status;
      if (IsSpace(c)) {
        ++at_;
      } else if (c == ',' && next == Next::kCommaOrEnd) {
        ++at_;
        next = Next::kValue;
      } else if (c == ']' && next != Next::kValue) {
        ++at_;
        status = CloseArray();
        if (open_.empty()) return status;
        next = Next::kCommaOrEnd;
      } else if (next == Next::kCommaOrEnd || c == ',' || c == ']') {
        break;
      } else if (c == '[') {
        ++at_;
        status = OpenArray();
        next = Next::kValueOrEnd;
      } else if (c == '{') {
        return absl::InvalidArgumentError("has an object in it");
      } else {
        status = AddElement<kValueOf>();
        next = Next::kCommaOrEnd;
      }
      if (!status.ok()) return status;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "no JSON behind ", count_, " elements: '", text_.substr(at_, 1), "'"));
  }

  template <auto kValueOf>
  absl::Status AddElement() {
    if (value_level_ == 0) value_level_ = open_.size();
    if (value_level_ != open_.size()) return Mixed();
    if (nested_ && value_level_ != shape_.size()) return NotNested();
    const absl::string_view token = Token();
    if (token.size() > kMostToken) {
      return absl::InvalidArgumentError(absl::StrCat(
          "element ", count_, " has more than ", kMostToken, " characters"));
    }
    const auto value = kValueOf(token);
    if (!value.has_value()) return Misfit(token);
    if (next_ < end_) {
      std::memcpy(next_, &*value, sizeof(*value));
      next_ += sizeof(*value);
    }
    ++open_.back();
    ++count_;
    return absl::OkStatus();
  }

  // A number, a word, or a string with its quotes; its begin where it is too
  // long to be an element.
  absl::string_view Token() {
    const size_t begin = at_++;
    const size_t end = std::min(text_.size(), begin + kMostToken + 1);
    if (text_[begin] == '"') {
      while (at_ < end && text_[at_] != '"') {
        at_ += text_[at_] == '\\' ? 2 : 1;
      }
      ++at_;
    } else {
      while (at_ < end && !EndsToken(text_[at_])) ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  absl::Status OpenArray() {
    if (!open_.empty()) {
      ++open_.back();
      nested_ = true;
    }
    open_.push_back(0);
    if (value_level_ != 0 && open_.size() > value_level_) return Mixed();
    return nested_ && open_.size() > shape_.size() ? NotNested()
                                                   : absl::OkStatus();
  }

  absl::Status CloseArray() {
    const int64_t values = open_.back();
    const size_t level = open_.size();
    open_.pop_back();
    return nested_ && values != shape_[level - 1] ? NotNested()
                                                  : absl::OkStatus();
  }

  absl::Status Misfit(absl::string_view token) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "element ", count_, " is ", token.substr(0, kMostTold), " (expected ",
        type_ == DataType::kBool ? "true or false" : "numbers of ",
        type_ == DataType::kBool ? "" : Name(type_), ")"));
  }
  static absl::Status Mixed() {
    return absl::InvalidArgumentError("numbers and arrays are mixed");
  }
  absl::Status NotNested() const {
    return absl::InvalidArgumentError(
        absl::StrCat("arrays are not nested as shape ", ShapeToString(shape_),
                     " is (expected that, or one flat array)"));
  }

  const absl::string_view text_;
  const DataType type_;
  const absl::Span<const int64_t> shape_;
  ReadingPauses pauses_;
  std::byte* next_;
  std::byte* const end_;
  size_t at_ = 0;
  int64_t count_ = 0;
  std::vector<int64_t> open_;  // values so far in each array that is open
  size_t value_level_ = 0;     // of arrays, that numbers are in; 0: none yet
  bool nested_ = false;        // an array was in the first one
};

}  // namespace

absl::StatusOr<AlignedBuffer> ReadJsonElements(absl::string_view text,
                                               DataType type,
                                               absl::Span<const int64_t> shape,
                                               HoldBytes hold) {
  const absl::StatusOr<int64_t> count = ElementCount(shape, ByteSize(type));
  if (!count.ok()) return count.status();
  // Each takes a character, and a comma or the array's bracket.
  const bool possible = *count <= static_cast<int64_t>(text.size() / 2);
  const int64_t bytes = possible ? *count * ByteSize(type) : 0;
  if (absl::Status held = hold(bytes); !held.ok()) return held;
  absl::StatusOr<AlignedBuffer> elements = AlignedBuffer::Create(bytes);
  if (!elements.ok()) return elements;
  ElementReader reader(text, type, shape, hold, *elements);
  if (absl::Status read = reader.Read(); !read.ok()) return read;
  if (reader.count() == *count) return elements;
  return absl::InvalidArgumentError(
      absl::StrCat(reader.count(), " elements (expected ", *count,
                   " for shape ", ShapeToString(shape), ")"));
}

}  // namespace attention::server
