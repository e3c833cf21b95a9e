#include "server/wire/infer_values.h"

#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/memory/region_names.h"
#include "server/request/option_fields.h"

namespace attention::server {
namespace {

using inference::InferParameter;

OptionValue ValueOf(const InferParameter& value) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return value.bool_param();
    case InferParameter::kInt64Param:
      return value.int64_param();
    case InferParameter::kUint64Param:
      return value.uint64_param();
    case InferParameter::kDoubleParam:
      return value.double_param();
    case InferParameter::kStringParam:
      return value.string_param();
    case InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return {};
}

// Takes the value of a StatusOr, or returns its status.
template <typename Value>
absl::Status Take(absl::StatusOr<Value> value, Value& target) {
  if (!value.ok()) return value.status();
  target = *std::move(value);
  return absl::OkStatus();
}

// Keys that the protocol, its clients or its gateways use for themselves; none
// of them changes what is computed.
bool IsReserved(const std::string& key) {
  static constexpr absl::string_view kReserved[] = {
      "sequence_id",
      "sequence_start",
      "sequence_end",
      "priority",
      "timeout",
      "headers",
      "binary_data_output",
      "triton_enable_empty_final_response",
  };
  return absl::c_linear_search(kReserved, key);
}

constexpr size_t kMostSequenceIdBytes = 100;

// A number, or a text; empty where it is none.
absl::StatusOr<std::string> IdOf(const InferParameter& value) {
  if (value.parameter_choice_case() == InferParameter::kStringParam) {
    const std::string& text = value.string_param();
    if (text.size() > kMostSequenceIdBytes) {
      return FieldError("sequence_id",
                        absl::StrCat(text.size(), " bytes (expected: at most ",
                                     kMostSequenceIdBytes, ")"));
    }
    return text.empty() ? text : absl::StrCat("text ", text);
  }
  const absl::StatusOr<uint64_t> number = UnsignedOf(ValueOf(value));
  if (!number.ok()) return Named("sequence_id", number.status());
  return *number == 0 ? std::string() : absl::StrCat("number ", *number);
}

absl::StatusOr<bool> FlagOf(const std::string& key,
                            const InferParameter& value) {
  if (value.parameter_choice_case() == InferParameter::kBoolParam) {
    return value.bool_param();
  }
  return FieldError(key, "is no bool (expected true or false)");
}

// What an input's or an output's own parameters say.
struct RegionReference {
  std::string region;
  uint64_t offset = 0;     // bytes
  uint64_t byte_size = 0;  // bytes
  bool sized = false;      // an offset or a size was given
};

absl::StatusOr<RegionReference> ReadReference(
    absl::string_view field, const InferParameters& parameters) {
  RegionReference reference;
  for (const auto& [key, value] : parameters) {
    absl::Status status;
    if (key == "shared_memory_region") {
      status = Take(TextOf(ValueOf(value)), reference.region);
    } else if (key == "shared_memory_byte_size") {
      status = Take(UnsignedOf(ValueOf(value)), reference.byte_size);
      reference.sized = true;
    } else if (key == "shared_memory_offset") {
      status = Take(UnsignedOf(ValueOf(value)), reference.offset);
      reference.sized = true;
    } else if (key != "binary_data_size" && key != "binary_data") {
      status = absl::InvalidArgumentError(
          "unknown (known are shared_memory_region, shared_memory_byte_size, "
          "shared_memory_offset)");
    }
    if (!status.ok()) {
      return Named(absl::StrCat(field, ".", key.substr(0, 64)), status);
    }
  }
  return reference;
}

}  // namespace

absl::Status ReadParameters(const InferParameters& parameters,
                            RequestBuilder& builder) {
  for (const auto& [key, value] : parameters) {
    if (IsReserved(key)) continue;
    const OptionField* const option = FindOption(key);
    if (option == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", key.substr(0, 64),
                       "' is unknown (known are ", OptionNames(), ")"));
    }
    absl::Status status = builder.SetOption(*option, ValueOf(value));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<InferSequence>> ReadSequence(
    const InferParameters& parameters) {
  InferSequence sequence;
  for (const auto& [key, value] : parameters) {
    absl::Status status;
    if (key == "sequence_id") status = Take(IdOf(value), sequence.id);
    if (key == "sequence_start") {
      status = Take(FlagOf(key, value), sequence.life.start);
    }
    if (key == "sequence_end") {
      status = Take(FlagOf(key, value), sequence.life.end);
    }
    if (!status.ok()) return status;
  }
  if (!sequence.id.empty()) return std::optional(std::move(sequence));
  if (sequence.life.start || sequence.life.end) {
    return FieldError("sequence_id", "missing beside a start or an end");
  }
  return std::optional<InferSequence>();
}

// What a model has in its sequences' names, which are 256 bytes at most: its
// own name, which may have 128, or of a long one the SHA-256.
std::string ModelInName(absl::string_view model) {
  constexpr size_t kLong = 64;
  if (model.size() <= kLong) return absl::WebSafeBase64Escape(model);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  SHA256(reinterpret_cast<const unsigned char*>(model.data()), model.size(),
         hash.data());
  return absl::WebSafeBase64Escape(
      {reinterpret_cast<const char*>(hash.data()), hash.size()});
}

// No colon is in what is encoded.
std::string NamesOf(const InferSequence& sequence, absl::string_view model) {
  return absl::StrCat("sequence_id:", absl::WebSafeBase64Escape(sequence.id),
                      ":", ModelInName(model), ":");
}

std::vector<SequenceLayer> SequencesOf(const InferSequence& sequence,
                                       int64_t entries) {
  std::vector<SequenceLayer> sequences;
  sequences.reserve(static_cast<size_t>(entries));
  for (int64_t n = 0; n < entries; ++n) {
    sequences.push_back({.name = absl::StrCat(sequence.life.names, n),
                         .label = absl::StrCat("sequence_id ", sequence.id)});
  }
  return sequences;
}

bool NamesRegion(const InferParameters& parameters) {
  const auto region = parameters.find("shared_memory_region");
  return region != parameters.end() && !(region->second.has_string_param() &&
                                         region->second.string_param().empty());
}

absl::StatusOr<RegionBytes> ReadRegion(absl::string_view field,
                                       const InferParameters& parameters,
                                       SharedMemoryAccess regions) {
  const absl::StatusOr<RegionReference> reference =
      ReadReference(field, parameters);
  if (!reference.ok()) return reference.status();
  if (reference->region.empty()) {
    if (!reference->sized) return RegionBytes();
    return FieldError(absl::StrCat(field, ".shared_memory_region"),
                      "missing beside a size or an offset");
  }
  if (regions.regions == nullptr) return SharedMemoryIsOff();
  if (!regions.permitted) {
    return absl::PermissionDeniedError(absl::StrCat(
        field, ".shared_memory_region: this caller may not use shared memory"));
  }
  auto region = regions.regions->Find(reference->region);
  if (!region.ok()) {
    return Named(absl::StrCat(field, ".shared_memory_region"), region.status());
  }
  const auto bytes = (*region)->Bytes(reference->offset, reference->byte_size);
  if (!bytes.ok()) return Named(field, bytes.status());
  return RegionBytes{*std::move(region), *bytes};
}

}  // namespace attention::server
