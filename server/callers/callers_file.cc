#include "server/callers/callers_file.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/json.h"

namespace attention::server {
namespace {

constexpr int kDeepest = 4;
constexpr size_t kMostNameBytes = 128;
constexpr double kLongestSeconds = 24.0 * 60 * 60;

uint64_t Prefix(const TokenHash& hash) {
  uint64_t prefix = 0;
  std::memcpy(&prefix, hash.data(), sizeof(prefix));
  return prefix;
}

// Names go into logs and metrics.
bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  absl::StrContains("._-@/", c);
         });
}

class CallerReader {
 public:
  CallerReader(std::string path, const Json& json, CallerTable& table)
      : path_(std::move(path)), json_(json), table_(table) {}

  absl::Status Read() {
    if (!json_.is_object()) return KeyError(path_, "expected an object");
    absl::Status status = CheckKeys(
        path_, json_,
        {"name", "tokens_sha256", "certificates", "may",
         "max_requests_in_flight", "max_bytes_in_flight",
         "max_requests_per_second", "max_bytes_per_second", "max_dimension",
         "max_weights_bytes", "max_compute_seconds"});
    if (status.ok()) status = ReadName();
    if (status.ok()) status = ReadRights();
    if (status.ok()) status = ReadLimits();
    if (status.ok()) status = ReadTokens();
    if (status.ok()) status = ReadCertificates();
    return status;
  }

  const std::shared_ptr<Caller>& caller() const { return caller_; }

 private:
  std::string Key(absl::string_view key) const {
    return absl::StrCat(path_, ".", key);
  }

  absl::StatusOr<std::vector<std::string>> Strings(const char* key) const {
    std::vector<std::string> strings;
    if (!json_.contains(key)) return strings;
    const Json& array = json_[key];
    if (!array.is_array()) return KeyError(Key(key), "expected an array");
    for (const Json& element : array) {
      if (!element.is_string()) {
        return KeyError(Key(key), "expected strings alone");
      }
      strings.push_back(element.get<std::string>());
    }
    return strings;
  }

  absl::Status ReadName() {
    if (json_.contains("name") && json_["name"].is_string()) {
      caller_->name = json_["name"].get<std::string>();
    }
    if (IsName(caller_->name)) return absl::OkStatus();
    return KeyError(Key("name"), "expected 1 to 128 letters, digits and ._-@/");
  }

  absl::Status ReadRights() {
    const auto rights = Strings("may");
    if (!rights.ok()) return rights.status();
    for (const std::string& right : *rights) {
      const auto* const known =
          std::find_if(std::begin(kRights), std::end(kRights),
                       [&](const auto& one) { return one.second == right; });
      if (known == std::end(kRights)) {
        const auto add_name = [](std::string* text, const auto& one) {
          absl::StrAppend(text, one.second);
        };
        return KeyError(
            Key("may"),
            absl::StrCat("'", absl::CHexEscape(right), "' (expected ",
                         absl::StrJoin(kRights, ", ", add_name), ")"));
      }
      caller_->may.insert(known->first);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCount(const char* key, int64_t& value) const {
    if (!json_.contains(key)) return absl::OkStatus();
    if (json_[key].is_number_integer()) value = json_[key].get<int64_t>();
    if (value >= 1) return absl::OkStatus();
    return KeyError(Key(key), "expected a whole number, 1 or more");
  }

  absl::Status ReadLimits() {
    CallerLimits& limits = caller_->limits;
    absl::Status status;
    const std::pair<const char*, int64_t*> counts[] = {
        {"max_requests_in_flight", &limits.max_requests_in_flight},
        {"max_bytes_in_flight", &limits.max_bytes_in_flight},
        {"max_requests_per_second", &limits.max_requests_per_second},
        {"max_bytes_per_second", &limits.max_bytes_per_second},
        {"max_dimension", &limits.max_dimension},
        {"max_weights_bytes", &limits.max_weights_bytes}};
    for (const auto& [key, value] : counts) {
      if (status.ok()) status = ReadCount(key, *value);
    }
    constexpr char kTime[] = "max_compute_seconds";
    if (!status.ok() || !json_.contains(kTime)) return status;
    const double seconds =
        json_[kTime].is_number() ? json_[kTime].get<double>() : 0;
    if (!(seconds >= 0.001 && seconds <= kLongestSeconds)) {
      return KeyError(Key(kTime), "expected seconds, 0.001 to 86400");
    }
    limits.max_compute_time =
        std::chrono::milliseconds(std::lround(seconds * 1000));
    return absl::OkStatus();
  }

  absl::Status ReadTokens() {
    constexpr char kKey[] = "tokens_sha256";
    const auto tokens = Strings(kKey);
    if (!tokens.ok()) return tokens.status();
    for (const std::string& digits : *tokens) {
      TokenHash hash{};
      if (digits.size() != 2 * hash.size() ||
          !std::all_of(digits.begin(), digits.end(), [](unsigned char c) {
            return absl::ascii_isxdigit(c);
          })) {
        return KeyError(Key(kKey),
                        "expected 64 hexadecimal digits each (printf %s TOKEN "
                        "| sha256sum)");
      }
      const std::string bytes = absl::HexStringToBytes(digits);
      std::copy(bytes.begin(), bytes.end(), hash.begin());
      if (!table_.by_token
               .emplace(Prefix(hash), CallerTable::Token{hash, caller_})
               .second) {
        return KeyError(Key(kKey),
                        absl::StrCat(digits.substr(0, 8), "... comes twice"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadCertificates() {
    constexpr char kKey[] = "certificates";
    const auto names = Strings(kKey);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (name.empty()) return KeyError(Key(kKey), "expected no empty name");
      if (!table_.by_certificate.emplace(name, caller_).second) {
        return KeyError(Key(kKey), absl::StrCat("'", absl::CHexEscape(name),
                                                "' comes twice"));
      }
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const Json& json_;
  CallerTable& table_;
  const std::shared_ptr<Caller> caller_ = std::make_shared<Caller>();
};

}  // namespace

TokenHash HashOfToken(absl::string_view token) {
  TokenHash hash{};
  ::SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
           hash.data());
  return hash;
}

std::shared_ptr<const Caller> CallerTable::OfToken(
    absl::string_view token) const {
  const TokenHash hash = HashOfToken(token);
  const auto found = by_token.find(Prefix(hash));
  if (found == by_token.end() ||
      ::CRYPTO_memcmp(hash.data(), found->second.hash.data(), hash.size()) !=
          0) {
    return nullptr;
  }
  return found->second.caller;
}

absl::StatusOr<CallerTable> ParseCallers(absl::string_view text) {
  const absl::StatusOr<Json> json = ParseStrictJson(text, kDeepest);
  if (!json.ok()) return json.status();
  if (absl::Status keys = CheckKeys("", *json, {"callers"}); !keys.ok()) {
    return keys;
  }
  if (!json->contains("callers") || !(*json)["callers"].is_array()) {
    return KeyError("callers", "expected an array of callers");
  }
  CallerTable table;
  for (const Json& entry : (*json)["callers"]) {
    const std::string path =
        absl::StrCat("callers[", table.by_name.size(), "]");
    CallerReader reader(path, entry, table);
    if (absl::Status status = reader.Read(); !status.ok()) return status;
    const std::string& name = reader.caller()->name;
    if (!table.by_name.emplace(name, reader.caller()).second) {
      return KeyError(absl::StrCat(path, ".name"),
                      absl::StrCat("'", name, "' comes twice"));
    }
  }
  return table;
}

}  // namespace attention::server
