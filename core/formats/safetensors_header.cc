#include "core/formats/safetensors_header.h"

#include <bitset>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/formats/safetensors_names.h"

namespace attention {
namespace {

using Json = nlohmann::json;

// Takes the header's JSON event by event. The documented form is at most three
// levels deep, so anything deeper ends the parse where it begins, and nothing
// is ever held but the result.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  absl::Status& status() { return status_; }
  SafetensorsHeader& header() { return header_; }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kNames;
        return true;
      case Place::kNames:
        place_ =
            name_ == kSafetensorsMetadata ? Place::kMetadata : Place::kTensor;
        seen_.reset();
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::kNames:
        return Name(key);
      case Place::kMetadata:
        field_ = key;
        return !header_.metadata.contains(key) ||
               Refuse(absl::StrCat("\"", SafetensorsPrintable(key),
                                   "\" comes twice"));
      default:
        return Field(key);
    }
  }

  bool end_object() override {
    if (place_ == Place::kNames) {
      place_ = Place::kEnd;
      return true;
    }
    if (place_ == Place::kTensor) {
      for (size_t i = 0; i < seen_.size(); ++i) {
        if (!seen_[i]) return Refuse(absl::StrCat("has no ", kFields[i]));
      }
    }
    place_ = Place::kNames;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && field_ == kShape) {
      place_ = Place::kShapeArray;
      return true;
    }
    if (place_ == Place::kTensor && field_ == kDataOffsets) {
      place_ = Place::kOffsetsArray;
      offsets_seen_ = 0;
      return true;
    }
    return Unexpected("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsetsArray && offsets_seen_ != 2) {
      return Refuse("data_offsets has fewer than two integers");
    }
    place_ = Place::kTensor;
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(std::move(field_), std::move(text));
      return true;
    }
    if (place_ != Place::kTensor || field_ != kDtype) {
      return Unexpected("a string");
    }
    const std::optional<DataType> type = SafetensorsTypeFromName(text);
    if (!type) {
      return Refuse(
          absl::StrCat("unknown dtype \"", SafetensorsPrintable(text), "\""));
    }
    entry_->type = *type;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > std::numeric_limits<int64_t>::max()) {
      return Refuse(absl::StrCat(field_, " has ", number, ", beyond 2^63 - 1"));
    }
    const auto value = static_cast<int64_t>(number);
    if (place_ == Place::kShapeArray) {
      entry_->shape.push_back(value);
      return true;
    }
    if (place_ != Place::kOffsetsArray) return Unexpected("a number");
    if (offsets_seen_ == 2) {
      return Refuse("data_offsets has more than two integers");
    }
    (offsets_seen_ == 0 ? entry_->begin : entry_->end) = value;
    ++offsets_seen_;
    return true;
  }

  // The parser calls this for numbers with a sign only.
  bool number_integer(number_integer_t number) override {
    if (place_ != Place::kShapeArray && place_ != Place::kOffsetsArray) {
      return Unexpected("a number");
    }
    return Refuse(absl::StrCat(field_, " has ", number,
                               ", expected integers of at least 0"));
  }

  bool number_float(number_float_t, const string_t& text) override {
    if (place_ != Place::kShapeArray && place_ != Place::kOffsetsArray) {
      return Unexpected("a number");
    }
    return Refuse(absl::StrCat(field_, " has ", SafetensorsPrintable(text),
                               ", expected integers from 0 to 2^63 - 1"));
  }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("header: not JSON at byte ", position));
    return false;
  }

 private:
  enum class Place : uint8_t {
    kStart,  // before the outermost object
    kNames,  // in it, where keys are tensors' names
    kMetadata,
    kTensor,  // in a tensor's object
    kShapeArray,
    kOffsetsArray,
    kEnd,
  };
  static constexpr char kDtype[] = "dtype";
  static constexpr char kShape[] = "shape";
  static constexpr char kDataOffsets[] = "data_offsets";
  static constexpr const char* kFields[] = {kDtype, kShape, kDataOffsets};

  bool Name(const string_t& name) {
    name_ = name;
    field_.clear();
    if (name == kSafetensorsMetadata) {
      return !std::exchange(metadata_seen_, true) || Refuse("comes twice");
    }
    // Most files have their names in order: each then goes to the map's end
    // without a search.
    auto& tensors = header_.tensors;
    const size_t count = tensors.size();
    entry_ = &tensors.try_emplace(tensors.end(), name)->second;
    return tensors.size() > count || Refuse("comes twice");
  }

  bool Field(const string_t& field) {
    field_ = field;
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (field != kFields[i]) continue;
      if (seen_[i]) return Refuse(absl::StrCat(field, " comes twice"));
      seen_.set(i);
      return true;
    }
    return Refuse(
        absl::StrCat("unknown field \"", SafetensorsPrintable(field), "\""));
  }

  bool Unexpected(absl::string_view found) {
    switch (place_) {
      case Place::kNames:
        return Refuse(absl::StrCat("is ", found, ", expected an object"));
      case Place::kMetadata:
        return Refuse(absl::StrCat("\"", SafetensorsPrintable(field_), "\" is ",
                                   found, ", expected a string"));
      case Place::kTensor:
        return Refuse(absl::StrCat(
            field_, " is ", found, ", expected ",
            field_ == kDtype ? "a string" : "an array of integers"));
      default:
        return Refuse(
            absl::StrCat(field_, " holds ", found, ", expected integers"));
    }
  }

  bool Refuse(absl::string_view reason) {
    const std::string where = name_ == kSafetensorsMetadata
                                  ? absl::StrCat(name_, ": ")
                                  : SafetensorsErrorPrefix(name_);
    status_ = absl::InvalidArgumentError(absl::StrCat(where, reason));
    return false;
  }

  Place place_ = Place::kStart;
  std::string name_;     // of the tensor, or __metadata__
  std::string field_;    // within it
  std::bitset<3> seen_;  // of kFields
  bool metadata_seen_ = false;
  int offsets_seen_ = 0;
  SafetensorsEntry* entry_ = nullptr;  // of name_, in header_
  SafetensorsHeader header_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view text) {
  // The JSON parser takes a NUL for the text's end and skips a byte-order mark.
  if (text.empty() || text.front() != '{') {
    return absl::InvalidArgumentError("header: does not begin with {");
  }
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: not JSON at byte ", nul + 1));
  }
  HeaderReader reader;
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) {
    return std::move(reader.status());
  }
  return std::move(reader.header());
}

std::string SerializeSafetensorsHeader(const SafetensorsHeader& header) {
  constexpr size_t kLengthBytes = 8;
  Json json = Json::object();
  if (!header.metadata.empty()) json[kSafetensorsMetadata] = header.metadata;
  for (const auto& [name, entry] : header.tensors) {
    const std::string type(SafetensorsName(entry.type));
    json[name] = {
        {"dtype", type},
        {"shape", std::vector(entry.shape.begin(), entry.shape.end())},
        {"data_offsets", {entry.begin, entry.end}}};
  }
  // Bytes that are not UTF-8 are replaced, because dump() would throw.
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(text.size() >> (8 * i)));
  }
  return length + text;
}

}  // namespace attention
