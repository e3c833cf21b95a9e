#include "client/cpp/cli/convert.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/element.h"

namespace attention::cli {
namespace {

bool IsFloat(DataType type) {
  return IsAttentionType(type) || type == DataType::kFloat64;
}

// Which tensors were converted from one type to another, for one sentence.
struct Converted {
  std::vector<std::string> names;
  DataType from = DataType::kFloat32;
  DataType to = DataType::kFloat32;
};

class Converter {
 public:
  explicit Converter(Inputs& inputs) : inputs_(inputs) {}

  // Converts the named tensor where it is there and not of that type already.
  absl::Status Convert(const std::string& name, DataType type) {
    const auto found = inputs_.tensors.find(name);
    if (found == inputs_.tensors.end()) return absl::OkStatus();
    Tensor& tensor = found->second;
    const DataType from = tensor.type();
    if (from == type || !IsFloat(from)) return absl::OkStatus();
    int64_t overflowed = 0;
    absl::StatusOr<Tensor> converted = ConvertTensor(tensor, type, overflowed);
    if (!converted.ok()) return converted.status();
    tensor = *std::move(converted);
    Remember(name, from, type);
    if (overflowed > 0) {
      overflows_.push_back(absl::StrCat(name, ": ", overflowed,
                                        " finite values became infinite in ",
                                        Name(type)));
    }
    return absl::OkStatus();
  }

  void Describe(std::vector<std::string>& notes) const {
    for (const Converted& group : groups_) {
      notes.push_back(absl::StrCat(absl::StrJoin(group.names, ", "),
                                   " converted from ", Name(group.from), " to ",
                                   Name(group.to)));
    }
    notes.insert(notes.end(), overflows_.begin(), overflows_.end());
  }

 private:
  void Remember(const std::string& name, DataType from, DataType to) {
    for (Converted& group : groups_) {
      if (group.from == from && group.to == to) {
        group.names.push_back(name);
        return;
      }
    }
    groups_.push_back({{name}, from, to});
  }

  Inputs& inputs_;
  std::vector<Converted> groups_;
  std::vector<std::string> overflows_;
};

}  // namespace

absl::StatusOr<Tensor> ConvertTensor(const Tensor& tensor, DataType type,
                                     int64_t& overflowed) {
  absl::StatusOr<Tensor> converted = Tensor::Create(type, tensor.shape());
  if (!converted.ok()) return converted.status();
  const std::byte* from = tensor.data();
  std::byte* to = converted->data();
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const double value = LoadElement(tensor.type(), from);
    StoreElement(type, value, to);
    if (std::isfinite(value) && !std::isfinite(LoadElement(type, to))) {
      ++overflowed;
    }
    from += ByteSize(tensor.type());
    to += ByteSize(type);
  }
  return converted;
}

absl::Status ConvertInputs(std::optional<DataType> wanted, Inputs& inputs,
                           std::vector<std::string>& notes) {
  Converter converter(inputs);
  for (const char* name : {"query", "key", "value"}) {
    const auto found = inputs.tensors.find(name);
    if (found == inputs.tensors.end()) continue;
    const bool wide = found->second.type() == DataType::kFloat64;
    if (!wanted && !wide) continue;
    absl::Status status =
        converter.Convert(name, wanted.value_or(DataType::kFloat32));
    if (!status.ok()) return status;
  }
  const auto query = inputs.tensors.find("query");
  for (const char* name : {"bias", "w_q", "w_k", "w_v", "m"}) {
    const auto found = inputs.tensors.find(name);
    const bool as_query = found != inputs.tensors.end() &&
                          query != inputs.tensors.end() &&
                          found->second.type() == query->second.type();
    if (as_query) continue;
    absl::Status status = converter.Convert(name, DataType::kFloat32);
    if (!status.ok()) return status;
  }
  for (const char* name :
       {"alibi_slopes", "sinks", "key_scale", "value_scale"}) {
    absl::Status status = converter.Convert(name, DataType::kFloat32);
    if (!status.ok()) return status;
  }
  converter.Describe(notes);
  return absl::OkStatus();
}

}  // namespace attention::cli
