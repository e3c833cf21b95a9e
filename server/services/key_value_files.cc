// How sequences become files, and files sequences.
#include <sys/stat.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/store/sequence_file.h"
#include "server/services/key_value_service.h"
#include "server/services/sequence_messages.h"

namespace attention::server {
namespace {

// Where the folder is, is nothing to callers: an error names the file alone.
absl::Status OfFile(const absl::Status& status, const std::string& path,
                    const std::string& file) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(absl::StrCat("file: ", status.message()),
                          {{path, absl::StrCat("'", file, "'")}}));
}

}  // namespace

absl::Status KeyValueService::WriteFile(
    const std::string& owner, const v1::ExportSequenceRequest& request,
    v1::ExportSequenceResponse& response) {
  const absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  const auto sequence =
      store().Find(owner, request.name(), store::Clock::now());
  if (!sequence.ok()) return sequence.status();
  const auto snapshots = (*sequence)->TakeSnapshots();
  if (!snapshots.ok()) return snapshots.status();
  absl::Status status =
      store::WriteSequenceFile((*sequence)->form(), *snapshots, *path);
  if (!status.ok()) return OfFile(status, *path, request.file());
  struct stat facts {};
  if (stat(path->c_str(), &facts) == 0) {
    response.set_bytes(static_cast<uint64_t>(facts.st_size));
  }
  return absl::OkStatus();
}

// While it is read it can be seen, with as many keys as it has by then.
absl::Status KeyValueService::ReadFile(const std::string& owner,
                                       const v1::ImportSequenceRequest& request,
                                       v1::ImportSequenceResponse& response) {
  const absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  const auto idle_limit =
      IdleLimitOf(request.has_idle_limit_ms(), request.idle_limit_ms());
  if (!idle_limit.ok()) return idle_limit.status();
  absl::StatusOr<SafetensorsReader> file = SafetensorsReader::OpenFile(*path);
  if (!file.ok()) return OfFile(file.status(), *path, request.file());
  const auto reader = store::SequenceFileReader::Open(*std::move(file));
  if (!reader.ok()) return OfFile(reader.status(), *path, request.file());
  store::NewSequence wanted = {
      .form = reader->form(),
      .name = request.name(),
      .label = request.label(),
      .idle_limit = *idle_limit ? *idle_limit : resident_.idle_limit()};
  const absl::StatusOr<std::string> made =
      store().Create(owner, wanted, store::Clock::now());
  if (!made.ok()) return made.status();
  const std::string& name = *made;
  absl::Status status = reader->Read(
      [&](int64_t layer, int64_t position, const KeyValueBlock& rows) {
        return store()
            .Append(owner, name, layer, position, rows, store::Clock::now())
            .status();
      });
  if (!status.ok()) {
    store().Delete(owner, name).IgnoreError();
    return OfFile(status, *path, request.file());
  }
  response.set_name(name);
  response.mutable_lengths()->Assign(reader->lengths().begin(),
                                     reader->lengths().end());
  response.set_incarnation(resident_.incarnation());
  return absl::OkStatus();
}

}  // namespace attention::server
