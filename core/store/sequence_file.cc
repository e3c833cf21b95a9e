#include "core/store/sequence_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "core/formats/file.h"
#include "core/store/names.h"
#include "core/store/sequence_file_names.h"

namespace attention::store {
namespace {

using Write = absl::FunctionRef<absl::Status(absl::Span<const std::byte>)>;

SafetensorsHeader HeaderOf(const SequenceForm& form,
                           absl::Span<const Snapshot> layers) {
  SafetensorsHeader header;
  int64_t position = 0;
  for (SequencePart& part : PartsOf(form)) {
    part.shape[1] = layers[static_cast<size_t>(part.layer)].length();
    const int64_t begin = position;
    // What is there fits into memory.
    position += *ElementCount(part.shape) * ByteSize(part.type);
    header.tensors[part.name] = {part.type, part.shape, begin, position};
  }
  const auto add_length = [](std::string* text, const Snapshot& snapshot) {
    absl::StrAppend(text, snapshot.length());
  };
  header.metadata = {{"format", absl::StrCat(kSequenceFormat)},
                     {"version", absl::StrCat(kSequenceVersion)},
                     {"heads", absl::StrCat(form.heads)},
                     {"key_width", absl::StrCat(form.key_width)},
                     {"value_width", absl::StrCat(form.value_width)},
                     {"layers", absl::StrCat(form.layers)},
                     {"datatype", absl::StrCat(Name(form.type))},
                     {"lengths", absl::StrJoin(layers, " ", add_length)}};
  return header;
}

// Of one head, all rows of all pages; then of the next.
absl::Status WritePart(const SequencePart& part, const Snapshot& snapshot,
                       Write write) {
  const int64_t pages = PagesOf(snapshot.length());
  for (int64_t head = 0; head < part.shape[0]; ++head) {
    for (int64_t page = 0; page < pages; ++page) {
      const KeyValueBlock block = snapshot.Block(page);
      const TensorView& view = *part.of(block);
      const int64_t bytes = view.shape[2] * view.strides[2];
      if (bytes == 0) continue;
      absl::Status status = write(
          {view.data + head * view.strides[1], static_cast<size_t>(bytes)});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Returns when the disk has the file's name. Not where some file systems have
// no such thing for folders (EINVAL), nor where the folder may be written to
// but not read.
absl::Status SyncFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(),
                                O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return absl::OkStatus();
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (synced || reason == EINVAL) return absl::OkStatus();
  return absl::ErrnoToStatus(
      reason,
      absl::StrCat(path, ": is written, and may be lost with the power"));
}

}  // namespace

absl::Status WriteSequence(const SequenceForm& form,
                           absl::Span<const Snapshot> layers, Write write) {
  if (static_cast<int64_t>(layers.size()) != form.layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layers: ", layers.size(), " (expected: ", form.layers, ")"));
  }
  const std::string header = SerializeSafetensorsHeader(HeaderOf(form, layers));
  absl::Status status =
      write({reinterpret_cast<const std::byte*>(header.data()), header.size()});
  for (const SequencePart& part : PartsOf(form)) {
    if (!status.ok()) break;
    status = WritePart(part, layers[static_cast<size_t>(part.layer)], write);
  }
  return status;
}

absl::Status WriteSequenceFile(const SequenceForm& form,
                               absl::Span<const Snapshot> layers,
                               const std::string& path,
                               absl::FunctionRef<absl::Status()> go_on) {
  // Who reads the file meanwhile reads the old one; so does everybody where the
  // disk is full. Who writes it meanwhile has another name.
  const absl::StatusOr<std::string> name = MakeName();
  if (!name.ok()) return name.status();
  const std::string part =
      std::filesystem::path(path).parent_path() /
      absl::StrCat(".", *name, ".part");  // however long the other's is
  const auto of_path = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrReplaceAll(status.message(), {{part, path}}));
  };
  absl::StatusOr<OutputFile> file = OutputFile::Create(part);
  if (!file.ok()) return of_path(file.status());
  absl::Cleanup remove_part = [&part] { ::unlink(part.c_str()); };
  absl::Status stopped;
  absl::Status status =
      WriteSequence(form, layers, [&](absl::Span<const std::byte> bytes) {
        stopped = go_on();
        return stopped.ok() ? file->Write(bytes) : stopped;
      });
  if (!stopped.ok()) return stopped;
  // The name may reach the disk before what it names.
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (!status.ok()) return of_path(status);
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat(path, ": cannot be written"));
  }
  std::move(remove_part).Cancel();
  return SyncFolder(path);
}

}  // namespace attention::store
