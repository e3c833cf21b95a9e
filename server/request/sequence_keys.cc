#include "server/request/sequence_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/batch_entries.h"
#include "core/validate_parts.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

absl::Status OfEntry(size_t entry, const absl::Status& status) {
  return Named(absl::StrCat("sequences.entries[", entry, "]"), status);
}

// Keys and values of a rectangle, of as many entries as there are sequences.
absl::Status CheckRectangle(absl::string_view field, const TensorView& rows,
                            int rank, size_t entries) {
  if (rows.rank() != rank) {
    return FieldError(
        field, absl::StrCat("shape ", ShapeToString(rows.shape), " has ",
                            rows.rank(), " dimensions, query has ", rank));
  }
  const int64_t batch = rank > 2 ? rows.shape[0] : 1;
  if (batch == static_cast<int64_t>(entries)) return absl::OkStatus();
  return FieldError(
      field, absl::StrCat("shape ", ShapeToString(rows.shape), " has batch ",
                          batch, ", there are ", entries, " sequences"));
}

// One sequence for each entry of the batch, as far as that is said.
absl::Status CheckCount(const AttentionRequest& request) {
  const AttentionProblem& problem = request.problem;
  const TensorView& query = problem.query;
  std::optional<int64_t> entries;
  if (!problem.query_starts) {
    if (query.rank() >= 2) entries = query.rank() > 2 ? query.shape[0] : 1;
  } else if (problem.query_starts->rank() == 1) {
    entries = problem.query_starts->shape[0] - 1;
  }
  const auto sequences = static_cast<int64_t>(request.sequences.size());
  if (!entries || *entries == sequences) return absl::OkStatus();
  return FieldError("sequences",
                    absl::StrCat(sequences, ", query has ", *entries,
                                 " entries (expected one for each)"));
}

TensorView RowsOfEntry(const TensorView& rows, int64_t entry) {
  TensorView part = internal::Widen(rows);
  internal::TakeEntry(entry, part);
  return part;
}

}  // namespace

absl::Status SequenceKeys::Find(const AttentionRequest& request) {
  snapshots_.clear();
  const bool appends = !request.problem.key_value.empty();
  for (size_t n = 0; n < request.sequences.size(); ++n) {
    const SequenceLayer& entry = request.sequences[n];
    if (entry.position && !appends) {
      return OfEntry(n, FieldError("position", "given without keys to append"));
    }
    const auto sequence = access_.store->store().Find(access_.owner, entry.name,
                                                      store::Clock::now());
    if (!sequence.ok()) return OfEntry(n, sequence.status());
    absl::StatusOr<store::Snapshot> snapshot =
        (*sequence)->TakeSnapshot(entry.layer);
    if (!snapshot.ok()) return OfEntry(n, snapshot.status());
    snapshots_.push_back(*std::move(snapshot));
  }
  return absl::OkStatus();
}

// The request's own keys and values, entry by entry.
absl::Status SequenceKeys::CutRows(const AttentionRequest& request) {
  const AttentionProblem& problem = request.problem;
  rows_.clear();
  if (problem.key_value.empty()) return absl::OkStatus();
  const auto& [key, value, key_scale, value_scale] = problem.key_value.front();
  if (key_scale || value_scale) {
    return FieldError(key_scale ? "key_scale" : "value_scale",
                      "is not for keys that are appended to sequences");
  }
  const auto entries = static_cast<int64_t>(request.sequences.size());
  if (problem.query_starts) {
    // As many for each entry as it has queries.
    if (key.rank() == 3 && problem.query.rank() == 3 &&
        key.shape[0] != problem.query.shape[0]) {
      return FieldError(
          "key", absl::StrCat("shape ", ShapeToString(key.shape), " has ",
                              key.shape[0], " tokens, query has ",
                              problem.query.shape[0],
                              " (each entry appends as many)"));
    }
    AttentionProblem packed = problem;
    packed.key_starts = packed.query_starts;
    const auto cut = internal::BatchEntries::Of(packed);
    if (!cut.ok()) return cut.status();
    if (cut->count() != entries) {
      return FieldError("query_starts",
                        absl::StrCat("has ", cut->count(), " entries, there ",
                                     "are ", entries, " sequences"));
    }
    for (int64_t n = 0; n < entries; ++n) {
      rows_.push_back(cut->KeysOf(n).front());
    }
    return absl::OkStatus();
  }
  const int rank = problem.query.rank();
  absl::Status status = internal::CheckQuery(problem.query);
  for (const auto& [field, rows] :
       {std::pair("key", &key), std::pair("value", &value)}) {
    if (status.ok()) status = internal::CheckView(field, *rows);
    if (status.ok()) {
      status = CheckRectangle(field, *rows, rank, request.sequences.size());
    }
  }
  if (!status.ok()) return status;
  for (int64_t n = 0; n < entries; ++n) {
    rows_.push_back({RowsOfEntry(key, n), RowsOfEntry(value, n)});
  }
  return absl::OkStatus();
}

absl::Status SequenceKeys::Plan(AttentionRequest& request) {
  absl::Status status = CheckCount(request);
  if (status.ok()) status = Find(request);
  if (status.ok()) status = CutRows(request);
  if (!status.ok()) return status;
  AttentionProblem& problem = request.problem;
  problem.key_value.clear();
  for (size_t n = 0; n < snapshots_.size(); ++n) {
    store::Snapshot& snapshot = snapshots_[n];
    KeyValueBlocks& blocks = problem.key_value_of_entries.emplace_back();
    if (rows_.empty()) {
      blocks.push_back(snapshot.Extents());
      continue;
    }
    const std::optional<int64_t> position = request.sequences[n].position;
    if (position && (*position < 0 || *position > snapshot.length())) {
      return OfEntry(
          n, *position < 0
                 ? FieldError("position",
                              absl::StrCat(*position, " (expected 0 or more)"))
                 : absl::OutOfRangeError(absl::StrCat(
                       "position: ", *position,
                       " leaves a gap behind the last key (the length is ",
                       snapshot.length(), ")")));
    }
    if (position) snapshot = snapshot.First(*position);
    blocks.push_back(snapshot.Extents());
    blocks.push_back(rows_[n]);
  }
  return absl::OkStatus();
}

absl::Status SequenceKeys::Read(AttentionRequest& request) {
  store::Store& store = access_.store->store();
  for (size_t n = 0; n < snapshots_.size(); ++n) {
    if (!rows_.empty()) {
      const SequenceLayer& entry = request.sequences[n];
      absl::StatusOr<store::Appended> appended =
          store.Append(access_.owner, entry.name, entry.layer, entry.position,
                       rows_[n], store::Clock::now());
      if (!appended.ok()) return OfEntry(n, appended.status());
      snapshots_[n] = std::move(appended->read);
    }
    request.problem.key_value_of_entries[n] = snapshots_[n].Blocks();
  }
  return absl::OkStatus();
}

}  // namespace attention::server
