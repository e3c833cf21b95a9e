#include "server/request/sequence_keys.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/batch_entries.h"
#include "core/store/page_layout.h"
#include "core/validate_parts.h"
#include "server/request/request_builder.h"

namespace attention::server {
namespace {

// Which entry it is about, as its wire calls it.
absl::Status OfEntry(size_t entry, const AttentionRequest& request,
                     const absl::Status& status) {
  const SequenceLayer& sequence = request.sequences[entry];
  if (sequence.label.empty()) {
    return Named(absl::StrCat("sequences.entries[", entry, "]"), status);
  }
  std::string label = sequence.label;
  if (request.sequences.size() > 1) {
    absl::StrAppend(&label, ", batch entry ", entry);
  }
  if (!absl::IsNotFound(status)) return Named(label, status);
  // Why, without the store's name for it, which the caller has never seen.
  const std::string why = absl::StrReplaceAll(
      status.message(),
      {{absl::StrCat("sequence '", sequence.name, "'"), "it"}});
  return absl::NotFoundError(
      absl::StrCat(label, ": there is none now",
                   absl::StartsWith(why, "it ") ? absl::StrCat(", ", why) : "",
                   " (expected sequence_start with its first request)"));
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

// Of (B, Hkv, n), as (1, Hkv, n).
std::optional<TensorView> ScalesOfEntry(const std::optional<TensorView>& scales,
                                        int64_t entry) {
  if (!scales) return std::nullopt;
  TensorView part = *scales;
  internal::TakeEntry(entry, part);
  return part;
}

}  // namespace

SequenceKeys::~SequenceKeys() {
  for (const auto& sequence : claimed_) sequence->GiveBack();
}

void SequenceKeys::EndOlder(const ResidentAccess& access,
                            const SequenceLife& life) {
  if (life.start) access.store->DeleteAll(access.owner, life.names);
}

absl::Status SequenceKeys::Find(const AttentionRequest& request) {
  sequences_.assign(request.sequences.size(), nullptr);
  snapshots_.assign(request.sequences.size(), std::nullopt);
  // What is claimed without a place here would stay so for ever.
  claimed_.reserve(request.sequences.size());
  if (request.sequence_life.start) {
    // What they are made like is that of their first keys.
    return request.problem.key_value.empty()
               ? FieldError("key", "missing beside sequence_start")
               : absl::OkStatus();
  }
  for (size_t n = 0; n < request.sequences.size(); ++n) {
    absl::Status found = FindEntry(n, request);
    if (!found.ok()) return OfEntry(n, request, found);
  }
  return absl::OkStatus();
}

absl::Status SequenceKeys::FindEntry(size_t entry,
                                     const AttentionRequest& request) {
  const auto& [name, layer, position, label] = request.sequences[entry];
  const bool appends = !request.problem.key_value.empty();
  if (position && !appends) {
    return FieldError("position", "given without keys to append");
  }
  auto sequence = access_.store->Find(access_.owner, name, store::Clock::now());
  if (!sequence.ok()) return sequence.status();
  if (!label.empty()) {
    if (!(*sequence)->Claim()) {
      return absl::AbortedError(
          "another request of it still runs (expected each after the answer to "
          "the one before it)");
    }
    claimed_.push_back(*sequence);
  }
  absl::StatusOr<store::Snapshot> snapshot = (*sequence)->TakeSnapshot(layer);
  if (!snapshot.ok()) return snapshot.status();
  snapshots_[entry] = *std::move(snapshot);
  waits_ = waits_ || (appends && (*sequence)->IsChanging(layer));
  sequences_[entry] = *std::move(sequence);
  return absl::OkStatus();
}

// The request's own keys and values, entry by entry.
absl::Status SequenceKeys::CutRows(const AttentionProblem& problem) {
  rows_.clear();
  if (problem.key_value.empty()) return absl::OkStatus();
  return problem.query_starts ? CutTokens(problem) : CutRectangle(problem);
}

// As many for each entry as it has queries.
absl::Status SequenceKeys::CutTokens(const AttentionProblem& problem) {
  const TensorView& key = problem.key_value.front().key;
  if (key.rank() == 3 && problem.query.rank() == 3 &&
      key.shape[0] != problem.query.shape[0]) {
    return FieldError(
        "key",
        absl::StrCat("shape ", ShapeToString(key.shape), " has ", key.shape[0],
                     " tokens, query has ", problem.query.shape[0],
                     " (each entry appends as many)"));
  }
  AttentionProblem packed = problem;
  packed.key_starts = packed.query_starts;
  const auto entries = internal::BatchEntries::Of(packed);
  if (!entries.ok()) return entries.status();
  for (int64_t n = 0; n < entries->count(); ++n) {
    rows_.push_back(entries->KeysOf(n).front());
  }
  return absl::OkStatus();
}

absl::Status SequenceKeys::CutRectangle(const AttentionProblem& problem) {
  const KeyValueBlock& all = problem.key_value.front();
  const TensorView& key = all.key;
  const TensorView& value = all.value;
  absl::Status status = internal::CheckQuery(problem.query);
  for (const auto& [field, rows] :
       {std::pair("key", &key), std::pair("value", &value)}) {
    if (status.ok()) status = internal::CheckView(field, *rows);
    if (status.ok()) {
      status =
          CheckRectangle(field, *rows, problem.query.rank(), snapshots_.size());
    }
  }
  std::optional<TensorView> key_scale;
  std::optional<TensorView> value_scale;
  if (status.ok()) {
    status = internal::ReadScales("key_scale", key, all.key_scale,
                                  all.scales_checked, key_scale);
  }
  if (status.ok()) {
    status = internal::ReadScales("value_scale", value, all.value_scale,
                                  all.scales_checked, value_scale);
  }
  if (!status.ok()) return status;
  for (size_t n = 0; n < snapshots_.size(); ++n) {
    const auto entry = static_cast<int64_t>(n);
    rows_.push_back({RowsOfEntry(key, entry), RowsOfEntry(value, entry),
                     ScalesOfEntry(key_scale, entry),
                     ScalesOfEntry(value_scale, entry),
                     /*scales_checked=*/true});
  }
  return absl::OkStatus();
}

// What an entry will read, as far as it is known.
absl::Status SequenceKeys::PlanEntry(size_t entry,
                                     const AttentionRequest& request,
                                     KeyValueBlocks& blocks) {
  if (std::optional<store::Snapshot>& snapshot = snapshots_[entry]) {
    const std::optional<int64_t> position = request.sequences[entry].position;
    if (position && *position < 0) {
      return FieldError("position",
                        absl::StrCat(*position, " (expected 0 or more)"));
    }
    if (position && *position > snapshot->length()) {
      return absl::OutOfRangeError(absl::StrCat("position: ", *position,
                                                " leaves a gap, there are ",
                                                snapshot->length(), " keys"));
    }
    if (position) snapshot = snapshot->First(*position);
    if (!rows_.empty()) {
      if (absl::Status rows = snapshot->CheckRows(rows_[entry]); !rows.ok()) {
        return rows;
      }
    }
    blocks.push_back(snapshot->Extents());
  }
  if (!rows_.empty()) blocks.push_back(rows_[entry]);
  return absl::OkStatus();
}

int64_t SequenceKeys::TableBytes(const ValidatedBatch& planned) {
  // As the request has it, and as it is checked.
  constexpr int64_t kBytesOfPage =
      sizeof(KeyValueBlock) + sizeof(ValidatedProblem::Block);
  int64_t pages = 0;
  for (const ValidatedProblem& entry : planned.problems) {
    pages += store::PagesOf(entry.key_length) + 1;
  }
  return pages * kBytesOfPage;
}

absl::Status SequenceKeys::Plan(AttentionRequest& request) {
  absl::Status status = CheckCount(request);
  if (status.ok()) status = Find(request);
  if (status.ok()) status = CutRows(request.problem);
  if (!status.ok()) return status;
  AttentionProblem& problem = request.problem;
  problem.key_value.clear();
  for (size_t n = 0; n < snapshots_.size(); ++n) {
    status = PlanEntry(n, request, problem.key_value_of_entries.emplace_back());
    if (!status.ok()) return OfEntry(n, request, status);
  }
  return absl::OkStatus();
}

absl::Status SequenceKeys::Make(size_t entry, const SequenceLayer& sequence) {
  const KeyValueBlock& rows = rows_[entry];
  const store::NewSequence wanted = {
      .form = {.heads = rows.key.shape[1],
               .key_width = rows.key.shape[3],
               .value_width = rows.value.shape[3],
               .type = rows.key.type},
      .name = sequence.name,
      .label = sequence.label,
      .idle_limit = access_.idle_limit,
      .claimed = true};
  auto made = access_.store->Create(access_.owner, wanted, store::Clock::now());
  if (absl::IsAlreadyExists(made.status())) {
    return absl::AbortedError("another request starts it at the same time");
  }
  if (!made.ok()) return made.status();
  claimed_.push_back(made->sequence);
  sequences_[entry] = std::move(made->sequence);
  return absl::OkStatus();
}

absl::Status SequenceKeys::Append(size_t entry, const SequenceLayer& sequence) {
  // Where it was cut, its last page is not copied if nobody reads that.
  snapshots_[entry].reset();
  absl::StatusOr<store::Appended> appended = access_.store->Append(
      access_.owner, sequence.name, sequence.layer, sequence.position,
      rows_[entry], store::Clock::now(), sequences_[entry].get());
  if (!appended.ok()) return appended.status();
  lengths_.push_back(appended->length);
  snapshots_[entry] = std::move(appended->read);
  return absl::OkStatus();
}

absl::Status SequenceKeys::Read(AttentionRequest& request) {
  // Those that others have started while this one waited.
  EndOlder(access_, request.sequence_life);
  for (size_t n = 0; n < snapshots_.size(); ++n) {
    const SequenceLayer& entry = request.sequences[n];
    absl::Status status;
    if (request.sequence_life.start) status = Make(n, entry);
    if (status.ok() && !rows_.empty()) status = Append(n, entry);
    if (!status.ok()) return OfEntry(n, request, status);
    request.problem.key_value_of_entries[n] = snapshots_[n]->Blocks();
  }
  return absl::OkStatus();
}

// True where the request's keys are in no sequence.
bool SequenceKeys::TakeBack(const AttentionRequest& request) {
  // One that could not begin is not there for the requests that follow.
  if (request.sequence_life.start) {
    Delete(request);
    return true;
  }
  bool all = true;
  for (size_t n = 0; n < lengths_.size(); ++n) {
    store::Sequence& sequence = *sequences_[n];
    const int64_t length = lengths_[n];
    // Not what somebody else has put behind them.
    const bool last = sequence.Lengths().front() == length;
    all = last && sequence.Truncate(length - rows_[n].key.shape[2]).ok() && all;
  }
  return all;
}

absl::string_view SequenceKeys::Kept() const {
  if (lengths_.empty()) return "";
  return lengths_.size() == snapshots_.size()
             ? "; its own keys are appended"
             : "; the entries before it are appended";
}

SequenceKeys::Ended SequenceKeys::End(const AttentionRequest& request,
                                      const absl::Status& status) {
  const auto& entries = request.sequences;
  const bool has_label = !entries.front().label.empty();
  if (!status.ok() && has_label && TakeBack(request)) return {};
  if (status.ok() && request.sequence_life.end) {
    // A batch that was begun larger has more of them than this request.
    access_.store->DeleteAll(access_.owner, request.sequence_life.names,
                             sequences_.front().get());
  } else {
    const store::Time now = store::Clock::now();
    for (const SequenceLayer& entry : entries) {
      access_.store->Find(access_.owner, entry.name, now).IgnoreError();
    }
  }
  Ended ended;
  ended.kept = Kept();
  ended.repeatable = std::all_of(
      entries.begin(),
      entries.begin() + static_cast<std::ptrdiff_t>(lengths_.size()),
      [](const SequenceLayer& entry) { return entry.position.has_value(); });
  return ended;
}

// Those that the request has: another of their name may have been begun since.
void SequenceKeys::Delete(const AttentionRequest& request) {
  for (size_t n = 0; n < sequences_.size(); ++n) {
    if (sequences_[n] == nullptr) continue;
    const std::string& name = request.sequences[n].name;
    access_.store->Delete(access_.owner, name, sequences_[n].get())
        .IgnoreError();
  }
}

}  // namespace attention::server
