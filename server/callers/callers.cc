#include "server/callers/callers.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/whole_file.h"

namespace attention::server {
namespace {

// RFC 6750, with the scheme in any case.
std::optional<absl::string_view> TokenIn(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return std::nullopt;
  return absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Callers>> Callers::Create(
    const std::string& file) {
  auto callers = absl::WrapUnique(new Callers(file));
  // Before it is read: what changes meanwhile is read again.
  callers->watch_.emplace({file}, [raw = callers.get()] { raw->ReadAgain(); });
  if (absl::Status status = callers->Read(); !status.ok()) return status;
  spdlog::info(
      absl::StrCat(callers->table()->by_name.size(), " callers are known"));
  return callers;
}

absl::Status Callers::Read() {
  const std::optional<std::string> text = ReadWhole(file_);
  if (!text) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--callers-file: '", file_, "' cannot be read, or is empty"));
  }
  absl::StatusOr<CallerTable> table = ParseCallers(*text);
  if (!table.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--callers-file: '", file_, "': ", table.status().message()));
  }
  auto next = std::make_shared<const CallerTable>(*std::move(table));
  const std::lock_guard lock(mutex_);
  table_.swap(next);
  return absl::OkStatus();
}

void Callers::ReadAgain() {
  const absl::Status status = Read();
  if (!status.ok()) {
    spdlog::error(
        absl::StrCat("callers stay as they were: ", status.message()));
    return;
  }
  spdlog::info(absl::StrCat(table()->by_name.size(), " callers are known now"));
  const std::lock_guard lock(changed_mutex_);
  if (changed_) changed_();
}

void Callers::OnChange(std::function<void()> changed) {
  const std::lock_guard lock(changed_mutex_);
  changed_ = std::move(changed);
}

absl::StatusOr<std::shared_ptr<const Caller>> Callers::Find(
    const Credentials& credentials, absl::string_view peer) const {
  const std::shared_ptr<const CallerTable> known = table();
  const char* why =
      "no caller is known by this call (expected a bearer token, or a client "
      "certificate that the server knows)";
  if (credentials.authorization) {
    const auto token = TokenIn(*credentials.authorization);
    if (token) {
      if (auto caller = known->OfToken(*token)) return caller;
    }
    why = token ? "the token is not known"
                : "authorization: expected Bearer and a token";
  } else {
    for (const std::string& name : credentials.certificate_names) {
      const auto found = known->by_certificate.find(name);
      if (found != known->by_certificate.end()) return found->second;
    }
  }
  if (const int64_t calls = unknown_.Count(); calls > 0) {
    spdlog::warn(absl::StrCat("refused ", calls,
                              " calls of unknown callers, the last of ", peer,
                              ": ", why));
  }
  return absl::UnauthenticatedError(why);
}

}  // namespace attention::server
