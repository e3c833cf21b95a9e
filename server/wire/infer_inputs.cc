#include "server/wire/infer_inputs.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/memory/region_names.h"
#include "server/wire/infer_parameters.h"
#include "server/wire/typed_contents.h"

namespace attention::server {
namespace {

using InputTensor = inference::ModelInferRequest::InferInputTensor;

absl::Status InputError(absl::string_view input, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(input, ": ", problem));
}

std::vector<std::string> KnownInputs(const Model& model) {
  std::vector<std::string> known = {"query", "key", "value"};
  known.insert(known.end(), model.parameter_inputs.begin(),
               model.parameter_inputs.end());
  known.insert(known.end(), {"valid_lens", "attend_mask", "bias"});
  return known;
}

// Where an input's view belongs in a problem; the name is a known one.
TensorView& Place(const std::string& name, AttentionProblem& problem) {
  KeyValueBlock& block = problem.key_value.front();
  if (name == "query") return problem.query;
  if (name == "key") return block.key;
  if (name == "value") return block.value;
  if (name == "valid_lens") return problem.masks.valid_lens.emplace();
  if (name == "attend_mask") return problem.masks.attend_mask.emplace();
  if (name == "bias") return problem.masks.bias.emplace();
  if (name == "m") return std::get<Bilinear>(problem.scoring).m;
  auto& additive = std::get<Additive>(problem.scoring);
  if (name == "w_q") return additive.w_q;
  return name == "w_k" ? additive.w_k : additive.w_v;
}

// Those whose values are looked at before computing: they decide what is read.
bool IsChecked(const std::string& name) {
  return name == "valid_lens" || name == "attend_mask";
}

// A device reads these where they lie on it; the others are small, or looked
// at, and brought to the host.
bool MayLieOnDevice(const std::string& name) {
  return name == "query" || name == "key" || name == "value" || name == "bias";
}

// Where a tensor's elements are.
struct Elements {
  absl::Span<const std::byte> bytes;
  MemorySpace space = MemorySpace::kHost;
  int device = 0;
};

class InputReader {
 public:
  InputReader(DecodedInferRequest& request, const Model& model,
              const SharedMemoryRegistry* regions, AttentionProblem& problem,
              InferMemory& memory)
      : request_(request),
        model_(model),
        regions_(regions),
        problem_(problem),
        memory_(memory),
        known_(KnownInputs(model)) {}

  absl::Status Read() {
    problem_.key_value.resize(1);
    for (int n = 0; n < request_.message.inputs_size(); ++n) {
      if (absl::Status status = ReadInput(n); !status.ok()) return status;
    }
    if (next_raw_ != request_.raw.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "raw_input_contents: ", request_.raw.size(), " entries (expected ",
          next_raw_, ", one for each input that is not in shared memory)"));
    }
    const size_t required = 3 + model_.parameter_inputs.size();
    for (size_t n = 0; n < required; ++n) {
      if (seen_.count(known_[n]) == 0) return InputError(known_[n], "missing");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadInput(int n) {
    const InputTensor& input = request_.message.inputs(n);
    if (!absl::c_linear_search(known_, input.name())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", input.name().substr(0, 64), "' is unknown to ",
          model_.name, " (known are ", absl::StrJoin(known_, ", "), ")"));
    }
    if (!seen_.insert(input.name()).second) {
      return InputError(input.name(), "given twice");
    }
    const std::optional<DataType> type = DataTypeFromName(input.datatype());
    if (!type) {
      return InputError(
          input.name(),
          absl::StrCat("datatype '", input.datatype().substr(0, 64),
                       "' is unknown (tensors are FP32, FP16 or "
                       "BF16, lengths INT32 or INT64, masks "
                       "BOOL or UINT8)"));
    }
    const absl::StatusOr<Elements> elements = ElementsOf(n, input, *type);
    if (!elements.ok()) return elements.status();
    absl::StatusOr<TensorView> view =
        ViewOfBytes(input.name(), *type, input.shape(), elements->bytes);
    if (!view.ok()) return view.status();
    view->space = elements->space;
    view->device = elements->device;
    Place(input.name(), problem_) = *std::move(view);
    return absl::OkStatus();
  }

  absl::StatusOr<Elements> ElementsOf(int n, const InputTensor& input,
                                      DataType type) {
    const auto region = RegionOf(input.name(), input.parameters());
    if (!region.ok()) return region.status();
    const auto& contents = request_.contents[static_cast<size_t>(n)];
    if (*region && !contents.empty()) {
      return InputError(input.name(),
                        "has contents and a shared_memory_region");
    }
    if (*region) return ElementsOfRegion(input.name(), **region);
    if (contents.empty()) return NextRaw(input.name());
    if (!request_.raw.empty()) {
      return InputError(input.name(),
                        "has contents beside raw_input_contents (a request has "
                        "its elements in one or the other)");
    }
    return ElementsOfContents(input, type, contents);
  }

  absl::StatusOr<Elements> NextRaw(const std::string& name) {
    if (next_raw_ < request_.raw.size()) {
      TensorBytes& raw = request_.raw[next_raw_++];
      if (IsChecked(name)) raw.Gather();
      return Elements{raw.bytes()};
    }
    return InputError(
        name, absl::StrCat("unable to find data for input tensor (", next_raw_,
                           " entries in raw_input_contents, no contents, no "
                           "shared_memory_region)"));
  }

  absl::StatusOr<Elements> ElementsOfContents(
      const InputTensor& input, DataType type,
      const std::vector<TensorBytes>& contents) {
    const absl::StatusOr<int64_t> count =
        ElementCount(input.shape(), ByteSize(type));
    if (!count.ok()) {
      return InputError(input.name(), count.status().message());
    }
    absl::StatusOr<AlignedBuffer> buffer =
        ReadTypedContents(input.name(), type, *count, contents);
    if (!buffer.ok()) return buffer.status();
    return Keep(*std::move(buffer));
  }

  absl::StatusOr<Elements> ElementsOfRegion(const std::string& name,
                                            const RegionReference& reference) {
    auto region = FindRegion(regions_, reference.region);
    if (!region.ok()) return region.status();
    const auto bytes = (*region)->Bytes(reference.offset, reference.byte_size);
    if (!bytes.ok()) {
      return absl::Status(bytes.status().code(),
                          absl::StrCat(name, ": ", bytes.status().message()));
    }
    const SharedMemoryRegion& held =
        *memory_.regions.emplace_back(*std::move(region));
    const SharedMemoryDescription& facts = held.description();
    const bool on_device = facts.space == MemorySpace::kCudaDevice;
    if (on_device ? MayLieOnDevice(name) : !IsChecked(name)) {
      return Elements{*bytes, facts.space, facts.device};
    }
    absl::StatusOr<AlignedBuffer> copy =
        AlignedBuffer::Create(static_cast<int64_t>(bytes->size()));
    if (!copy.ok()) return copy.status();
    absl::Status copied =
        held.CopyToHost(bytes->data(), {copy->data(), bytes->size()});
    if (!copied.ok()) return copied;
    return Keep(*std::move(copy));
  }

  Elements Keep(AlignedBuffer buffer) {
    return {memory_.buffers.emplace_back(std::move(buffer)).bytes()};
  }

  DecodedInferRequest& request_;
  const Model& model_;
  const SharedMemoryRegistry* const regions_;
  AttentionProblem& problem_;
  InferMemory& memory_;
  const std::vector<std::string> known_;
  std::set<std::string> seen_;
  size_t next_raw_ = 0;
};

}  // namespace

absl::Status ReadInferInputs(DecodedInferRequest& request, const Model& model,
                             const SharedMemoryRegistry* regions,
                             AttentionProblem& problem, InferMemory& memory) {
  return InputReader(request, model, regions, problem, memory).Read();
}

absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> FindRegion(
    const SharedMemoryRegistry* regions, const std::string& name) {
  if (regions == nullptr) return SharedMemoryIsOff();
  return regions->Find(name);
}

}  // namespace attention::server
