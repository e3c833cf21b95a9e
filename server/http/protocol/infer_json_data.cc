#include "server/http/protocol/infer_json_data.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/json.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

constexpr size_t kMostHeadBytes = 64 << 10;
constexpr size_t kDeepest = 32;
// As many as the extents of a tensor can be.
constexpr int kDeepestData = 8;
// Objects and arrays that an input's members are in: {"inputs":[{
constexpr char kOfInput[] = "{[{";
constexpr size_t kRequestLevel = 1;
constexpr size_t kInputsLevel = 2;
constexpr size_t kInputLevel = 3;

// What a character takes at most where it is written as an escape: \u0041.
constexpr size_t kMostEscapeBytes = 6;

// Whether a string, as it is written, says `key`. It is asked for each array of
// an input, so what is too long to say it is not read.
bool Says(absl::string_view string, absl::string_view key) {
  if (string.size() > kMostEscapeBytes * key.size() + 2) return false;
  if (!absl::StrContains(string, '\\')) {
    return string == absl::StrCat("\"", key, "\"");
  }
  const Json json = ParseJson(string);
  return json.is_string() && json.get_ref<const std::string&>() == key;
}

class Cutter {
 public:
  Cutter(absl::string_view text, HoldBytes hold) : text_(text), pauses_(hold) {}

  absl::StatusOr<InferJsonParts> Cut() {
    while (at_ < text_.size()) {
      if (absl::Status status = Step(); !status.ok()) return status;
      ++at_;
      if (parts_.head.size() + at_ - kept_ > kMostHeadBytes) {
        return FieldError("body", "all besides data takes more than 64 KiB");
      }
    }
    Keep(text_.size());
    return std::move(parts_);
  }

 private:
  // One character, or a string, or all of `data`; at_ is at its end.
  absl::Status Step() {
    switch (text_[at_]) {
      case '"': {
        const size_t begin = at_;
        absl::Status status = GoToEndOfString();
        string_ = text_.substr(begin, at_ + 1 - begin);
        return status;
      }
      case ':':
        if (open_.size() < keys_.size()) keys_[open_.size()] = string_;
        return absl::OkStatus();
      case ',':
        if (open_.size() == kInputsLevel) ++input_;
        return absl::OkStatus();
      case '[':
        if (IsData()) return CutHere();
        [[fallthrough]];
      case '{':
        open_ += text_[at_];
        if (open_.size() == kInputsLevel) input_ = 0;
        if (open_.size() <= kDeepest) return absl::OkStatus();
        return FieldError("body", "objects and arrays are nested too deep");
      case ']':
      case '}':
        if (!open_.empty()) open_.pop_back();
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  }

  // From a string's first quote to its last; to the text's end where it has
  // none.
  absl::Status GoToEndOfString() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (absl::Status status = Pause(); !status.ok()) return status;
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_, text_.size());
    return absl::OkStatus();
  }

  absl::Status Pause() { return pauses_.At(static_cast<int64_t>(at_)); }

  bool IsData() const {
    return open_ == kOfInput && Says(keys_[kRequestLevel], "inputs") &&
           Says(keys_[kInputLevel], "data");
  }

  absl::Status CutHere() {
    const size_t begin = at_;
    Keep(begin + 1);
    int level = 0;
    for (; at_ < text_.size(); ++at_) {
      if (absl::Status status = Pause(); !status.ok()) return status;
      const char c = text_[at_];
      if (c == '"') {
        absl::Status status = GoToEndOfString();
        if (!status.ok()) return status;
      } else if (c == '[' && ++level > kDeepestData) {
        return FieldError(
            absl::StrCat("inputs[", input_, "].data"),
            absl::StrCat("arrays are nested deeper than ", kDeepestData));
      } else if (c == ']' && --level == 0) {
        break;
      }
    }
    kept_ = at_;
    parts_.data.push_back(
        {input_, text_.substr(begin, at_ + 1 - begin), parts_.head.size() + 1});
    return absl::OkStatus();
  }

  // Puts into the head what is not in it, up to `end`.
  void Keep(size_t end) {
    if (end <= kept_) return;
    const absl::string_view more = text_.substr(kept_, end - kept_);
    parts_.head.append(more.data(), more.size());
    kept_ = end;
  }

  const absl::string_view text_;
  ReadingPauses pauses_;
  size_t at_ = 0;
  size_t kept_ = 0;           // what is before it is in the head, or in data
  absl::string_view string_;  // the last one
  std::string open_;          // brackets of objects and arrays
  std::array<absl::string_view, kInputLevel + 1> keys_;  // the last, by level
  size_t input_ = 0;
  InferJsonParts parts_;
};

}  // namespace

size_t InferJsonParts::PositionOf(size_t byte) const {
  size_t position = byte;
  for (const Data& one : data) {
    if (one.end <= byte) position += one.text.size() - 2;
  }
  return position;
}

absl::StatusOr<InferJsonParts> CutData(absl::string_view text, HoldBytes hold) {
  return Cutter(text, hold).Cut();
}

}  // namespace attention::server
