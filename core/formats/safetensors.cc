#include "core/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/formats/file.h"
#include "core/formats/safetensors_header.h"
#include "core/formats/safetensors_names.h"
#include "core/formats/safetensors_reader.h"

namespace attention {
namespace {

absl::StatusOr<SafetensorsFile> ReadAll(const SafetensorsReader& reader) {
  SafetensorsFile file;
  for (const auto& [name, entry] : reader.header().tensors) {
    absl::StatusOr<Tensor> tensor = reader.ReadTensor(name);
    if (!tensor.ok()) return tensor.status();
    file.tensors.emplace_hint(file.tensors.end(), name, *std::move(tensor));
  }
  file.metadata = reader.header().metadata;
  return file;
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

SafetensorsHeader HeaderOf(const SafetensorsFile& file) {
  SafetensorsHeader header;
  header.metadata = file.metadata;
  int64_t position = 0;
  for (const auto* named : FileOrder(file)) {
    const Tensor& tensor = named->second;
    const int64_t begin =
        std::exchange(position, position + tensor.byte_size());
    header.tensors[named->first] = {tensor.type(), tensor.shape(), begin,
                                    position};
  }
  return header;
}

}  // namespace

absl::StatusOr<SafetensorsFile> ParseSafetensors(
    absl::Span<const std::byte> bytes) {
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(
      static_cast<int64_t>(bytes.size()),
      [bytes](int64_t offset, absl::Span<std::byte> to) {
        if (!to.empty()) std::memcpy(to.data(), &bytes[offset], to.size());
        return absl::OkStatus();
      });
  if (!reader.ok()) return reader.status();
  return ReadAll(*reader);
}

std::string SerializeSafetensors(const SafetensorsFile& file) {
  std::string text = SerializeSafetensorsHeader(HeaderOf(file));
  for (const auto* named : FileOrder(file)) {
    const absl::Span<const std::byte> bytes = named->second.bytes();
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path) {
  const absl::StatusOr<SafetensorsReader> reader =
      SafetensorsReader::OpenFile(path);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<SafetensorsFile> file = ReadAll(*reader);
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
