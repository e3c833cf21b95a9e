#include "core/store/names.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace attention::store {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("._-:+=@/").find(c) != absl::string_view::npos;
}

}  // namespace

absl::Status CheckName(absl::string_view field, absl::string_view name) {
  if (!name.empty() && name.size() <= kLongestName &&
      std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": '", absl::CHexEscape(name.substr(0, kLongestName)),
                   "' (expected: 1 to ", kLongestName,
                   " letters, digits and . _ - : + = @ /)"));
}

absl::Status CheckLabel(absl::string_view label) {
  if (label.size() <= kLongestName) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("label: ", label.size(),
                                                 " bytes (expected: at most ",
                                                 kLongestName, ")"));
}

absl::StatusOr<std::string> MakeName() {
  std::array<char, 16> bits{};
  if (getentropy(bits.data(), bits.size()) != 0) {
    return absl::InternalError("the system gives no random bits for a name");
  }
  return absl::BytesToHexString(absl::string_view(bits.data(), bits.size()));
}

void GoneNames::Add(absl::string_view name, Gone why) {
  if (most_ == 0) return;
  Forget(name);
  if (entries_.size() == most_) Forget(std::string(order_.front()));
  order_.emplace_back(name);
  absl::Cleanup take_back = [this] { order_.pop_back(); };  // without memory
  entries_.emplace(name, Entry{why, std::prev(order_.end())});
  std::move(take_back).Cancel();
}

void GoneNames::Forget(absl::string_view name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  order_.erase(found->second.place);
  entries_.erase(found);
}

std::optional<Gone> GoneNames::Find(absl::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  return found->second.why;
}

absl::Status NotFound(absl::string_view name, std::optional<Gone> why) {
  const std::string quoted =
      absl::StrCat("'", absl::CHexEscape(name.substr(0, kLongestName)), "'");
  if (!why) {
    return absl::NotFoundError(absl::StrCat("there is no sequence ", quoted));
  }
  switch (*why) {
    case Gone::kEvicted:
      return absl::NotFoundError(absl::StrCat(
          "sequence ", quoted,
          " was evicted: memory was needed, and it was the least recently "
          "used"));
    case Gone::kExpired:
      return absl::NotFoundError(absl::StrCat(
          "sequence ", quoted,
          " has expired: nobody used it for as long as it may be idle"));
  }
  return absl::NotFoundError(quoted);
}

}  // namespace attention::store
