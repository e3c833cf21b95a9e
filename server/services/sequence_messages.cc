#include "server/services/sequence_messages.h"

#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "server/request/idle_limit.h"
#include "server/request/request_builder.h"
#include "server/wire/data_types.h"

namespace attention::server {
namespace {

// Between label and name in a page token: no name has it.
constexpr char kSeparator = '\0';

template <typename Message>
absl::StatusOr<std::optional<store::Duration>> IdleLimitIn(
    const Message& message) {
  if (!message.has_idle_limit_ms()) return IdleLimitOf(std::nullopt);
  return IdleLimitOf(message.idle_limit_ms());
}

}  // namespace

absl::StatusOr<store::NewSequence> FromWire(
    const v1::NewSequence& message, std::optional<store::Duration> idle_limit) {
  if (!message.has_form()) return FieldError("form", "missing");
  const v1::SequenceForm& form = message.form();
  const std::optional<DataType> type = FromWire(form.datatype());
  if (!type) {
    return FieldError("datatype", absl::StrCat(form.datatype(),
                                               " (expected FP32, FP16, BF16, "
                                               "INT8 or FP8)"));
  }
  const auto own_limit = IdleLimitIn(message);
  if (!own_limit.ok()) return own_limit.status();
  store::NewSequence sequence;
  sequence.form = {.heads = form.heads(),
                   .key_width = form.key_width(),
                   .value_width = form.value_width(),
                   .type = *type,
                   .layers = form.has_layers() ? form.layers() : 1};
  sequence.name = message.name();
  sequence.label = message.label();
  sequence.idle_limit = *own_limit ? *own_limit : idle_limit;
  return sequence;
}

absl::StatusOr<store::NewSequence> FromWire(
    const v1::ImportSequenceRequest& message,
    std::optional<store::Duration> idle_limit) {
  const auto own_limit = IdleLimitIn(message);
  if (!own_limit.ok()) return own_limit.status();
  return store::NewSequence{.form = {},
                            .name = message.name(),
                            .label = message.label(),
                            .idle_limit = *own_limit ? *own_limit : idle_limit};
}

absl::StatusOr<store::NewFork> FromWire(const v1::ForkRequest& message) {
  const auto idle_limit = IdleLimitIn(message);
  if (!idle_limit.ok()) return idle_limit.status();
  store::NewFork fork;
  if (message.has_length()) fork.length = message.length();
  fork.name = message.new_name();
  if (message.has_label()) fork.label = message.label();
  fork.idle_limit = *idle_limit;
  return fork;
}

absl::StatusOr<store::ListQuery> FromWire(
    const v1::ListSequencesRequest& message) {
  store::ListQuery query;
  query.label = message.label_prefix();
  if (message.has_label()) {
    query.label = message.label();
    query.match = store::ListQuery::Match::kEqual;
  }
  if (message.has_page_size()) query.most = message.page_size();
  if (query.most < 1 || query.most > store::Store::kMostListed) {
    return FieldError("page_size",
                      absl::StrCat(query.most, " (expected 1 to ",
                                   store::Store::kMostListed, ")"));
  }
  if (message.page_token().empty()) return query;
  std::string text;
  const size_t end = absl::WebSafeBase64Unescape(message.page_token(), &text)
                         ? text.rfind(kSeparator)
                         : std::string::npos;
  if (end == std::string::npos) {
    return FieldError("page_token",
                      "is none that this server gave (expected "
                      "next_page_token, as it was)");
  }
  query.after = {text.substr(0, end), text.substr(end + 1)};
  return query;
}

std::string PageTokenOf(const store::ListPlace& place) {
  return absl::WebSafeBase64Escape(
      absl::StrCat(place.label, std::string(1, kSeparator), place.name));
}

void ToWire(const store::Description& from, uint64_t incarnation,
            v1::SequenceDescription& to) {
  to.set_name(from.name);
  to.set_label(from.label);
  v1::SequenceForm& form = *to.mutable_form();
  form.set_heads(from.form.heads);
  form.set_key_width(from.form.key_width);
  form.set_value_width(from.form.value_width);
  form.set_datatype(ToWire(from.form.type));
  form.set_layers(from.form.layers);
  to.mutable_lengths()->Assign(from.lengths.begin(), from.lengths.end());
  to.set_bytes(static_cast<uint64_t>(from.page_bytes));
  if (from.idle_limit) to.set_idle_limit_ms(ToMs(*from.idle_limit));
  to.set_idle_ms(ToMs(from.idle));
  to.set_incarnation(incarnation);
}

}  // namespace attention::server
