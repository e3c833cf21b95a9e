#include "server/request/request_builder.h"

#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace attention::server {

namespace {

// Of entries that all append. Were two of them of one layer, the second one
// would be planned without the keys of the first.
absl::Status CheckLayersDiffer(const std::vector<SequenceLayer>& sequences) {
  std::map<std::pair<absl::string_view, int64_t>, size_t> seen;
  for (size_t n = 0; n < sequences.size(); ++n) {
    const auto& [name, layer, position, label] = sequences[n];
    const auto [first, is_new] =
        seen.emplace(std::pair(absl::string_view(name), layer), n);
    if (is_new) continue;
    return FieldError(
        absl::StrCat("sequences.entries[", n, "]"),
        absl::StrCat("layer ", layer, " of '", name.substr(0, 64),
                     "', and so is sequences.entries[", first->second,
                     "] (expected each layer of a sequence once where keys are "
                     "appended)"));
  }
  return absl::OkStatus();
}

// The same status, whose message is `text`.
absl::Status WithMessage(const absl::Status& status, absl::string_view text) {
  absl::Status changed(status.code(), text);
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& of) {
    changed.SetPayload(type, of);
  });
  return changed;
}

}  // namespace

RequestBuilder::RequestBuilder(const Scoring& scoring) {
  request_.problem.scoring = scoring;
  request_.problem.key_value.resize(1);
}

RequestBuilder::RequestBuilder(const AttentionProblem& defaults,
                               std::shared_ptr<const void> owner) {
  request_.problem = defaults;
  request_.problem.key_value.resize(1);
  request_.parameters = std::move(owner);
}

absl::Status RequestBuilder::SetOption(const OptionField& option,
                                       const OptionValue& value,
                                       absl::string_view name) {
  return Named(name.empty() ? option.name : name,
               server::SetOption(option, value, request_.problem));
}

const TensorField* RequestBuilder::Accepted(absl::string_view name) {
  const TensorField* const tensor = FindTensor(name);
  if (tensor == nullptr) return nullptr;
  const bool accepted = IsGiven(*tensor) || Accepts(*tensor, request_.problem);
  return accepted ? tensor : nullptr;
}

absl::StatusOr<TensorView*> RequestBuilder::Set(
    const TensorField& tensor, DataType type, absl::Span<const int64_t> shape,
    absl::Span<const std::byte> bytes) {
  return Set(tensor, ViewOfBytes(tensor.name, type, shape, bytes));
}

absl::StatusOr<TensorView*> RequestBuilder::Set(
    const TensorField& tensor, absl::StatusOr<TensorView> view) {
  if (IsGiven(tensor)) return FieldError(tensor.name, "given twice");
  given_.set(IndexOf(tensor));
  if (!view.ok()) return view.status();
  TensorView& place = tensor.place(request_.problem);
  place = *std::move(view);
  ++request_.tensors_by_type[static_cast<size_t>(place.type)];
  return &place;
}

absl::Status RequestBuilder::SetTensor(const TensorField& tensor,
                                       TensorView view) {
  return Set(tensor, std::move(view)).status();
}

absl::Status RequestBuilder::SetTensor(const TensorField& tensor, DataType type,
                                       absl::Span<const int64_t> shape,
                                       absl::Span<const std::byte> bytes) {
  return Set(tensor, type, shape, bytes).status();
}

absl::Status RequestBuilder::SetTensor(const TensorField& tensor, DataType type,
                                       absl::Span<const int64_t> shape,
                                       AlignedBuffer buffer) {
  const AlignedBuffer& kept = request_.buffers.emplace_back(std::move(buffer));
  return SetTensor(tensor, type, shape, kept.bytes());
}

absl::Status RequestBuilder::SetTensor(const TensorField& tensor, DataType type,
                                       absl::Span<const int64_t> shape,
                                       RegionBytes place, HoldBytes hold) {
  const absl::Span<std::byte> bytes = place.bytes;
  const SharedMemoryRegion& region = *place.region;
  const SharedMemoryDescription& facts = region.description();
  request_.tensors_in_regions.push_back({tensor.name, std::move(place)});
  const absl::StatusOr<TensorView*> view = Set(tensor, type, shape, bytes);
  if (!view.ok()) return view.status();
  const bool on_device = facts.space == MemorySpace::kCudaDevice;
  if (on_device ? tensor.may_lie_on_device : !tensor.read_first) {
    (*view)->space = facts.space;
    (*view)->device = facts.device;
    return absl::OkStatus();
  }
  const auto size = static_cast<int64_t>(bytes.size());
  if (absl::Status held = hold(size); !held.ok()) return held;
  absl::StatusOr<AlignedBuffer> copy = AlignedBuffer::Create(size);
  if (!copy.ok()) return copy.status();
  absl::Status copied =
      region.CopyToHost(bytes.data(), {copy->data(), bytes.size()});
  if (!copied.ok()) return copied;
  (*view)->data = copy->data();
  request_.buffers.push_back(*std::move(copy));
  return absl::OkStatus();
}

absl::Status RequestBuilder::AddResult(const WantedResult& result) {
  const bool twice = absl::c_any_of(
      request_.results,
      [&](const WantedResult& other) { return other.result == result.result; });
  if (twice) return FieldError(Name(result.result), "asked for twice");
  request_.results.push_back(result);
  WantedOutputs& wanted = request_.problem.wanted;
  wanted.weights |= result.result == ResultField::kWeights;
  wanted.lse |= result.result == ResultField::kLse;
  wanted.key_weights |= result.result == ResultField::kKeyWeights;
  return absl::OkStatus();
}

// What top_k and scores say is wanted where a result is asked for that they are
// about.
absl::Status RequestBuilder::CheckResults() {
  WantedOutputs& wanted = request_.problem.wanted;
  bool top_k = false;
  bool scores = false;
  for (const WantedResult& result : request_.results) {
    const ResultField field = result.result;
    scores |= field == ResultField::kScores;
    if (field != ResultField::kTopKIndices &&
        field != ResultField::kTopKWeights) {
      continue;
    }
    top_k = true;
    if (!wanted.top_k) {
      return FieldError("top_k", absl::StrCat("missing beside ", Name(field),
                                              " (expected 1 to the number of "
                                              "keys)"));
    }
  }
  if (scores && !wanted.scores) {
    return FieldError("scores",
                      "which ones is not said (expected 'scaled', 'capped' or "
                      "'masked')");
  }
  if (!top_k) wanted.top_k.reset();
  if (!scores) wanted.scores.reset();
  return absl::OkStatus();
}

absl::Status RequestBuilder::SetSequences(std::vector<SequenceLayer> sequences,
                                          SequenceLife life) {
  if (sequences.empty()) return FieldError("sequences", "none is named");
  request_.sequences = std::move(sequences);
  request_.sequence_life = std::move(life);
  return absl::OkStatus();
}

absl::Status RequestBuilder::CheckTensors() {
  // Of sequences alone keys and values may come, and then both.
  bool needs_rows = request_.sequences.empty();
  for (const char* row : {"key", "value", "key_scale", "value_scale"}) {
    needs_rows = needs_rows || IsGiven(*FindTensor(row));
  }
  for (const TensorField& tensor : TensorFields()) {
    if (tensor.need == Need::kNobody || IsGiven(tensor)) continue;
    const bool is_row = tensor.name == "key" || tensor.name == "value";
    if (is_row && !needs_rows) continue;
    if (Accepts(tensor, request_.problem)) {
      return FieldError(tensor.name, "missing");
    }
  }
  if (!needs_rows) {
    request_.problem.key_value.clear();
    return absl::OkStatus();
  }
  return CheckLayersDiffer(request_.sequences);
}

absl::StatusOr<AttentionRequest> RequestBuilder::Build() && {
  if (absl::Status status = CheckTensors(); !status.ok()) return status;
  if (request_.results.empty()) request_.results.emplace_back();
  if (absl::Status status = CheckResults(); !status.ok()) return status;
  return std::move(request_);
}

absl::Status FieldError(absl::string_view field, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", problem));
}

absl::Status Named(absl::string_view field, const absl::Status& status) {
  if (status.ok()) return status;
  return WithMessage(status, absl::StrCat(field, ": ", status.message()));
}

absl::Status Followed(const absl::Status& status, absl::string_view text) {
  return WithMessage(status, absl::StrCat(status.message(), text));
}

absl::Status CheckId(absl::string_view id) {
  if (id.size() <= kMostIdBytes) return absl::OkStatus();
  return FieldError("id", absl::StrCat(id.size(), " bytes (expected at most ",
                                       kMostIdBytes, ")"));
}

}  // namespace attention::server
