#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/formats/safetensors_names.h"
#include "core/store/page_list.h"
#include "core/store/sequence_file.h"
#include "core/store/sequence_file_names.h"

namespace attention::store {
namespace {

// What is read at a time, and of many small rows the number of keys.
constexpr int64_t kReadBytes = int64_t{16} << 20;
constexpr int64_t kReadKeys = 1024;

int64_t KeysAtATime(const SequenceForm& form) {
  const int64_t key_bytes =
      form.heads * (form.key_width + form.value_width) * ByteSize(form.type);
  return std::clamp<int64_t>(kReadBytes / key_bytes, 1, kReadKeys);
}

absl::Status Wrong(absl::string_view field, absl::string_view had,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": '", SafetensorsPrintable(had), "' (expected: ", expected, ")"));
}

absl::Status WrongTensor(const std::string& name, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(SafetensorsErrorPrefix(name), reason));
}

}  // namespace

absl::StatusOr<SequenceFileReader> SequenceFileReader::Open(
    SafetensorsReader file) {
  SequenceFileReader reader(std::move(file));
  absl::Status status = reader.ReadForm();
  if (status.ok()) status = reader.ReadLengths();
  if (!status.ok()) return status;
  return reader;
}

absl::Status SequenceFileReader::ReadForm() {
  const auto& metadata = file_.header().metadata;
  absl::Status status;
  const auto text = [&](const std::string& field) -> absl::string_view {
    const auto found = metadata.find(field);
    return found == metadata.end() ? absl::string_view() : found->second;
  };
  const auto must_be = [&](const std::string& field,
                           absl::string_view expected) {
    if (text(field) != expected) {
      status.Update(
          Wrong(field, text(field), absl::StrCat("'", expected, "'")));
    }
  };
  const auto number = [&](const std::string& field, int64_t& value) {
    if (!absl::SimpleAtoi(text(field), &value)) {
      status.Update(Wrong(field, text(field), "a number"));
    }
  };
  must_be("format", kSequenceFormat);
  must_be("version", kSequenceVersion);
  number("heads", form_.heads);
  number("key_width", form_.key_width);
  number("value_width", form_.value_width);
  number("layers", form_.layers);
  const std::optional<DataType> type = DataTypeFromName(text("datatype"));
  if (!type) status.Update(Wrong("datatype", text("datatype"), "FP32, ..."));
  form_.type = type.value_or(DataType::kFloat32);
  status.Update(CheckForm(form_));
  return status;
}

absl::Status SequenceFileReader::ReadLengths() {
  const auto& tensors = file_.header().tensors;
  const std::map<std::string, SequencePart> parts = PartsOf(form_.layers);
  for (const auto& [name, entry] : tensors) {
    if (!parts.contains(name)) return WrongTensor(name, "is not of a sequence");
  }
  lengths_.resize(static_cast<size_t>(form_.layers));
  for (const auto& [name, part] : parts) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return WrongTensor(name, "is missing");
    const auto& [type, shape, begin, end] = found->second;
    const int64_t width = part.is_value ? form_.value_width : form_.key_width;
    if (type != form_.type || shape.size() != 3 || shape[0] != form_.heads ||
        shape[2] != width || shape[1] > PageList::kMostKeys) {
      return WrongTensor(
          name, absl::StrCat(Name(type), " of shape ", ShapeToString(shape),
                             " (expected: ", Name(form_.type), " of [",
                             form_.heads, ", n, ", width, "])"));
    }
    // Keys come before values in the order of names.
    int64_t& length = lengths_[static_cast<size_t>(part.layer)];
    if (!part.is_value) length = shape[1];
    if (shape[1] != length) {
      return WrongTensor(name,
                         absl::StrCat(shape[1], " rows, key has ", length));
    }
  }
  const std::string lengths = absl::StrJoin(lengths_, " ");
  const auto said = file_.header().metadata.find("lengths");
  if (said == file_.header().metadata.end() || said->second != lengths) {
    return absl::InvalidArgumentError(
        "lengths: others than the tensors have (expected: the second extent of "
        "each layer's)");
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> SequenceFileReader::ReadRows(const std::string& name,
                                                    int64_t first,
                                                    int64_t count) const {
  const SafetensorsEntry& entry = file_.header().tensors.at(name);
  const int64_t length = entry.shape[1];
  const int64_t row_bytes = entry.shape[2] * ByteSize(entry.type);
  absl::StatusOr<Tensor> rows = Tensor::CreateUninitialized(
      entry.type, {entry.shape[0], count, entry.shape[2]});
  if (!rows.ok() || row_bytes == 0) return rows;
  for (int64_t head = 0; head < entry.shape[0]; ++head) {
    const absl::Status status =
        file_.ReadBytes(name, (head * length + first) * row_bytes,
                        {rows->data() + head * count * row_bytes,
                         static_cast<size_t>(count * row_bytes)});
    if (!status.ok()) return status;
  }
  return rows;
}

absl::Status SequenceFileReader::Read(
    absl::FunctionRef<absl::Status(int64_t, int64_t, const KeyValueBlock&)>
        append) const {
  const int64_t most = KeysAtATime(form_);
  for (int64_t layer = 0; layer < form_.layers; ++layer) {
    const int64_t length = lengths_[static_cast<size_t>(layer)];
    for (int64_t first = 0; first < length; first += most) {
      const int64_t count = std::min(most, length - first);
      const auto key = ReadRows(KeyName(layer), first, count);
      if (!key.ok()) return key.status();
      const auto value = ReadRows(ValueName(layer), first, count);
      if (!value.ok()) return value.status();
      absl::Status status = append(layer, first, {key->view(), value->view()});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace attention::store
