#include "server/request/sequence_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/formats/safetensors_reader.h"
#include "core/store/sequence_file.h"
#include "server/base/out_of_memory.h"

namespace attention::server {
namespace {

// What this process may not read or write says nothing about the caller's
// rights.
absl::Status OfServer(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

// Of writing: what the file lies in is gone. That is no sequence that is not
// there.
absl::Status OfFolder(const absl::Status& status) {
  if (!absl::IsNotFound(status)) return OfServer(status);
  return absl::FailedPreconditionError(status.message());
}

absl::Status OfFile(const absl::Status& status, const SequenceFilePlace& file) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(absl::StrCat("file: ", status.message()),
                          {{file.path, absl::StrCat("'", file.shown, "'")}}));
}

}  // namespace

absl::StatusOr<int64_t> ExportSequence(store::Store& store,
                                       const std::string& owner,
                                       const std::string& name,
                                       const SequenceFilePlace& file,
                                       GoOn go_on) {
  const auto sequence = store.Find(owner, name, store::Clock::now());
  if (!sequence.ok()) return sequence.status();
  const auto snapshots = (*sequence)->TakeSnapshots();
  if (!snapshots.ok()) return snapshots.status();
  absl::Status status = store::WriteSequenceFile((*sequence)->form(),
                                                 *snapshots, file.path, go_on);
  // It was used until now.
  store.Find(owner, name, store::Clock::now()).IgnoreError();
  if (!status.ok()) return OfFile(OfFolder(status), file);
  struct stat facts {};
  const bool known = stat(file.path.c_str(), &facts) == 0;
  return known ? static_cast<int64_t>(facts.st_size) : 0;
}

absl::StatusOr<ImportedSequence> ImportSequence(store::Store& store,
                                                const std::string& owner,
                                                const SequenceFilePlace& file,
                                                store::NewSequence wanted,
                                                GoOn go_on) {
  absl::StatusOr<SafetensorsReader> opened =
      SafetensorsReader::OpenFile(file.path);
  if (!opened.ok()) return OfFile(OfServer(opened.status()), file);
  const auto reader = store::SequenceFileReader::Open(*std::move(opened));
  if (!reader.ok()) return OfFile(reader.status(), file);
  wanted.form = reader->form();
  wanted.lengths = reader->lengths();  // no table of it grows
  const int64_t bytes = store::Store::BytesOf(wanted);
  if (bytes > store.budget().limit()) {  // before anybody makes room for it
    absl::Status never = absl::ResourceExhaustedError(
        absl::StrCat("file: ", bytes, " bytes at least of the ",
                     store.budget().limit(), " that sequences may take"));
    never.SetPayload(store::kNeverFits, absl::Cord());
    return never;
  }
  absl::StatusOr<store::Created> made =
      store.Create(owner, wanted, store::Clock::now());
  if (!made.ok()) return made.status();
  // Whatever becomes of the name.
  const store::Sequence* const sequence = made->sequence.get();
  absl::Status other;  // of the call and the store: about the file's rows alone
  const auto append = [&](int64_t layer, int64_t position,
                          const KeyValueBlock& rows) {
    other = go_on();
    if (!other.ok()) return other;
    other = store
                .Append(owner, made->name, layer, position, rows,
                        store::Clock::now(), sequence)
                .status();
    return other;
  };
  // Also then nothing is left of it.
  const auto truncated = [&] {
    return absl::AbortedError(absl::StrCat(
        "sequence '", made->name, "' was truncated while its file was read"));
  };
  const absl::Status status = WithoutBadAlloc([&] {
    absl::Status read = reader->Read(append);
    const std::vector<int64_t> left = sequence->Lengths();
    const bool all_there =
        std::equal(left.begin(), left.end(), reader->lengths().begin(),
                   reader->lengths().end(), std::greater_equal<>());
    if (!read.ok() || all_there) return read;
    other = truncated();
    return other;
  });
  if (!status.ok()) {
    store.Delete(owner, made->name, sequence).IgnoreError();
    // NOT_FOUND would be a file that is not there.
    if (absl::IsNotFound(other)) return absl::AbortedError(other.message());
    // They go on where the last ones ended.
    if (absl::IsOutOfRange(other)) return truncated();
    const bool is_of_rows = absl::IsInvalidArgument(other);
    return other.ok() || is_of_rows ? OfFile(status, file) : other;
  }
  return ImportedSequence{std::move(made->name), reader->lengths()};
}

}  // namespace attention::server
