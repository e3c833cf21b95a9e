#ifndef ATTENTION_SERVER_REQUEST_SEQUENCE_KEYS_H_
#define ATTENTION_SERVER_REQUEST_SEQUENCE_KEYS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/batch.h"
#include "core/problem.h"
#include "core/store/sequence.h"
#include "core/store/snapshot.h"
#include "server/request/attention_request.h"
#include "server/request/resident_access.h"

namespace attention::server {

/// The keys and values that one request reads of sequences, and those that it
/// appends first. Errors name the entry: "sequences.entries[1]: ...", with the
/// store's codes.
///
/// Sequences with labels, whose callers cannot say a position, have one request
/// at a time: from Plan() until this ends, others are ABORTED, but for a start.
/// Else one that is sent again while it still runs would be appended twice.
class SequenceKeys {
 public:
  explicit SequenceKeys(ResidentAccess access) : access_(std::move(access)) {}
  ~SequenceKeys();
  SequenceKeys(const SequenceKeys&) = delete;
  SequenceKeys& operator=(const SequenceKeys&) = delete;

  /// Of a request that starts sequences: deletes those that they replace. As
  /// soon as it is known, so that the steps behind a start that is refused find
  /// none, and are not appended to what it was to replace.
  static void EndOlder(const ResidentAccess& access, const SequenceLife& life);

  /// Looks the request's sequences up and makes its problem one whose entries
  /// have keys of their own, as many as there will be, but without elements: so
  /// it can be checked and its needs be known. Nothing is appended. Without
  /// keys to append, what is there now is what Read() gives.
  absl::Status Plan(AttentionRequest& request);

  /// After Plan(): whether Read() would wait for another request that appends
  /// to one of the sequences.
  bool waits() const { return waits_; }

  /// Bytes that Read() takes for the tables of pages of what was planned.
  static int64_t TableBytes(const ValidatedBatch& planned);

  /// Once, after Plan(): appends the request's keys and puts what is to be read
  /// into the problem. An entry that appends reads up to its last own key,
  /// whatever stands behind it: the same request again gives the same answer.
  /// Entries before the one that fails are appended; Kept() says so.
  absl::Status Read(AttentionRequest& request);

  /// What stays of a request that fails, once it is read, to follow its error:
  /// static text.
  absl::string_view Kept() const;

  struct Ended {
    /// The same request may be sent again, and appends nothing twice.
    bool repeatable = true;
    /// Kept(), of what End() has left.
    absl::string_view kept;
  };

  /// After Read(), with what came of the request: its sequences were used until
  /// now, or end with it. Where it failed, what was appended to sequences with
  /// labels is cut off again, as their callers cannot say a position.
  Ended End(const AttentionRequest& request, const absl::Status& status);

 private:
  absl::Status Find(const AttentionRequest& request);
  absl::Status FindEntry(size_t entry, const AttentionRequest& request);
  absl::Status CutRows(const AttentionProblem& problem);
  absl::Status CutTokens(const AttentionProblem& problem);
  absl::Status CutRectangle(const AttentionProblem& problem);
  absl::Status PlanEntry(size_t entry, const AttentionRequest& request,
                         KeyValueBlocks& blocks);
  absl::Status Make(size_t entry, const SequenceLayer& sequence);
  absl::Status Append(size_t entry, const SequenceLayer& sequence);
  bool TakeBack(const AttentionRequest& request);
  void Delete(const AttentionRequest& request);

  const ResidentAccess access_;
  // One for each entry; of sequences that the request makes, nothing before
  // Read(). They are in use until the request ends.
  std::vector<std::shared_ptr<store::Sequence>> sequences_;
  std::vector<std::shared_ptr<store::Sequence>> claimed_;  // of those
  std::vector<std::optional<store::Snapshot>> snapshots_;  // as sequences_
  std::vector<KeyValueBlock> rows_;  // as sequences_, (1, Hkv, n, D); or none
  // Of those that were appended to, afterwards.
  std::vector<int64_t> lengths_;
  bool waits_ = false;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_SEQUENCE_KEYS_H_
