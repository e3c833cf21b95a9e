#include "core/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/formats/file.h"
#include "core/formats/safetensors_header.h"
#include "core/formats/safetensors_names.h"

namespace attention {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own bound

using Entry = std::pair<const std::string, SafetensorsEntry>;

uint64_t LoadLittleEndian64(absl::Span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

absl::Status ErrorAbout(const Entry& entry, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(SafetensorsErrorPrefix(entry.first), reason));
}

std::string OffsetsToString(const SafetensorsEntry& entry) {
  return absl::StrCat("data_offsets ", ShapeToString({entry.begin, entry.end}));
}

// The tensors must lie one after the other, from the first byte of the data to
// its last.
absl::Status CheckLayout(const SafetensorsHeader& header, int64_t data_size) {
  std::vector<const Entry*> entries;
  entries.reserve(header.tensors.size());
  for (const Entry& entry : header.tensors) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) <
           std::pair(b->second.begin, b->second.end);
  });

  int64_t position = 0;
  for (const Entry* entry : entries) {
    const auto& [begin, end] =
        std::pair(entry->second.begin, entry->second.end);
    const auto error = [entry](const auto&... reason) {
      return ErrorAbout(
          *entry, absl::StrCat(OffsetsToString(entry->second), reason...));
    };
    if (end < begin) return error(" end before they begin");
    if (end > data_size) {
      return error(" run past the end, the file has ", data_size,
                   " bytes of data");
    }
    if (begin != position) {
      return error(begin < position ? " overlap another tensor's"
                                    : " leave a hole before them",
                   ", expected to begin at ", position);
    }
    position = end;
  }
  if (position != data_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("data: ", data_size - position,
                     " bytes at the end belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadTensor(const Entry& named,
                                  absl::Span<const std::byte> data) {
  const SafetensorsEntry& entry = named.second;
  const int64_t size = ByteSize(entry.type);
  const absl::StatusOr<int64_t> count = ElementCount(entry.shape, size);
  if (!count.ok()) return ErrorAbout(named, count.status().message());
  if (*count * size != entry.end - entry.begin) {
    return ErrorAbout(
        named,
        absl::StrCat(OffsetsToString(entry), " hold ", entry.end - entry.begin,
                     " bytes, shape ", ShapeToString(entry.shape), " of ",
                     SafetensorsName(entry.type), " needs ", *count * size));
  }
  absl::StatusOr<Tensor> tensor =
      Tensor::CreateUninitialized(entry.type, entry.shape);
  if (!tensor.ok()) {
    return absl::Status(tensor.status().code(),
                        absl::StrCat(SafetensorsErrorPrefix(named.first),
                                     tensor.status().message()));
  }
  const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
  if (!bytes.empty()) std::memcpy(tensor->data(), bytes.data(), bytes.size());
  return tensor;
}

// Largest elements first: every tensor is then aligned to its own element,
// which readers that map a file (PyTorch's) depend on.
std::vector<const std::pair<const std::string, Tensor>*> FileOrder(
    const SafetensorsFile& file) {
  std::vector<const std::pair<const std::string, Tensor>*> order;
  order.reserve(file.tensors.size());
  for (const auto& named : file.tensors) order.push_back(&named);
  std::stable_sort(
      order.begin(), order.end(), [](const auto* a, const auto* b) {
        return ByteSize(a->second.type()) > ByteSize(b->second.type());
      });
  return order;
}

std::string HeaderText(const SafetensorsFile& file) {
  nlohmann::json header = nlohmann::json::object();
  if (!file.metadata.empty()) header[kSafetensorsMetadata] = file.metadata;
  int64_t position = 0;
  for (const auto* named : FileOrder(file)) {
    const Tensor& tensor = named->second;
    const std::string type(SafetensorsName(tensor.type()));
    const int64_t begin =
        std::exchange(position, position + tensor.byte_size());
    header[named->first] = {
        {"dtype", type},
        {"shape", std::vector(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", {begin, position}}};
  }
  // Bytes that are not UTF-8 are replaced, because dump() would throw.
  std::string text =
      header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  return text;
}

}  // namespace

absl::StatusOr<SafetensorsFile> ParseSafetensors(
    absl::Span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("header: the file has ", bytes.size(),
                     " bytes, the header's length alone takes 8"));
  }
  const uint64_t length = LoadLittleEndian64(bytes);
  bytes.remove_prefix(kLengthBytes);
  if (length > kLongestHeader || length > bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "header: is said to have ", length, " bytes, ", bytes.size(),
        " are left in the file and 100000000 are allowed"));
  }
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(
      {reinterpret_cast<const char*>(bytes.data()), length});
  if (!header.ok()) return header.status();
  const absl::Span<const std::byte> data = bytes.subspan(length);
  const absl::Status layout =
      CheckLayout(*header, static_cast<int64_t>(data.size()));
  if (!layout.ok()) return layout;

  SafetensorsFile file;
  for (const Entry& entry : header->tensors) {
    absl::StatusOr<Tensor> tensor = ReadTensor(entry, data);
    if (!tensor.ok()) return tensor.status();
    file.tensors.emplace_hint(file.tensors.end(), entry.first,
                              *std::move(tensor));
  }
  file.metadata = std::move(header->metadata);
  return file;
}

std::string SerializeSafetensors(const SafetensorsFile& file) {
  const std::string header = HeaderText(file);
  std::string text;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    text.push_back(static_cast<char>(header.size() >> (8 * i)));
  }
  text += header;
  for (const auto* named : FileOrder(file)) {
    const absl::Span<const std::byte> bytes = named->second.bytes();
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<SafetensorsFile> file = ParseSafetensors(
      {reinterpret_cast<const std::byte*>(text->data()), text->size()});
  if (file.ok()) return file;
  return absl::Status(file.status().code(),
                      absl::StrCat(path, ": ", file.status().message()));
}

absl::Status WriteSafetensors(const std::string& path,
                              const SafetensorsFile& file) {
  if (file.tensors.contains(kSafetensorsMetadata)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", SafetensorsErrorPrefix(kSafetensorsMetadata),
                     "the format keeps this name for its metadata"));
  }
  return WriteFile(path, SerializeSafetensors(file));
}

}  // namespace attention
