#include "server/models/parameter_set.h"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/formats/file.h"
#include "core/formats/safetensors_reader.h"
#include "core/validate.h"
#include "server/base/utf8.h"
#include "server/models/parameter_set_config.h"
#include "server/request/tensor_fields.h"

namespace attention::server {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kTensorFile[] = "parameters.safetensors";
constexpr size_t kMostTensorsListed = 20;
constexpr size_t kMostNameBytes = 64;
constexpr int64_t kLongestConfig = 1 << 20;

// Messages go to callers, who need not know where the server keeps its files.
absl::Status WithoutFolder(const absl::Status& status,
                           const std::string& folder) {
  return {status.code(),
          absl::StripPrefix(status.message(), absl::StrCat(folder, "/"))};
}

absl::Status InFile(const char* file, const absl::Status& status) {
  return {status.code(), absl::StrCat(file, ": ", status.message())};
}

// Names are of any length.
std::string Printed(const std::string& name) {
  return TruncateUtf8(absl::CHexEscape(name), kMostNameBytes);
}

std::string TensorNames(const SafetensorsHeader& header) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : header.tensors) {
    if (names.size() == kMostTensorsListed) break;
    names.push_back(Printed(name));
  }
  return absl::StrCat(
      absl::StrJoin(names, ", "),
      header.tensors.size() > kMostTensorsListed ? ", ..." : "");
}

absl::Span<const float> Floats(const Tensor& tensor) {
  return {reinterpret_cast<const float*>(tensor.data()),
          static_cast<size_t>(tensor.element_count())};
}

// The same matrices of floats, rows for columns: the last two extents change
// places.
absl::StatusOr<Tensor> Transposed(const Tensor& tensor) {
  Shape shape = tensor.shape();
  const size_t rank = shape.size();
  const int64_t rows = shape[rank - 2];
  const int64_t columns = shape[rank - 1];
  std::swap(shape[rank - 2], shape[rank - 1]);
  absl::StatusOr<Tensor> transposed =
      Tensor::CreateUninitialized(DataType::kFloat32, std::move(shape));
  if (!transposed.ok()) return transposed;
  const absl::Span<const float> from = Floats(tensor);
  auto* const to = reinterpret_cast<float*>(transposed->data());
  const int64_t size = rows * columns;
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const int64_t matrix = i / size * size;
    const int64_t row = i % size / columns;
    const int64_t column = i % columns;
    to[matrix + column * rows + row] = from[i];
  }
  return transposed;
}

absl::Status CheckElements(const std::string& tensor_name,
                           const Tensor& tensor) {
  const absl::Span<const float> values = Floats(tensor);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", tensor_name, "': element ", i, " is ",
                     values[i], " (expected finite numbers)"));
  }
  return absl::OkStatus();
}

// The header's entry of a parameter, of a datatype that it may have.
absl::StatusOr<const SafetensorsEntry*> Find(const std::string& parameter,
                                             const ParameterSource& source,
                                             const SafetensorsHeader& header) {
  const auto found = header.tensors.find(source.tensor);
  if (found == header.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no tensor '", Printed(source.tensor), "' for ",
                     parameter, " (it has ", TensorNames(header), ")"));
  }
  if (IsAttentionType(found->second.type)) return &found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", Printed(source.tensor), "': datatype ",
                   Name(found->second.type), " (expected FP32, FP16 or BF16)"));
}

// All that is read must fit into what there is, as FP32. Tells by the header.
absl::Status CheckBytes(
    const std::map<std::string, ParameterSource>& parameters,
    const SafetensorsHeader& header, int64_t most_bytes) {
  int64_t left = most_bytes;
  for (const auto& [parameter, source] : parameters) {
    const auto entry = Find(parameter, source, header);
    if (!entry.ok()) return entry.status();
    const int64_t width = ByteSize((*entry)->type);
    const int64_t elements = ((*entry)->end - (*entry)->begin) / width;
    const auto floats = static_cast<int64_t>(sizeof(float));
    if (elements <= left / floats) {
      left -= elements * floats;
      continue;
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "tensor '", Printed(source.tensor), "': has ", elements,
        " elements (expected at most ", left / floats,
        ", for all parameters must fit into the server's --memory-limit)"));
  }
  return absl::OkStatus();
}

// A parameter as ParameterSet has it.
absl::StatusOr<Tensor> Oriented(const std::string& parameter,
                                const ParameterSource& source, Tensor tensor) {
  const std::string about =
      absl::StrCat("tensor '", Printed(source.tensor), "'");
  if (tensor.type() != DataType::kFloat32) {
    tensor = Tensor::FromFloats(tensor.shape(), tensor.ToFloats());
  }
  const Shape& shape = tensor.shape();
  if (FindTensor(parameter)->need != Need::kScoring) {
    // An option of each head; Validate() looks at its elements.
    if (shape.size() == 1) return tensor;
    return absl::InvalidArgumentError(absl::StrCat(
        about, ": shape ", ShapeToString(shape), " (expected (Hq))"));
  }
  if (absl::Status status = CheckElements(source.tensor, tensor);
      !status.ok()) {
    return status;
  }
  if (shape.size() < 2) return tensor;
  if (!source.layout) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameters.", parameter, ".layout: missing (", about,
                     " has shape ", ShapeToString(shape),
                     "; expected input_by_output or output_by_input, "
                     "which is what nn.Linear stores)"));
  }
  if (*source.layout == WeightLayout::kInputByOutput) return tensor;
  // (1, h), that is; (Hq, h) would become another vector for each head.
  if (parameter == "w_v" && shape[shape.size() - 2] != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(about, ": shape ", ShapeToString(shape),
                     " (expected (1, h) or (Hq, 1, h) of an output_by_input "
                     "w_v)"));
  }
  return Transposed(tensor);
}

absl::Status ReadTensors(
    const std::map<std::string, ParameterSource>& parameters,
    const SafetensorsReader& file, ParameterSet& set) {
  for (const auto& [parameter, source] : parameters) {
    absl::StatusOr<Tensor> tensor = file.ReadTensor(source.tensor);
    if (tensor.ok()) tensor = Oriented(parameter, source, *std::move(tensor));
    if (!tensor.ok()) return tensor.status();
    set.tensors.emplace(parameter, *std::move(tensor));
  }
  for (const auto& [parameter, tensor] : set.tensors) {
    FindTensor(parameter)->place(set.defaults) = tensor.view();
  }
  return absl::OkStatus();
}

// Extents that a request for this set could have.
struct Extents {
  int64_t heads = 1;
  int64_t query_width = 1;
  int64_t key_width = 1;
};

Extents ExtentsFor(const AttentionProblem& defaults) {
  const Scoring& scoring = defaults.scoring;
  Extents extents;
  if (defaults.alibi_slopes) extents.heads = defaults.alibi_slopes->shape[0];
  if (defaults.sinks) extents.heads = defaults.sinks->shape[0];
  const auto read = [&extents](const TensorView& matrix, size_t from_end,
                               int64_t& width) {
    const Shape& shape = matrix.shape;
    if (shape.size() >= from_end) width = shape[shape.size() - from_end];
    if (shape.size() == 3) extents.heads = shape[0];
  };
  if (const auto* additive = std::get_if<Additive>(&scoring)) {
    int64_t hidden = 0;
    read(additive->w_q, 1, hidden);
    read(additive->w_q, 2, extents.query_width);
    read(additive->w_k, 2, extents.key_width);
    // (Hq, h) or (Hq, h, 1), where it is not a column, (h, 1).
    const Shape& w_v = additive->w_v.shape;
    const bool column = w_v.size() == 2 && w_v[0] == hidden && w_v[1] == 1;
    if (w_v.size() >= 2 && !column) extents.heads = w_v[0];
  }
  if (const auto* bilinear = std::get_if<Bilinear>(&scoring)) {
    read(bilinear->m, 2, extents.query_width);
    read(bilinear->m, 1, extents.key_width);
  }
  return extents;
}

// Holds the set to the rules that every request is held to, by a request of one
// query and one key that fits it. All its elements are one zero.
absl::Status Check(const AttentionProblem& defaults) {
  static constexpr float kZero = 0;
  const Extents extents = ExtentsFor(defaults);
  const auto tensor = [&](int64_t width) {
    TensorView view = ContiguousView(DataType::kFloat32,
                                     {1, extents.heads, 1, width}, &kZero);
    for (int64_t& stride : view.strides) stride = 0;
    return view;
  };
  AttentionProblem probe = defaults;
  probe.query = tensor(extents.query_width);
  probe.key_value.push_back({tensor(extents.key_width), tensor(1)});
  // How many keys there are is each request's.
  if (probe.wanted.top_k) probe.wanted.top_k = 1;
  return Validate(probe).status();
}

}  // namespace

absl::StatusOr<ParameterSet> LoadParameterSet(const std::string& name,
                                              const std::string& folder,
                                              int64_t most_bytes) {
  const absl::StatusOr<std::string> json =
      ReadFile(absl::StrCat(folder, "/", kConfigFile), kLongestConfig);
  if (!json.ok()) return WithoutFolder(json.status(), folder);
  const absl::StatusOr<ParameterSetConfig> config =
      ParseParameterSetConfig(*json);
  if (!config.ok()) return InFile(kConfigFile, config.status());
  ParameterSet set;
  set.name = name;
  set.defaults = config->defaults;
  set.sequences = config->sequences;
  const char* at_fault = kConfigFile;
  if (!config->parameters.empty()) {
    at_fault = kTensorFile;
    const absl::StatusOr<SafetensorsReader> file =
        SafetensorsReader::OpenFile(absl::StrCat(folder, "/", kTensorFile));
    if (!file.ok()) return WithoutFolder(file.status(), folder);
    absl::Status status =
        CheckBytes(config->parameters, file->header(), most_bytes);
    if (status.ok()) status = ReadTensors(config->parameters, *file, set);
    if (!status.ok()) return InFile(kTensorFile, status);
  }
  if (absl::Status status = Check(set.defaults); !status.ok()) {
    return InFile(at_fault, status);
  }
  return set;
}

}  // namespace attention::server
